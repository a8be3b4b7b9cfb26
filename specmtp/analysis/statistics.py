"""Spreads and intervals of measured numbers; everything resampled has a fixed seed."""

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


def acceptance_interval(traces: Sequence[Trace]) -> Interval | None:
    """α = Σ accepted / Σ examined over traces with a block bootstrap over rounds; None where nothing was examined."""
    blocks = []
    for trace in traces:
        for row in range(trace.active_RB.shape[1]):
            active_R = trace.active_RB[:, row]
            accepted_R = trace.num_accepted_RB[active_R, row]
            examined_R = torch.minimum(accepted_R + 1, trace.num_drafts_RB[active_R, row])
            pairs_R2 = torch.stack([accepted_R, examined_R], 1)
            blocks += [block.sum(0).tolist() for block in pairs_R2.split(BLOCK_ROUNDS)]
    accepted, examined = np.asarray(blocks, dtype=float).T
    if not examined.sum():
        return None
    value = float(accepted.sum() / examined.sum())
    if len(blocks) < 2:
        return Interval(value, None, None)
    index = _resample(len(blocks))
    return Interval(value, *_ends(accepted[index].sum(1) / np.maximum(examined[index].sum(1), 1)))


def _resample(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(n, size=(RESAMPLES, n))


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
