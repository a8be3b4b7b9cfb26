"""Which gamma pays: predicted from rates and costs that were measured in a short calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """What to do with a drafter."""

    gamma: int | None
    """Drafts a round that pay best; None: do not speculate."""
    speedups: dict[int, float]
    """Predicted speed-up over plain decoding of the same backend, by gamma."""


def tokens_a_round(rates_at: Sequence[float | None], gamma: int) -> float:
    """Expected tokens of a round with these chances to accept at position 0, 1, … given that all before it stayed.

    A rate that was never met counts as 0.

    >>> tokens_a_round([0.5, 0.5, None], 2), tokens_a_round([0.5, 0.5, None], 3)
    (1.75, 1.75)
    """
    tokens, reached = 1.0, 1.0
    for rate in rates_at[:gamma]:
        reached *= rate or 0.0
        tokens += reached
    return tokens


def plan(rates_at: Sequence[float | None], round_seconds: Mapping[int, float], plain_seconds: float) -> Plan:
    """The gamma of the highest predicted speed-up, or None where none is above 1.

    A round does all that a plain step does and more: one that was timed below a plain step was timed in noise, and
    counts as one.

    Args:
        rates_at: acceptance by position, up to the largest gamma.
        round_seconds: of a round, by gamma.
        plain_seconds: of a plain step.

    >>> plan([0.5, 0.5], {1: 1.2, 2: 1.75}, 1.0)
    Plan(gamma=1, speedups={1: 1.25, 2: 1.0})
    >>> plan([0.1], {1: 1.5}, 1.0).gamma is None
    True
    """
    cost = {gamma: max(seconds / plain_seconds, 1.0) for gamma, seconds in round_seconds.items()}
    speedups = {gamma: tokens_a_round(rates_at, gamma) / cost[gamma] for gamma in cost}
    best = max(speedups, key=lambda g: speedups[g])
    return Plan(best if speedups[best] > 1 else None, speedups)
