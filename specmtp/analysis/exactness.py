"""Proof that the output was not changed: causality, greedy identity, and the law of the samples.

All checks run the decoder that is timed: drafter, caches, verification, accept rule.

Shapes: B rows, T tokens, V symbols.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specmtp.data.seeding import mix
from specmtp.decoding.loop import AnyDecoder
from specmtp.decoding.noise import Noise
from specmtp.decoding.trace import Counts, Trace
from specmtp.nn.gpt import GPT

CAUSAL_LIMIT = 1e-5
"""Largest difference of fp32 logits that counts as none."""
TIE_GAP = {torch.float32: 1e-5, torch.bfloat16: 0.125}
"""Top-two gap of the logits below which a greedy choice is a tie, by the dtype of the weights: in bf16 a logit near 10
moves by 0.06 from rounding alone, and other shapes round differently."""
FALSE_ALARM = 1e-4
"""Chance that all sampling checks of one call together raise a false alarm (Bonferroni)."""
CHECK_BATCH = 1024
TV_SIGMAS = 6
"""The limit of the total variation is the noise floor's mean plus so many of its standard deviations."""


@torch.inference_mode()
def causal_difference(target: GPT, ids_T: Tensor, later: int = 8) -> float:
    """Largest difference of the logits of all but the last ``later`` positions, fed alone or with those behind them."""
    whole_BTV = target(ids_T[None])
    alone_BTV = target(ids_T[None, :-later])
    return float((whole_BTV[:, :-later] - alone_BTV).abs().max())


@dataclass(frozen=True)
class Divergence:
    """Where greedy outputs part for the first time."""

    prompt: int
    position: int
    gap: float
    """Top-two gap of the target's fp32 logits there."""


@dataclass(frozen=True)
class GreedyCheck:
    """Greedy speculative text against greedy plain text."""

    prompts: int
    tokens: int
    identical: int
    """Prompts with the same text throughout."""
    first_divergence: Divergence | None
    tie_gap: float

    @property
    def passed(self) -> bool:
        """Identical, or parted at a tie."""
        return self.first_divergence is None or self.first_divergence.gap < self.tie_gap


@torch.inference_mode()
def compare_greedy(
    target: GPT, prompts: Sequence[list[int]], plain: Sequence[list[int]], arm: Sequence[list[int]]
) -> GreedyCheck:
    """Compares texts token by token; of the divergences, the one with the widest gap is reported."""
    divergences = []
    for i, (prompt, a, b) in enumerate(zip(prompts, plain, arm, strict=True)):
        if a != b:
            shared = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            text = torch.tensor([[*prompt, *a[:shared]]], device=target.lm_head.weight.device)
            top = target(text)[0, -1].float().topk(2).values
            divergences.append(Divergence(i, shared, float(top[0] - top[1])))
    worst = max(divergences, key=lambda d: d.gap, default=None)
    tie_gap = TIE_GAP[target.lm_head.weight.dtype]
    return GreedyCheck(len(prompts), len(plain[0]), len(prompts) - len(divergences), worst, tie_gap)


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
    """Chi-square, cells of fewer than 5 expected draws pooled."""
    p_values_later: list[float]
    """The same of the tokens at places 1..gamma, resampled and bonus tokens among them, each against the target's law
    given the tokens before it."""
    p_limit: float
    accepted: int
    """First drafts accepted."""
    beta: float | None
    """Σ min(p, q) of the first draft: the chance to accept it."""
    acceptance_matches_beta: bool
    """|Σ accepted - Σβ| ≤ 5·√Σβ(1-β) over all positions examined."""
    p: list[float]
    q: list[float] | None
    frequency: list[float]

    @property
    def passed(self) -> bool:
        p_value = min([self.p_value, *self.p_values_later])
        return self.tv <= self.tv_limit and p_value >= self.p_limit and self.acceptance_matches_beta


@torch.inference_mode()
def check_sampling(
    decoder: AnyDecoder,
    context: list[int],
    draws: int,
    seed: int,
    num_checks: int,
) -> SamplingCheck:
    """Tests the law of the tokens of many rounds, all played from one context and rolled back to it.

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
    """
    one, _ = decoder.prefill([context])
    p_V = _next_distribution(decoder, context)
    batch = min(CHECK_BATCH, draws)
    state = decoder.expand(one, batch)
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
            later_GV[1, place - 1] += played.p_BNV[came_B, place].double().sum(0).cpu()
        if done == 0 and decoder.target.lm_head.weight.dtype != torch.float32:
            p_V = _normalised(played.p_BNV[0, 0])
        if decoder.gamma and q_V is None:
            q_V = played.proposal.q_BGV[0, 0].double().cpu().numpy()
    counts.check()
    n = int(count_V.sum())
    frequency_V = count_V.numpy() / n
    return SamplingCheck(
        draws=n,
        tv=_total_variation(frequency_V, p_V),
        tv_limit=tv_limit(p_V, n, seed),
        tv_draft=None if q_V is None else _total_variation(q_V, p_V),
        p_value=chi_square_p(count_V.numpy(), p_V),
        p_values_later=[_law_p_value(observed, expected) for observed, expected in later_GV.numpy().swapaxes(0, 1)],
        p_limit=FALSE_ALARM / num_checks / (decoder.gamma + 1),
        accepted=counts.accepted_at[0] if decoder.gamma else 0,
        beta=None if q_V is None else float(np.minimum(p_V, q_V).sum()),
        acceptance_matches_beta=counts.acceptance_matches_beta,
        p=p_V.tolist(),
        q=None if q_V is None else q_V.tolist(),
        frequency=frequency_V.tolist(),
    )


def _next_distribution(decoder: AnyDecoder, context: list[int]) -> np.ndarray:
    """The sampled distribution after a context, float64 [V], from one forward without any cache."""
    ids_BT = torch.tensor([context], device=decoder.target.lm_head.weight.device)
    return _normalised(decoder.sampler(decoder.target(ids_BT)[0, -1]))


def _normalised(p_V: Tensor) -> np.ndarray:
    exact_V = p_V.double().cpu().numpy()
    return exact_V / exact_V.sum()


def tv_limit(p_V: np.ndarray, n: int, seed: int, simulations: int = 1000) -> float:
    """What the total variation between n direct samples of p and p stays under: mean + 6 standard deviations."""
    frequency_KV = np.random.default_rng(mix(seed, n)).multinomial(n, p_V, size=simulations) / n
    tv_K = np.abs(frequency_KV - p_V).sum(1) / 2
    return float(tv_K.mean() + TV_SIGMAS * tv_K.std())


def chi_square_p(count_V: np.ndarray, p_V: np.ndarray, least: float = 5.0) -> float:
    """The p-value of counts under p; cells of fewer than ``least`` expected counts are pooled into one.

    A count where p is 0 has p-value 0.
    """
    n = count_V.sum()
    expected_V = n * p_V
    if (count_V[expected_V == 0] > 0).any():
        return 0.0
    small_V = expected_V < least
    observed = np.append(count_V[~small_V], count_V[small_V].sum()).astype(float)
    expected = np.append(expected_V[~small_V], expected_V[small_V].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    if len(expected) < 2:
        return 1.0
    statistic = float(((observed - expected) ** 2 / expected).sum())
    half = torch.tensor([(len(expected) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def _law_p_value(observed_V: np.ndarray, expected_V: np.ndarray) -> float:
    total = expected_V.sum()
    return chi_square_p(observed_V, expected_V / total) if total else 1.0


def _total_variation(a_V: np.ndarray, b_V: np.ndarray) -> float:
    return float(np.abs(a_V - b_V).sum() / 2)
