"""Whether speculation pays at larger batches, as a Markdown table."""

from typing import Any

from specmtp.ledger.arms import is_usual_row
from specmtp.ledger.cells import speedup_text

Json = dict[str, Any]


def batch_rows(ledger: Json) -> dict[tuple[str, int], dict[int, Json]]:
    """Sampled rows with a cache and the usual accept rule by (method, gamma), then by batch, each of the backend that
    decodes plainly fastest.
    """
    rows = [row for row in ledger["rows"] if row["speedup"] and row["window_rule"] == "sliding"]
    by_id = {row["id"]: row for row in rows}
    found: dict[tuple[str, int], dict[int, Json]] = {}
    for row in rows:
        plain = by_id[row["speedup"]["baseline"]]
        if is_usual_row(row) and row["backend"] == plain["backend"]:
            found.setdefault((row["method"], row["gamma"]), {})[row["batch"]] = row
    return found


def batch_table(ledger: Json) -> str:
    """Speed-up over plain decoding of the same batch, a line a drafter and gamma, and the tokens a second of plain.

    Raises:
        ValueError: the ledger has rows of one batch alone.
    """
    rows = batch_rows(ledger)
    plain = rows.pop(("plain", 0))
    if len(plain) < 2:
        raise ValueError("the ledger has one batch: python bench.py --batches 1,4,16,64 writes several")
    lines = [
        "| batch | " + " | ".join(map(str, plain)) + " |",
        "|---|" + "---:|" * len(plain),
        "| plain, tokens / s | " + " | ".join(f"{1000 / row['ms_per_token']:,.0f}" for row in plain.values()) + " |",
        *(_line(by_batch, list(plain)) for by_batch in rows.values()),
    ]
    return "\n".join(lines)


def _line(by_batch: dict[int, Json], batches: list[int]) -> str:
    label = next(iter(by_batch.values()))["label"].split(",")[0]
    return f"| {label} | " + " | ".join(speedup_text(by_batch[b]) if b in by_batch else "–" for b in batches) + " |"
