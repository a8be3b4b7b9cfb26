"""What a round reads and writes.

Shapes: B rows, S slots of the token ring, T tokens.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from torch import Tensor

from specmtp.nn.cache import KVCache, positions


@dataclass(frozen=True)
class State:
    """The committed text of every row, and the caches that go with it.

    Invariant: position length-1 holds the pending token; the target's cache holds everything before it. All rollback
    follows from ``length``: caches keep no length of their own.
    """

    length_B: Tensor
    """Committed tokens of a row, the pending one included, int64."""
    token_BS: Tensor
    """Ring of the latest tokens: position n stands in slot n mod S."""
    cache: KVCache
    """The target's."""
    drafter: Any
    """The drafter's own state: caches, hidden states."""
    owner: int
    """The mark of the decoder that made it, whose gamma and batch its caches are built for."""

    def tokens(self, start_B: Tensor, num_tokens: int) -> Tensor:
        """Tokens at positions start..start+T-1, [B, T]."""
        return self.token_BS.gather(1, self._slots(start_B, num_tokens))

    def write(self, start_B: Tensor, ids_BT: Tensor) -> None:
        """Puts tokens at positions start.. into the ring."""
        self.token_BS.scatter_(1, self._slots(start_B, ids_BT.shape[1]), ids_BT)

    def advanced(self, count_B: Tensor) -> "State":
        """This state with count more tokens committed."""
        return replace(self, length_B=self.length_B + count_B)

    def _slots(self, start_B: Tensor, num_tokens: int) -> Tensor:
        return positions(start_B, num_tokens) % self.token_BS.shape[1]


def copied(value: Any) -> Any:
    """The same structure of dataclasses and lists, its tensors cloned."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, list):
        return [copied(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type) and tensors(value):
        return type(value)(**{f.name: copied(getattr(value, f.name)) for f in fields(value)})
    return value


def tensors(value: Any) -> list[Tensor]:
    """The tensors of a structure of dataclasses and lists, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list):
        return [tensor for item in value for tensor in tensors(item)]
    if is_dataclass(value) and not isinstance(value, type):
        return [tensor for f in fields(value) for tensor in tensors(getattr(value, f.name))]
    return []
