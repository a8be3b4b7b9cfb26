"""Proof that samples follow the target's law, played by the decoder that is timed: drafter, caches, accept rule.

Shapes: B rows, G drafts (gamma), N = G + 1 places, V symbols.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specmtp.data.seeding import mix
from specmtp.decoding.loop import AnyDecoder, filled_batches
from specmtp.decoding.noise import Noise
from specmtp.decoding.round import Round
from specmtp.decoding.trace import Counts, Trace

FALSE_ALARM = 1e-4
"""Chance that all sampling checks of one call together raise a false alarm (Bonferroni)."""
CHECK_BATCH = 1024
TV_SIGMAS = 6
"""The limit of the total variation is the noise floor's mean plus so many of its standard deviations."""


@dataclass(frozen=True)
class SamplingCheck:
    """The tokens of many rounds from one context, against the target's own distributions."""

    draws: int
    tv: float
    """Total variation between the samples and p."""
    tv_limit: float
    """What as many direct samples of p stay under."""
    tv_draft: float | None
    """Total variation between the drafter's q and p."""
    p_value: float
    """G test, the rarest cells pooled."""
    p_values_later: list[float]
    """The same of the tokens at places 1..gamma, resampled and bonus tokens among them, each against the target's law
    given the tokens before it."""
    p_value_preferred: float | None
    """Of tokens the drafter prefers to the target (q > p), over many contexts: do they come as often as p says? A fault
    of the accept rule shifts mass between q and p, so this sees it where one context may not."""
    contexts: int
    """Contexts of that test; 0 where it was not made."""
    p_limit: float
    accepted: int
    """First drafts accepted."""
    beta: float | None
    """Σ min(p, q) of the first draft: the chance to accept it."""
    acceptance_matches_beta: bool | None
    """|Σ accepted - Σβ| ≤ 5·√Σβ(1-β) over all positions examined; None where the accept rule does not work so."""
    p: list[float]
    q: list[float] | None
    frequency: list[float]

    @property
    def passed(self) -> bool:
        p_values = [self.p_value, *self.p_values_later]
        if self.p_value_preferred is not None:
            p_values.append(self.p_value_preferred)
        return self.tv <= self.tv_limit and min(p_values) >= self.p_limit and self.acceptance_matches_beta is not False


@torch.inference_mode()
def check_sampling(
    decoder: AnyDecoder,
    context: list[int],
    draws: int,
    seed: int,
    num_checks: int,
    others: Sequence[list[int]] = (),
    by_place: bool = True,
) -> SamplingCheck:
    """Tests the law of the tokens of many rounds, all played from one context and rolled back to it; then from others.

    Place 0 is compared with the distribution after the context, in fp32 from a forward without any cache, in lower
    precision (where other shapes round differently) from the round's own. A token at a later place has, given those
    before it, the law of its own row; observed counts are compared with the sum of those laws over the rounds that
    came so far. (Whether they came so far depends on earlier places alone. A sum of different laws varies less than
    draws of their mean, so the test errs on the safe side.)

    Args:
        decoder: target with drafter, as timed.
        context: committed ids; the round draws what follows.
        draws: rounds at least.
        seed: of the noise.
        num_checks: sampling checks of this call, which share the false-alarm budget.
        others: more contexts, from which a quarter of the rounds is played once more.
        by_place: whether the accept rule accepts a draft with probability β, whatever stands beside it.
    """
    one, _ = decoder.prefill([context] * (decoder.batch or 1))
    p_V = _next_distribution(decoder, context)
    batch = decoder.batch or min(CHECK_BATCH, draws)
    state = one if decoder.batch else decoder.expand(one, batch)
    device = decoder.target.lm_head.weight.device
    active_B = torch.ones(batch, dtype=torch.bool, device=device)
    generator = torch.Generator(device=device).manual_seed(mix(seed))
    count_V = torch.zeros(len(p_V), dtype=torch.long)
    counts, q_V = Counts.empty(decoder.gamma), None
    later_GV = torch.zeros(2, decoder.gamma, len(p_V), dtype=torch.float64)  # observed, expected
    for done in range(0, draws, batch):
        uniform = torch.rand(batch, 2 * decoder.gamma + 1, generator=generator, device=device)
        _, played = decoder.play(state, Noise.split(uniform), active_B)
        count_V += torch.bincount(played.emitted_BN[:, 0].cpu(), minlength=len(p_V))
        counts += Trace.of([played]).counts()
        for place in range(1, decoder.gamma + 1):
            came_B = played.count_B > place
            tokens = played.emitted_BN[came_B, place].cpu()
            later_GV[0, place - 1] += torch.bincount(tokens, minlength=len(p_V))
            later_GV[1, place - 1] += played.p_BNV[came_B, place].cpu().double().sum(0)
        if done == 0 and decoder.target.lm_head.weight.dtype != torch.float32:
            p_V = _normalised(played.p_BNV[0, 0])
        if decoder.gamma and q_V is None:
            q_V = played.proposal.q_BGV[0, 0].cpu().double().numpy()
    counts.check()
    preferred = preferred_p_value(decoder, others, draws // 4, seed) if others and decoder.gamma else None
    n = int(count_V.sum())
    frequency_V = count_V.numpy() / n
    return SamplingCheck(
        draws=n,
        tv=total_variation(frequency_V, p_V),
        tv_limit=tv_limit(p_V, n, seed),
        tv_draft=None if q_V is None else total_variation(q_V, p_V),
        p_value=g_test_p(count_V.numpy(), p_V),
        p_values_later=[_law_p_value(observed, expected) for observed, expected in later_GV.numpy().swapaxes(0, 1)],
        p_value_preferred=preferred,
        contexts=0 if preferred is None else len(others),
        p_limit=FALSE_ALARM / num_checks / (decoder.gamma + 2),
        accepted=counts.accepted_at[0] if decoder.gamma else 0,
        beta=None if q_V is None else float(np.minimum(p_V, q_V).sum()),
        acceptance_matches_beta=counts.acceptance_matches_beta if by_place else None,
        p=p_V.tolist(),
        q=None if q_V is None else q_V.tolist(),
        frequency=frequency_V.tolist(),
    )


def preferred_p_value(decoder: AnyDecoder, contexts: Sequence[list[int]], draws: int, seed: int) -> float:
    """Two-sided p-value of the number of emitted tokens x with q(x) > p(x), over rounds from many contexts.

    Given the tokens before it, the token at a place that a round reaches has the law of its own row of p, so the number
    of such tokens has mean ΣP and variance ΣP(1-P), P being p's mass of them.
    """
    device = decoder.target.lm_head.weight.device
    batch = decoder.batch or len(contexts)
    active_B = torch.ones(batch, dtype=torch.bool, device=device)
    generator = torch.Generator(device=device).manual_seed(mix(seed, len(contexts)))
    excess, variance, places = 0.0, 0.0, 0
    for group in filled_batches(contexts, batch):
        state, _ = decoder.prefill(group)
        for _ in range(-(-draws // len(contexts))):
            uniform = torch.rand(batch, 2 * decoder.gamma + 1, generator=generator, device=device)
            _, played = decoder.play(state, Noise.split(uniform), active_B)
            hits_E, mass_E = _preferred(played)
            excess += float((hits_E - mass_E).sum())
            variance += float((mass_E * (1 - mass_E)).sum())
            places += len(mass_E)
    excess = max(abs(excess) - 1e-6 * places, 0.0)  # what rounding of float32 sums may do
    return math.erfc(excess / math.sqrt(2 * variance)) if variance > 0 else float(excess == 0)


def _preferred(played: Round) -> tuple[Tensor, Tensor]:
    """Of every drafted place E that a round reached: whether its token has q > p, and p's mass of such tokens."""
    q_BGV = played.proposal.q_BGV
    gamma = q_BGV.shape[1]
    p_BGV = played.p_BNV[:, :gamma]
    preferred_BGV = q_BGV > p_BGV
    hits_BG = preferred_BGV.gather(-1, played.emitted_BN[:, :gamma, None])[..., 0]
    mass_BG = (p_BGV * preferred_BGV).sum(-1)
    place_G = torch.arange(gamma, device=p_BGV.device)
    came_BG = (place_G < played.count_B[:, None]) & (place_G < played.proposal.num_drafts_B[:, None])
    return hits_BG[came_BG].cpu().double(), mass_BG[came_BG].cpu().double().clamp(max=1)


def _next_distribution(decoder: AnyDecoder, context: list[int]) -> np.ndarray:
    """The sampled distribution after a context, float64 [V], from one forward without any cache."""
    ids_BT = torch.tensor([context], device=decoder.target.lm_head.weight.device)
    return _normalised(decoder.sampler(decoder.target(ids_BT)[0, -1]))


def _normalised(p_V: Tensor) -> np.ndarray:
    exact_V = p_V.cpu().double().numpy()
    return exact_V / exact_V.sum()


def tv_limit(p_V: np.ndarray, n: int, seed: int, simulations: int = 1000) -> float:
    """What the total variation between n direct samples of p and p stays under: mean + 6 standard deviations."""
    frequency_KV = np.random.default_rng(mix(seed, n)).multinomial(n, p_V, size=simulations) / n
    tv_K = np.abs(frequency_KV - p_V).sum(1) / 2
    return float(tv_K.mean() + TV_SIGMAS * tv_K.std())


def g_test_p(count_V: np.ndarray, p_V: np.ndarray, least: float = 5.0) -> float:
    """The p-value of counts under p by the likelihood-ratio (G) test; a count where p is 0 has p-value 0.

    The rarest cells are pooled into one, all that expect fewer than ``least`` counts and as many more as it takes for
    the pool to expect so many. Limits here lie far out, where Pearson's chi-square is wrong by a factor of ten or more
    for such cells; G stays within a factor of five.
    """
    expected_V = count_V.sum() * p_V
    if (count_V[expected_V == 0] > 0).any():
        return 0.0
    order = np.argsort(expected_V, kind="stable")
    observed, expected = count_V[order].astype(float), expected_V[order]
    pooled = int((expected < least).sum())
    if pooled:
        pooled = max(pooled, int(np.searchsorted(expected.cumsum(), least)) + 1)
    observed, expected = (np.append(n[pooled:], n[:pooled].sum()) for n in (observed, expected))
    observed, expected = observed[expected > 0], expected[expected > 0]
    if len(expected) < 2:
        return 1.0
    met = observed > 0
    statistic = 2 * float((observed[met] * np.log(observed[met] / expected[met])).sum())
    half = torch.tensor([(len(expected) - 1) / 2, max(statistic, 0.0) / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def _law_p_value(observed_V: np.ndarray, expected_V: np.ndarray) -> float:
    total = expected_V.sum()
    return g_test_p(observed_V, expected_V / total) if total else 1.0


def total_variation(a_V: np.ndarray, b_V: np.ndarray) -> float:
    """Half the sum of absolute differences of two distributions."""
    return float(np.abs(a_V - b_V).sum() / 2)
