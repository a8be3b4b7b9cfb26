"""What a round costs and what a batch brings, as Markdown tables."""

from typing import Any

from specmtp.ledger.rows import number

PARTS = ("draft", "verify", "accept", "cache", "host", "unexplained")


def profile_table(ledger: dict[str, Any]) -> str:
    """Where a compiled round's time goes, what its costs alone would allow, and the floor that the machine sets.

    Raises:
        ValueError: the ledger was measured without --profile.
    """
    profile = ledger.get("profile")
    if not profile:
        raise ValueError("the ledger has no profile: python bench.py --backends compile --profile writes one")
    label = {row["id"]: row["label"] for row in ledger["rows"]}
    worth = {found["row"]: number(found["speedup"], 2) for found in profile["worth"]}
    roofline = {found["row"]: found for found in profile["roofline"]}
    verify = profile["verify"]
    lines = [
        "| n tokens verified at once | " + " | ".join(str(v["tokens"]) for v in verify) + " |",
        "|---|" + "---:|" * len(verify),
        "| µs | " + " | ".join(number(v["us"], 0) for v in verify) + " |",
        "| v(n) / v(1) | " + " | ".join(number(v["ratio"], 2) for v in verify) + " |",
        "",
        "| µs of a round | measured | " + " | ".join(PARTS) + " | costs would allow | floor, µs / token | × floor |",
        "|---|" + "---:|" * (len(PARTS) + 4),
    ]
    for part in profile["parts"]:
        row, floor = part["row"], roofline[part["row"]]
        values = [number(part[name], 1) for name in ("round_us", *PARTS)]
        limits = [number(floor["floor_us_per_token"], 1), number(floor["measured_over_floor"], 1)]
        lines.append("| " + " | ".join([label[row], *values, worth.get(row, "–"), *limits]) + " |")
    return "\n".join(lines)


def batch_table(ledger: dict[str, Any]) -> str:
    """Speed-up over plain decoding of the same batch, and tokens a second, against the number of rows."""
    rows = [row for row in ledger["rows"] if row["window_rule"] == "sliding" and row["backend"] != "eager"]
    batches = sorted({row["batch"] for row in rows})
    arms: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        arms.setdefault(row["label"].split(",")[0], {})[row["batch"]] = row
    lines = [
        "| speed-up over plain of the same batch (tokens / s) | " + " | ".join(f"batch {b}" for b in batches) + " |",
        "|---|" + "---:|" * len(batches),
    ]
    for name, by_batch in arms.items():
        cells = [_batch_cell(by_batch.get(batch)) for batch in batches]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _batch_cell(row: dict[str, Any] | None) -> str:
    if row is None or row["speedup"] is None:
        return "–"
    rate, speedup = f"{1000 / row['ms_per_token']:,.0f}", row["speedup"]
    if speedup["baseline"] == row["id"]:
        return f"1 ({rate})"
    return f"{speedup['median']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}] ({rate})"
