"""What a round costs, as a Markdown table."""

from typing import Any

from specmtp.ledger.cells import PROFILE_HEADERS, number, profile_cells


def profile_table(ledger: dict[str, Any]) -> str:
    """Where a compiled round's time goes, what its costs alone would allow, and the floor that the machine sets.

    Raises:
        ValueError: the ledger was measured without --profile.
    """
    profile = ledger.get("profile")
    if not profile:
        raise ValueError("the ledger has no profile: python bench.py --backends compile --profile writes one")
    verify = profile["verify"]
    lines = [
        "| n tokens verified at once | " + " | ".join(str(v["tokens"]) for v in verify) + " |",
        "|---|" + "---:|" * len(verify),
        "| µs | " + " | ".join(number(v["us"], 0) for v in verify) + " |",
        "| v(n) / v(1) | " + " | ".join(number(v["ratio"], 2) for v in verify) + " |",
        "",
        "| " + " | ".join(" ".join(h.split()) for h in PROFILE_HEADERS) + " |",
        "|---|" + "---:|" * (len(PROFILE_HEADERS) - 1),
    ]
    rows = profile_cells(profile, ledger["rows"])
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])
