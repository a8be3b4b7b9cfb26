"""Spreads and intervals of measured numbers; everything resampled has a fixed seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specmtp.decoding.trace import Trace

RESAMPLES = 2000
BLOCK_ROUNDS = 10
"""Rounds resampled together: acceptances of neighbouring rounds are not independent."""


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its 95 % interval; the ends are None where one sample says nothing of the spread."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Spread:
    """Samples in execution order, summed up; of a single one there is no spread (None)."""

    n: int
    median: float
    min: float
    low: float | None
    """First quartile."""
    high: float | None
    """Third quartile."""
    mean: float
    std: float | None
    """Sample standard deviation."""

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Spread":
        """
        >>> Spread.of([10.0, 10.4, 9.9, 10.1, 25.0]).median
        10.1
        """
        values = np.asarray(samples, dtype=float)
        many = len(values) > 1
        return cls(
            n=len(values),
            median=float(np.median(values)),
            min=float(values.min()),
            low=float(np.quantile(values, 0.25)) if many else None,
            high=float(np.quantile(values, 0.75)) if many else None,
            mean=float(values.mean()),
            std=float(values.std(ddof=1)) if many else None,
        )


def paired_ratio(baseline: Sequence[float], arm: Sequence[float]) -> Interval:
    """Baseline / arm, each sample of an arm against the baseline's of the same repeat and prompt.

    The value is the median of the paired ratios, the interval a bootstrap of that median over the pairs.
    """
    ratios = np.asarray(baseline, dtype=float) / np.asarray(arm, dtype=float)
    value = float(np.median(ratios))
    if len(ratios) < 2:
        return Interval(value, None, None)
    medians = np.median(ratios[_resample(len(ratios))], axis=1)
    return Interval(value, *_ends(medians))


def sign_test_p(baseline: Sequence[float], arm: Sequence[float]) -> float:
    """Two-sided p-value of an arm being faster as often as slower, pair by pair; equal pairs say nothing.

    >>> sign_test_p([2.0] * 6, [1.0] * 6)
    0.03125
    """
    signs = np.sign(np.asarray(baseline, dtype=float) - np.asarray(arm, dtype=float))
    n, fewer = int((signs != 0).sum()), int(min((signs > 0).sum(), (signs < 0).sum()))
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n)


def median_interval(samples: Sequence[float]) -> Interval:
    """The median with a bootstrap over the samples."""
    values = np.asarray(samples, dtype=float)
    value = float(np.median(values))
    if len(values) < 2:
        return Interval(value, None, None)
    return Interval(value, *_ends(np.median(values[_resample(len(values))], axis=1)))


@dataclass(frozen=True)
class RateIntervals:
    """Rates of traces, pooled, with a block bootstrap over rounds."""

    alpha: Interval | None
    """Σ accepted / Σ examined; None where nothing was examined."""
    tokens_per_target_forward: Interval
    """Σ emitted / Σ rounds."""


def rate_intervals(traces: Sequence[Trace]) -> RateIntervals:
    """The rates of traces with their intervals. Rounds are resampled in blocks, for neighbours are alike."""
    pieces = []
    for trace in traces:
        for row in range(trace.active_RB.shape[1]):
            active_R = trace.active_RB[:, row]
            accepted_R = trace.num_accepted_RB[active_R, row]
            examined_R = torch.minimum(accepted_R + 1, trace.num_drafts_RB[active_R, row])
            pieces.append(torch.stack([accepted_R, examined_R, torch.ones_like(accepted_R)], 1))
    blocks_N3 = np.concatenate([_block_sums(piece.double().numpy()) for piece in pieces])
    index = _resample(len(blocks_N3)) if len(blocks_N3) > 1 else None
    accepted, examined, rounds = blocks_N3.T
    return RateIntervals(
        _ratio_interval(accepted, examined, index) if examined.sum() else None,
        _ratio_interval(accepted + rounds, rounds, index),
    )


def mean_interval(values_RB: np.ndarray) -> Interval:
    """The mean of values by round and row, with a block bootstrap over the rounds of every row."""
    ones_RB = np.ones_like(values_RB, dtype=float)
    above, below = (_block_sums(rows_RB).ravel() for rows_RB in (values_RB, ones_RB))
    return _ratio_interval(above, below, _resample(len(above)) if len(above) > 1 else None)


def _block_sums(rows_RK: np.ndarray) -> np.ndarray:
    return np.add.reduceat(rows_RK, np.arange(0, len(rows_RK), BLOCK_ROUNDS), axis=0)


def _ratio_interval(above: np.ndarray, below: np.ndarray, index: np.ndarray | None) -> Interval:
    value = float(above.sum() / below.sum())
    if index is None:
        return Interval(value, None, None)
    return Interval(value, *_ends(above[index].sum(1) / np.maximum(below[index].sum(1), 1)))


def _resample(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(n, size=(RESAMPLES, n))


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
