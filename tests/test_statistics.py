"""Spreads and intervals: that they are what they say, and that they hold what they should as often as they say."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from conftest import TableGPT, small_target

from specmtp.analysis.statistics import Interval, Spread, median_interval, paired_ratio, rate_intervals
from specmtp.decoding.drafters import DraftModel, NoDrafter
from specmtp.decoding.loop import Decoder
from specmtp.decoding.trace import Trace
from specmtp.ledger.arms import Arm
from specmtp.ledger.measure import time_arms
from specmtp.ledger.precision import LEAST_REPEATS, Patience, precision_json, precision_sentence, speedup_over
from specmtp.ledger.rows import speedup_json
from specmtp.ledger.timing import Clock, WallClock

T = TypeVar("T")
GAMMA, ROUNDS, TRACES, TRIALS = 4, 300, 4, 1000


def synthetic(accepted_R: np.ndarray, gamma: int) -> Trace:
    """A trace of one row whose rounds accepted so many drafts."""
    rounds = len(accepted_R)
    none_RBG = torch.zeros(rounds, 1, gamma)
    return Trace(
        drafts_RBG=none_RBG.long(),
        num_drafts_RB=torch.full((rounds, 1), gamma),
        num_accepted_RB=torch.from_numpy(accepted_R)[:, None],
        emitted_RBN=torch.zeros(rounds, 1, gamma + 1, dtype=torch.long),
        active_RB=torch.ones(rounds, 1, dtype=torch.bool),
        p_draft_RBG=none_RBG,
        q_draft_RBG=none_RBG,
        beta_RBG=none_RBG,
    )


def accepted_of(rate_R: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Accepted drafts of rounds with a chance each that a draft stays."""
    stays_RG = rng.random((len(rate_R), GAMMA)) < rate_R[:, None]
    return stays_RG.cumprod(1).sum(1)


def independent(rng: np.random.Generator) -> np.ndarray:
    return np.full(ROUNDS, 0.7)


def clustered(rng: np.random.Generator) -> np.ndarray:
    """Easy and hard stretches of text, of five rounds on average."""
    hard = np.empty(ROUNDS, dtype=bool)
    hard[0], change = rng.random() < 0.5, rng.random(ROUNDS) < 0.2
    for i in range(1, ROUNDS):
        hard[i] = hard[i - 1] ^ change[i]
    return np.where(hard, 0.5, 0.9)


def true_rates(rates: list[float]) -> tuple[float, float]:
    """α and tokens a round of rounds whose chance is one of these, equally often."""
    accepted = np.mean([sum(r**i for i in range(1, GAMMA + 1)) for r in rates])
    examined = np.mean([sum(r**i for i in range(GAMMA)) for r in rates])
    return float(accepted / examined), float(1 + accepted)


@pytest.mark.parametrize("rates, kind", [([0.7], independent), ([0.5, 0.9], clustered)])
def test_intervals_hold_the_known_rate_in_95_of_100(
    rates: list[float], kind: Callable[[np.random.Generator], np.ndarray]
) -> None:
    rng = np.random.default_rng(0)
    alpha, tokens = true_rates(rates)

    def trials() -> Iterator[tuple[bool, bool]]:
        for _ in range(TRIALS):
            found = rate_intervals([synthetic(accepted_of(kind(rng), rng), GAMMA) for _ in range(TRACES)])
            assert found.alpha is not None
            yield holds(found.alpha, alpha), holds(found.tokens_per_target_forward, tokens)

    of_alpha, of_tokens = np.mean(list(trials()), axis=0)
    assert 0.92 <= of_alpha <= 0.98 and 0.92 <= of_tokens <= 0.98


def holds(interval: Interval, value: float) -> bool:
    assert interval.low is not None and interval.high is not None
    return interval.low <= value <= interval.high


def test_spread() -> None:
    s = Spread.of([10.0, 10.4, 9.9, 10.1, 25.0])
    assert (s.n, s.median, s.min, s.low, s.high) == (5, 10.1, 9.9, 10.0, 10.4)
    assert s.mean == pytest.approx(13.08) and s.std == pytest.approx(6.666, abs=1e-3)
    one = Spread.of([3.0])
    assert (one.median, one.low, one.high, one.std) == (3.0, None, None, None)


def test_speedups_are_paired() -> None:
    """A machine that slows down four-fold half-way moves neither the ratio nor its interval."""
    base = [1.0, 1.01, 0.99, 4.0, 4.02, 3.98]
    found = paired_ratio(base, [b / 1.5 for b in base])
    assert (found.value, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))
    single = paired_ratio([1.0], [0.5])
    assert single == Interval(2.0, None, None)
    assert speedup_json(single, None)["verdict"] is None
    noisy = paired_ratio([1.0, 1.2, 0.9, 1.1, 1.0], [1.1, 1.0, 1.0, 0.9, 1.05])
    assert speedup_json(noisy, 0.5)["verdict"] == "same"


def test_acceptance_interval_covers_the_known_rate() -> None:
    p, q = [[0.1, 0.2, 0.3, 0.4]] * 4, [[0.4, 0.3, 0.2, 0.1]] * 4
    decoder = Decoder(TableGPT(p), DraftModel(TableGPT(q), 3))  # type: ignore[arg-type]
    with torch.inference_mode():
        trace = decoder.run_rounds(decoder.prefill([[0, 0]] * 200)[0], 200, seed=0)
    covered = 0
    for row in range(200):
        alone = Trace(**{name: value[:, row : row + 1] for name, value in vars(trace).items()})
        interval = rate_intervals([alone]).alpha
        assert interval is not None and interval.low is not None and interval.high is not None
        covered += interval.low <= 0.6 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99
    plain = Decoder(small_target().gpt, NoDrafter(13))
    with torch.inference_mode():
        found = rate_intervals([plain.run_rounds(plain.prefill([[1]])[0], 50, 0)])
    assert found.alpha is None and found.tokens_per_target_forward == Interval(1.0, 1.0, 1.0)


def test_the_median_has_an_interval() -> None:
    found = median_interval([1.0, 2.0, 3.0, 4.0, 100.0])
    assert found.value == 3.0 and found.low == 1.0 and found.high == 100.0
    assert median_interval([2.0]) == Interval(2.0, None, None)


PLAIN, AGAIN = Arm("plain", 0), Arm("again", 0)
NOBODY: list[str] = []


def a_against_a(clock: Clock, tokens: int, seed: int, repeats: int | None = 7, **kwargs: Any) -> Interval:
    """Plain decoding against itself, through all that times arms."""
    decoder = Decoder(small_target().gpt, NoDrafter(13))
    measured = time_arms(
        {PLAIN: decoder, AGAIN: decoder}, [[1, 2], [3]], tokens, repeats, seed, clock, NOBODY.append, **kwargs
    )
    return speedup_over(measured, AGAIN, PLAIN)[0]


class NoisyClock:
    """A simulated clock: 1 s a generation, with log-normal noise, slow spells and a drift."""

    name = "simulated"

    def __init__(self, seed: int, sigma: float = 0.05) -> None:
        self._rng, self._sigma, self._reading = np.random.default_rng(seed), sigma, 0

    def time(self, call: Callable[[], T]) -> tuple[T, float]:
        self._reading += 1
        spell = 2.0 if self._rng.random() < 0.1 else 1.0
        noise = float(np.exp(self._sigma * self._rng.standard_normal()))
        return call(), spell * noise * (1 + 0.01 * self._reading)


def test_a_against_a_holds_1_on_a_simulated_clock() -> None:
    found = [a_against_a(NoisyClock(seed), 2, seed) for seed in range(20)]
    assert sum(holds(interval, 1.0) for interval in found) >= 17


@pytest.mark.slow
def test_a_against_a_holds_1_on_the_clock() -> None:
    found = [a_against_a(WallClock(), 150, seed) for seed in range(20)]
    assert sum(holds(interval, 1.0) for interval in found) >= 17


def test_repeats_go_on_until_it_is_enough() -> None:
    rounds: list[int] = []

    def enough(measured: dict) -> bool:
        rounds.append(len(measured[PLAIN].samples))
        return Patience(1e9).enough(measured)

    a_against_a(NoisyClock(0, sigma=0.0005), 2, 0, repeats=None, enough=enough)
    assert rounds[:LEAST_REPEATS] == [2 * n for n in range(1, LEAST_REPEATS + 1)] and len(rounds) < 100


def test_repeats_end_when_the_time_is_spent_and_say_so() -> None:
    decoder, patience = Decoder(small_target().gpt, NoDrafter(13)), Patience(0.0)
    measured = time_arms(
        {PLAIN: decoder, AGAIN: decoder}, [[1]], 2, None, 0, NoisyClock(0), NOBODY.append, enough=patience.enough
    )
    assert len(measured[PLAIN].samples) == 1
    assert precision_json(measured, True) == {"auto": True, "wanted": 0.03, "reached": None, "widest_row": None}
    told = precision_sentence({"reached": 0.051, "widest_row": "draft_g1"}, 4)
    assert "± 5.1 % (draft_g1)" in told and "not reached" in told
    assert "not reached" not in precision_sentence({"reached": 0.02, "widest_row": "draft_g1"}, 4)
