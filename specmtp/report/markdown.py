"""A ledger as a Markdown table, for a README: python -m specmtp.report.markdown ledger.json"""

import json
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli

from specmtp.errors import one_line_errors
from specmtp.ledger.rows import HEADERS, cells


def markdown_table(ledger: dict[str, Any]) -> str:
    """The machine's line and the rows; forwards are of one generation on average."""
    where = ledger["provenance"]
    rows = ledger["rows"]
    lines = [
        f"{where['device_name']} ({where['device']}, {where['dtype']}, {where['threads']} thread(s), "
        f"{rows[0]['backend']}, torch {where['torch']}): {rows[0]['tokens']} tokens after `{where['prompt']!r}`, "
        f"temperature {rows[0]['temperature']:g}, batch 1, medians of {where['repeats']} interleaved repeats, 95 % "
        "intervals; a speed-up is the median of paired ratios, not the ratio of two medians.",
        "",
        "| " + " | ".join(" ".join(h.split()) for h in HEADERS) + " |",
        "|---|" + "---:|" * (len(HEADERS) - 1),
    ]
    return "\n".join([*lines, *("| " + " | ".join(cells(row)) + " |" for row in rows)])


def print_table(ledger: str) -> None:
    """Prints the Markdown table of a ledger.

    Args:
        ledger: a ledger.json.

    Raises:
        ValueError: there is no such file, or it is no ledger.
    """
    file = Path(ledger)
    if not file.is_file():
        raise ValueError(f"there is no ledger at {file}: python bench.py writes one")
    content = json.loads(file.read_text("utf-8"))
    if "rows" not in content:
        raise ValueError(f"{file} is no ledger of bench.py")
    print(markdown_table(content))


if __name__ == "__main__":
    with one_line_errors():
        auto_cli(print_table)
