"""Reading and writing JSON that is always whole and strict."""

import json
import os
from pathlib import Path
from typing import Any


def write_json(file: Path, value: Any) -> None:
    """Writes strict JSON (NaN and infinities are refused) to a temporary name, then renames.

    The old file stays whole until the new one is.
    """
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
