"""Whether whole texts of an arm follow the law of plain decoding, by their bigrams: far past the prompt and the window.

Shapes: R rows (texts), T tokens a row, C cells of the bigram table, V symbols.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specmtp.analysis.sampling_check import TV_SIGMAS
from specmtp.data.seeding import mix
from specmtp.decoding.loop import AnyDecoder

NUM_ROWS = 200
"""Texts an arm. They are what is dealt: with few, the noise floor of dealt texts would hide a gross fault."""
MAX_CELLS = 1 << 16
"""Bigrams of more than 256 symbols are pooled into so many cells by a hash."""
MAX_BATCH_SYMBOLS = 1 << 20
"""Rows decoded at once times V: rounds keep distributions until their trace is made."""
HASH = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ over the golden ratio: the high bits of its multiples spread evenly (Knuth, TAOCP 3, 6.4)."""
ROUNDING = 1e-9
"""What summing in another order may do to a total variation."""


@dataclass(frozen=True)
class BigramCheck:
    """Texts of an arm against texts of plain decoding from the same prompt."""

    tokens: int
    """Of the arm."""
    tv: float
    """Total variation between the bigram frequencies of arm and yardstick."""
    tv_limit: float
    """What texts of one law stay under."""

    @property
    def passed(self) -> bool:
        return self.tv <= self.tv_limit


def check_bigrams(
    rows_of_yardstick: Sequence[Sequence[int]],
    rows_of_arm: Sequence[Sequence[int]],
    num_symbols: int,
    seed: int,
    deals: int = 200,
) -> BigramCheck:
    """The check of independent texts. If both laws are one, any deal of all texts to the two sides was as likely.

    So the noise floor is the total variation of random deals, and the limit its mean + 6 standard deviations. Tokens
    of one text may depend on each other as they like: a text is dealt whole.

    Args:
        rows_of_yardstick: texts of plain decoding.
        rows_of_arm: texts of the arm, from the same prompt and of the same length.
        num_symbols: V.
        seed: of the deals.
        deals: that the noise floor is estimated from.
    """
    counts_RC = count_bigrams([*rows_of_yardstick, *rows_of_arm], num_symbols)
    arm_R = np.arange(len(counts_RC)) >= len(rows_of_yardstick)
    generator = np.random.default_rng(mix(seed))
    tv_K = np.array([_total_variation(counts_RC, generator.permutation(arm_R)) for _ in range(deals)])
    return BigramCheck(
        tokens=sum(map(len, rows_of_arm)),
        tv=_total_variation(counts_RC, arm_R),
        tv_limit=float(tv_K.mean() + TV_SIGMAS * tv_K.std()) + ROUNDING,
    )


def count_bigrams(rows: Sequence[Sequence[int]], num_symbols: int) -> np.ndarray:
    """How often every bigram comes in every row, float64 [R, C]; cells that no row has are left out.

    >>> count_bigrams([[0, 1, 0, 1], [1, 1]], 2).tolist()  # 01, 10, 11
    [[2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    cells = [_cells(np.asarray(row, dtype=np.int64), num_symbols) for row in rows]
    met_C = np.unique(np.concatenate(cells))
    return np.stack([np.bincount(np.searchsorted(met_C, c), minlength=len(met_C)) for c in cells]).astype(float)


def _cells(row_T: np.ndarray, num_symbols: int) -> np.ndarray:
    """The cell of every bigram of a row, [T - 1]."""
    bigrams = row_T[:-1] * num_symbols + row_T[1:]
    if num_symbols**2 <= MAX_CELLS:
        return bigrams
    return ((bigrams.astype(np.uint64) * HASH) >> np.uint64(48)).astype(np.int64)  # 16 bits


def _total_variation(counts_RC: np.ndarray, side_R: np.ndarray) -> float:
    """Between the frequencies of the rows of one side and of the others."""
    one_C, other_C = side_R @ counts_RC, ~side_R @ counts_RC
    return float(np.abs(one_C / one_C.sum() - other_C / other_C.sum()).sum() / 2)


@torch.inference_mode()
def sample_rows(
    decoder: AnyDecoder, prompt: Sequence[int], num_tokens: int, row_tokens: int, seed: int
) -> list[list[int]]:
    """Independent texts of T = ``row_tokens`` tokens after one prompt, ``num_tokens`` together or a few more.

    A decoder that is built for a batch makes so many at once, every group of them from a seed of its own.
    """
    num_rows = -(-num_tokens // row_tokens)
    batch = decoder.batch or min(num_rows, max(MAX_BATCH_SYMBOLS // decoder.target.config.vocab_size, 1))
    rows: list[list[int]] = []
    while len(rows) < num_rows:
        rows += decoder.generate([list(prompt)] * batch, row_tokens, mix(seed, len(rows))).tokens
    return rows[:num_rows]


def tokens_a_row(num_tokens: int) -> int:
    """The length of a text, at least one bigram, so that there are ``NUM_ROWS``."""
    return max(num_tokens // NUM_ROWS, 2)
