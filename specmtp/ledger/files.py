"""Writing files that are always whole, and JSON that is strict."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def check_writable(file: Path) -> None:
    """Looks before long work whether a file can be written at its end.

    Raises:
        ValueError: a folder stands there, or the folder it belongs in cannot be made or written.
    """
    if file.exists() and not file.is_file():
        kind = "folder" if file.is_dir() else "device or pipe"
        raise ValueError(f"{file} is a {kind}, a file name is wanted")
    above = next(folder for folder in file.absolute().parents if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise ValueError(f"{file} cannot be written: {above} takes no new file ({error.strerror})") from error


def write_json(file: Path, value: Any) -> None:
    """Writes strict JSON (NaN and infinities are refused), as ``write_text`` does."""
    write_text(file, json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def write_text(file: Path, text: str) -> None:
    """Writes to a temporary name, then renames: the old file stays whole until the new one is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
