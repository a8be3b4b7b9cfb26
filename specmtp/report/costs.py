"""What a round costs, as a Markdown table."""

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
