"""The vocabulary: one id a character, kept as plain data (the string of its symbols in id order)."""

import hashlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor


class Vocabulary:
    """Characters to ids and back; id i is the i-th character of ``symbols``.

    Raises:
        ValueError: a symbol stands twice, or there is none.
    """

    def __init__(self, symbols: str) -> None:
        if not symbols:
            raise ValueError("a vocabulary needs at least one symbol, got none")
        if len(set(symbols)) != len(symbols):
            twice = next(s for s in symbols if symbols.count(s) > 1)
            raise ValueError(f"every symbol of a vocabulary must be unique, {_name(twice)} stands twice")
        self.symbols = symbols
        points = _code_points(symbols)
        self._order = np.argsort(points)
        self._sorted = points[self._order]

    @classmethod
    def from_text(cls, text: str) -> "Vocabulary":
        """The vocabulary of a text: its distinct characters in code point order."""
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.symbols)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.symbols == other.symbols

    __hash__ = None  # type: ignore[assignment]

    @property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the symbols: equal vocabularies, equal digests."""
        return hashlib.sha256(self.symbols.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def encode(self, text: str, what: str = "text") -> Tensor:
        """The ids of a text, int64 [T].

        Raises:
            ValueError: a character is not in the vocabulary; ``what`` names the text in the message.
        """
        points = _code_points(text)
        place = np.minimum(np.searchsorted(self._sorted, points), len(self) - 1)
        unknown = np.flatnonzero(self._sorted[place] != points)
        if unknown.size:
            offset = int(unknown[0])
            raise ValueError(
                f"{what} has {_name(text[offset])} at offset {offset}, which is not among the model's "
                f"{len(self)} symbols {self.symbols!r}"
            )
        return torch.from_numpy(self._order[place].astype(np.int64))

    def decode(self, ids: Tensor | Iterable[int]) -> str:
        """The text of ids.

        Raises:
            ValueError: an id lies outside 0..len-1.
        """
        values = ids.tolist() if isinstance(ids, Tensor) else list(ids)
        for i in values:
            if not 0 <= i < len(self):
                raise ValueError(f"id {i} is outside the vocabulary of {len(self)} symbols (0..{len(self) - 1})")
        return "".join(self.symbols[i] for i in values)


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)


def _name(symbol: str) -> str:
    return f"{symbol!r} (U+{ord(symbol):04X})"
