"""Corpora: where a text comes from, and its fingerprint.

Every text is read as UTF-8 whatever the locale; a byte order mark is dropped and CRLF and CR become LF, so that the
same words give the same symbols on every machine.
"""

import hashlib
import os
import re
import sys
import sysconfig
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import torch

TINYSHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
WAYS_OUT = "set SPECMTP_DATA to a folder with tinyshakespeare.txt"
STDLIB_CHARACTERS = 2_000_000
CORPORA = ("tinyshakespeare", "stdlib")


@dataclass(frozen=True)
class Corpus:
    """A text with its name, its place and the SHA-256 of the text as UTF-8."""

    name: str
    text: str
    origin: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()


def load_corpus(name: str, path: str | None = None, download: bool = True) -> Corpus:
    """The corpus called ``name``, or the text file at ``path`` instead where one is given.

    Args:
        name: one of ``CORPORA``.
        path: a UTF-8 text file.
        download: whether Tiny Shakespeare may be fetched where it is not on this machine.

    Raises:
        ValueError: unknown name, unreadable file, or no copy of Tiny Shakespeare to be had.
    """
    if path is not None:
        text = read_text(Path(path))
        known = hashlib.sha256(text.encode("utf-8")).hexdigest() == TINYSHAKESPEARE_SHA256
        return Corpus("tinyshakespeare" if known else Path(path).stem, text, str(path))
    if name == "tinyshakespeare":
        return _tinyshakespeare(download)
    if name == "stdlib":
        return _stdlib()
    raise ValueError(f"unknown corpus {name!r}: choose one of {', '.join(CORPORA)}, or give --data.path FILE")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without byte order mark, newlines folded to LF.

    Raises:
        ValueError: the file is missing, a folder, unreadable or not UTF-8 (with the offset of the first bad byte).
    """
    if not path.exists():
        raise ValueError(f"text file {path} does not exist")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, a text file is wanted")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValueError(f"text file {path} cannot be read: {error.strerror}") from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text file {path} is not UTF-8: bad byte at offset {error.start}") from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _tinyshakespeare(download: bool) -> Corpus:
    """Tiny Shakespeare from $SPECMTP_DATA, else the cache, else downloaded once into the cache."""
    given = os.environ.get("SPECMTP_DATA")
    if given and (file := Path(given) / "tinyshakespeare.txt").exists():
        if file_sha256(file) != TINYSHAKESPEARE_SHA256:
            raise ValueError(f"{file} is not Tiny Shakespeare (its SHA-256 differs): replace it or unset SPECMTP_DATA")
        return Corpus("tinyshakespeare", read_text(file), str(file))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specmtp" / "tinyshakespeare.txt"
    if not cache.exists() or file_sha256(cache) != TINYSHAKESPEARE_SHA256:
        if not download:
            raise ValueError(f"Tiny Shakespeare is not on this machine: {WAYS_OUT}")
        _download(cache)
    return Corpus("tinyshakespeare", read_text(cache), str(cache))


def _download(file: Path) -> None:
    """Puts a checked copy at ``file``; nothing stands under that name until the hash is right."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # writes to a temporary name, compares the hash, then renames
        torch.hub.download_url_to_file(
            TINYSHAKESPEARE_URL, str(file), hash_prefix=TINYSHAKESPEARE_SHA256, progress=False
        )
    except (OSError, RuntimeError) as error:
        raise ValueError(
            f"Tiny Shakespeare is not on this machine and could not be downloaded ({error}): {WAYS_OUT}, give "
            "--data.path FILE, or use --data.corpus stdlib"
        ) from error


def file_sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes, hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _stdlib() -> Corpus:
    """The sources of this Python's standard library, without tests, as printable ASCII; the first 2 MB.

    Files come in the order of a hash of their path, so that the validation part at the end is no single package.
    """
    root = Path(sysconfig.get_path("stdlib"))
    left_out = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    files = [f for f in root.rglob("*.py") if not left_out.intersection(f.relative_to(root).parts)]
    files.sort(key=lambda f: hashlib.sha256(f.relative_to(root).as_posix().encode()).digest())
    parts: list[str] = []
    total = 0
    for file in files:
        if total >= STDLIB_CHARACTERS:
            break
        part = _ascii(file.read_text(encoding="utf-8", errors="replace"))
        parts.append(part)
        total += len(part)
    if not parts:
        raise ValueError(f"no Python sources under {root}: give --data.path FILE instead of the stdlib corpus")
    version = ".".join(map(str, sys.version_info[:3]))
    return Corpus("stdlib", "".join(parts)[:STDLIB_CHARACTERS], f"Python {version} standard library")


def _ascii(text: str) -> str:
    """A text folded to printable ASCII and newline: tabs to four spaces, accents dropped, the rest to '?'."""
    text = text.replace("\t", "    ")
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return re.sub(r"[^\n -~]", "?", text)
