"""Windows of a token sequence: random ones for training, consecutive ones for validation.

Shapes: N tokens of the text, B windows, W = block + 1 tokens a window (T inputs and the token after the last).
"""

import torch
from torch import Tensor

from specmtp.data.seeding import mix

VALIDATION_BLOCK = 64
"""Characters a validation window, whatever block the model trains with: longer windows alone lower the loss."""
PAD = -100
"""Fills the last validation window; a padded target has no loss term (cross_entropy's default ignore_index)."""


def num_starts(num_tokens: int, block_size: int, what: str = "text") -> int:
    """The number of windows of block_size + 1 tokens that fit into num_tokens.

    Raises:
        ValueError: not one fits.

    >>> num_starts(9, 8), num_starts(10, 8)
    (1, 2)
    """
    if num_tokens < block_size + 1:
        raise ValueError(
            f"the {what} is too short for block_size {block_size}: need at least {block_size + 1} characters, "
            f"got {num_tokens}"
        )
    return num_tokens - block_size


def training_windows(tokens_N: Tensor, block_size: int, batch_size: int, seed: int, step: int) -> Tensor:
    """The global training batch of an optimiser step, [B, W]: windows at random places, a function of (seed, step).

    Raises:
        ValueError: the text is shorter than one window.
    """
    starts = num_starts(len(tokens_N), block_size, "training text")
    generator = torch.Generator().manual_seed(mix(seed, step))
    start_B = torch.randint(starts, (batch_size,), generator=generator)
    return tokens_N[start_B[:, None] + torch.arange(block_size + 1)]


def validation_windows(tokens_N: Tensor, block_size: int) -> Tensor:
    """The whole text as consecutive windows, [B, W]: each starts afresh, every token after the first is a target once.

    Four-token example with block_size 2 on ids 5 6 7 8: rows (5, 6, 7) and (7, 8, PAD).

    Raises:
        ValueError: the text is shorter than one window.
    """
    num_starts(len(tokens_N), block_size, "validation text")
    num_rows = -(-(len(tokens_N) - 1) // block_size)
    padding = torch.full((num_rows * block_size + 1 - len(tokens_N),), PAD)
    return torch.cat([tokens_N, padding]).unfold(0, block_size + 1, block_size)
