"""Bytes and floating point operations of a round, and the least time a machine can take for them.

Source of the model: Williams, Waterman, Patterson 2009 (doi 10.1145/1498765.1498785). Norms, rotations, softmaxes and
sampling are left out: they are small beside the products, and where they are not, that is what the figure shows.
"""

from dataclasses import dataclass

from specmtp.nn.config import GPTConfig


@dataclass(frozen=True)
class Work:
    """What one or more forwards ask of memory and of arithmetic."""

    bytes: float
    """Weights and cached keys and values, each read once a forward."""
    flops: float

    def __add__(self, other: "Work") -> "Work":
        return Work(self.bytes + other.bytes, self.flops + other.flops)

    def seconds(self, bandwidth: float, rate: float) -> float:
        """The floor: what takes longer, moving so many bytes a second or computing so many operations a second."""
        return max(self.bytes / bandwidth, self.flops / rate)


NOTHING = Work(0.0, 0.0)


def block_weights(config: GPTConfig) -> int:
    """Weights of the products of one block."""
    d, kv = config.d_model, config.num_kv_heads * config.head_dim
    return 2 * d * d + 2 * d * kv + 3 * d * config.ffn_dim


def forward_work(
    config: GPTConfig,
    tokens: int,
    batch: int,
    width: int,
    blocks: int | None = None,
    extra: int = 0,
    heads: int = 1,
    last_only: bool = False,
) -> Work:
    """One forward of B rows of T tokens with a cache of a full window.

    Args:
        config: of the network.
        tokens: of a row.
        batch: rows.
        width: bytes of a weight and of a cached number.
        blocks: transformer blocks, all of the network's unless told.
        extra: further weights of products (MTP's projection).
        heads: tokens of a row for which logits are computed.
        last_only: of all tokens but the last, the last block makes keys, values and queries alone.
    """
    blocks = config.num_layers if blocks is None else blocks
    body, head = blocks * block_weights(config) + extra, config.d_model * config.vocab_size
    cached = 2 * blocks * config.attention_window * config.num_kv_heads * config.head_dim
    attention = 4 * blocks * config.attention_window * config.d_model * tokens
    flops = batch * (2 * body * tokens + 2 * head * heads + attention)
    if last_only:
        d = config.d_model
        behind = 2 * (d * d + 3 * d * config.ffn_dim) + 4 * config.attention_window * d
        flops -= batch * (tokens - 1) * behind
    return Work(width * (body + head + batch * cached), float(flops))


def round_work(
    target: GPTConfig, gamma: int, batch: int, width: int, draft: GPTConfig | None = None, mtp_depth: int = 0
) -> Work:
    """A whole round: verification of gamma + 1 tokens, and the drafts before it, of a draft model or of MTP modules."""
    work = forward_work(target, gamma + 1, batch, width, heads=gamma + 1)
    if draft is not None:
        for i in range(gamma):
            work += forward_work(draft, 1 if i else 2, batch, width, last_only=True)
    if mtp_depth:
        depth = min(mtp_depth, gamma)
        for i in range(gamma):
            rows = gamma + depth if i < depth else 1
            last = i >= depth - 1
            work += forward_work(target, rows, batch, width, 1, 2 * target.d_model**2, last_only=last)
    return work
