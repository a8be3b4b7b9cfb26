"""Where tokens stand: geometry, built once a forward for all layers, and the ring cache of keys and values.

Shapes: B rows, T tokens of this forward, S slots of the ring, K key-value heads, R query heads a key-value head,
E head width.

The cache holds no length. Whoever decodes knows how many tokens are committed and says where a forward starts; a
rollback is a smaller start, and nothing is cleared: stale slots are overwritten before any mask can see them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.nn.config import GPTConfig

SLOT_MULTIPLE = 16
"""Rings are rounded up to a multiple of this; the slack buys longer prefill chunks."""


@dataclass(frozen=True)
class Geometry:
    """Positions of the tokens of one forward, and what each may see."""

    cos_BTE: Tensor
    sin_BTE: Tensor
    mask: Tensor | None
    """True where a query may look: [1, 1, T, T] without a cache; with one [B, 1, T·R, S], every query once for each of
    the R query heads of a key-value head; None is plain causal attention within the forward."""
    slot_BT: Tensor | None = None
    """Ring slots of the tokens; None without a cache."""

    def rows(self, first: int, num: int, total: int) -> "Geometry":
        """The geometry of some of its T = total tokens, for a forward of their own.

        Slots that later tokens will write are in their future.
        """
        assert self.mask is not None and self.slot_BT is not None
        part, per_row = slice(first, first + num), self.mask.shape[-2] // total
        return Geometry(
            self.cos_BTE[:, part],
            self.sin_BTE[:, part],
            self.mask[..., first * per_row : (first + num) * per_row, :],
            self.slot_BT[:, part],
        )


def rotary_angles(position_BT: Tensor, config: GPTConfig) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles in the half-split layout, each float32 [B, T, E].

    Angles are formed in float64: in float32 the angle at position 100,000 is off by more than 1e-3.
    Source: Su et al. 2021 (arXiv 2104.09864); layout of Hugging Face's LLaMA.
    """
    device = position_BT.device
    exact = torch.device("cpu") if device.type == "mps" else device  # MPS has no float64
    frequency_E = config.rope_base ** (
        -torch.arange(0, config.head_dim, 2, dtype=torch.float64, device=exact) / config.head_dim
    )
    angle_BTE = position_BT.to(exact)[..., None] * frequency_E
    angle_BTE = torch.cat([angle_BTE, angle_BTE], -1)
    return angle_BTE.cos().float().to(device), angle_BTE.sin().float().to(device)


def causal_geometry(num_tokens: int, config: GPTConfig, device: torch.device) -> Geometry:
    """The geometry of a forward without cache over positions 0..T-1; windowed where T exceeds the window."""
    position_T = torch.arange(num_tokens, device=device)
    cos_BTE, sin_BTE = rotary_angles(position_T[None], config)
    mask = None
    if num_tokens > config.attention_window:
        behind_TT = position_T[:, None] - position_T
        mask = ((behind_TT >= 0) & (behind_TT < config.attention_window))[None, None]
    return Geometry(cos_BTE, sin_BTE, mask)


def chained_geometry(
    num_tokens: int, first_tokens: int, step: int, config: GPTConfig, device: torch.device
) -> Geometry:
    """The geometry of an unrolled chain's forward: row r stands at position r + step.

    It sees rows 0..r of the chain's first forward, within the window, and of every forward since the one row r.
    """
    row_T = torch.arange(num_tokens, device=device)
    cos_BTE, sin_BTE = rotary_angles(row_T[None] + step, config)
    behind_TS = row_T[:, None] - torch.arange(first_tokens, device=device)
    first_TS = (behind_TS >= 0) & (behind_TS + step < config.attention_window)
    own_TS = torch.eye(num_tokens, dtype=torch.bool, device=device).repeat(1, step)
    return Geometry(cos_BTE, sin_BTE, torch.cat([first_TS, own_TS], 1)[None, None])


def positions(start_B: Tensor, num_tokens: int) -> Tensor:
    """Positions start..start+T-1 of every row, [B, T]; in a ring of S slots they stand at these modulo S."""
    return start_B[:, None] + torch.arange(num_tokens, device=start_B.device)


@dataclass(frozen=True)
class KVCache:
    """A ring of keys and values for each layer; position n of a row lives in slot n mod S."""

    config: GPTConfig
    keys: list[Tensor]
    values: list[Tensor]

    @classmethod
    def create(
        cls,
        config: GPTConfig,
        batch: int,
        num_slots: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        num_layers: int | None = None,
    ) -> "KVCache":
        """An empty cache of [B, K, S, E] a layer, for as many layers as the config has unless told.

        Raises:
            ValueError: the ring does not even hold the attention window.
        """
        if num_slots < config.attention_window:
            raise ValueError(
                f"a ring of {num_slots} slots is too small for attention_window {config.attention_window}: "
                f"at least window + gamma + 1 slots are wanted"
            )
        shape = (batch, config.num_kv_heads, num_slots, config.head_dim)
        layers = config.num_layers if num_layers is None else num_layers
        keys, values = ([torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)] for _ in "kv")
        return cls(config, keys, values)

    @property
    def num_slots(self) -> int:
        return self.keys[0].shape[2]

    @property
    def max_tokens(self) -> int:
        """The most tokens a forward may bring."""
        return max_forward_tokens(self.config, self.num_slots)

    def geometry(self, start_B: Tensor, num_tokens: int) -> Geometry:
        """The geometry of T tokens at positions start..start+T-1 of each row.

        A slot's position is derived from the newest position the forward writes; a query sees slots of positions
        0 ≤ n ≤ its own, not further back than the window.

        Raises:
            ValueError: more tokens than the ring can take at once.
        """
        if num_tokens > self.max_tokens:
            raise ValueError(
                f"a ring of {self.num_slots} slots with attention_window {self.config.attention_window} takes at most "
                f"{self.max_tokens} tokens a forward, got {num_tokens}"
            )
        position_BT = positions(start_B, num_tokens)
        newest_B1 = position_BT[:, -1:]
        slot_S = torch.arange(self.num_slots, device=start_B.device)
        slot_position_B1S = (newest_B1 - (newest_B1 - slot_S) % self.num_slots)[:, None]
        behind_BTS = position_BT[..., None] - slot_position_B1S
        mask_BTS = (behind_BTS >= 0) & (behind_BTS < self.config.attention_window) & (slot_position_B1S >= 0)
        queries_per_kv = self.config.num_heads // self.config.num_kv_heads
        mask = mask_BTS.repeat_interleave(queries_per_kv, 1)[:, None]
        cos_BTE, sin_BTE = rotary_angles(position_BT, self.config)
        return Geometry(cos_BTE, sin_BTE, mask, position_BT % self.num_slots)

    def layer(self, i: int) -> tuple[Tensor, Tensor]:
        """Keys and values of layer i, [B, K, S, E] each; forwards write into them."""
        return self.keys[i], self.values[i]

    def expand(self, batch: int) -> "KVCache":
        """A cache of ``batch`` rows, each a copy of this one's only row."""
        return KVCache(self.config, *([x.repeat(batch, 1, 1, 1) for x in side] for side in (self.keys, self.values)))


def max_forward_tokens(config: GPTConfig, num_slots: int) -> int:
    """The most tokens a forward may bring into a ring: with one more, a query's own window would be overwritten."""
    return num_slots - config.attention_window + 1


def ring_slots(config: GPTConfig, gamma: int, depth: int = 0) -> int:
    """Slots a decoder's ring needs: attention_window + gamma + 1 without MTP, window + 2·gamma + depth with it.

    An MTP forward is fed the last gamma + depth rows of the committed text, while stale slots of chained drafts may
    reach gamma - depth positions past it.
    """
    wanted = config.attention_window + (2 * gamma + depth if depth else gamma + 1)
    return -(-wanted // SLOT_MULTIPLE) * SLOT_MULTIPLE
