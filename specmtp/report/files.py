"""Reading ledgers."""

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NEEDED = {"provenance": dict, "models": dict, "checks": dict, "rows": list, "sample": dict, "verdict": str}
"""What no ledger is without."""


def read_ledger(path: str) -> Json:
    """A ledger as plain data.

    Raises:
        ValueError: there is no such file, or it is no ledger.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no ledger at {file}: python bench.py writes one")
    try:
        content: Json = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is no ledger of bench.py: it is not JSON") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} is no ledger of bench.py")
    if lacks := [name for name in NEEDED if not content.get(name)]:
        raise ValueError(f"{file} is no ledger of bench.py: it has no {', '.join(lacks)}")
    wrong = [name for name, kind in NEEDED.items() if not isinstance(content[name], kind)]
    rows = [] if "rows" in wrong else content["rows"]
    if not all(isinstance(row, dict) and {"id", "method", "speedup"} <= set(row) for row in rows):
        wrong.append("rows")
    if wrong:
        raise ValueError(f"{file} is no ledger of bench.py: look at its {', '.join(wrong)}")
    return content
