"""Whether the next two symbols come as the target says they come together: every pair, rounds and caches included.

One symbol from one context tells nothing of what the first does to the second. A pair that spans two rounds also tells
whether the caches were left as they should be.

Shapes: B rows, F first symbols with cells of their own, V symbols, C = F·V cells of pairs and one of all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specmtp.analysis.sampling_check import CHECK_BATCH, FALSE_ALARM, g_test_p, total_variation, tv_limit
from specmtp.data.seeding import mix
from specmtp.decoding.loop import AnyDecoder
from specmtp.decoding.noise import Noise
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.state import copied
from specmtp.nn.gpt import GPT

LEAST_EXPECTED = 5.0
"""First symbols expected less often share one cell, and so do rarer pairs in the test."""
ROWS = 256
"""Continuations encoded at once."""


@dataclass(frozen=True)
class PairLaw:
    """The probability of every pair of next two symbols after a context."""

    context: list[int]
    draws: int
    """Pairs that it is to be compared with."""
    cell_V: np.ndarray
    """Where the cells of a first symbol begin; -1 where it shares the last cell with all others."""
    p_C: np.ndarray
    tv_limit: float
    """What the total variation of as many direct draws stays under."""

    def cells(self, first_B: np.ndarray, second_B: np.ndarray) -> np.ndarray:
        """The cell of every pair."""
        begin_B = self.cell_V[first_B]
        return np.where(begin_B < 0, len(self.p_C) - 1, begin_B + second_B)


@dataclass(frozen=True)
class JointCheck:
    """Pairs that a decoder gave after a context, against the target's own law of pairs."""

    context: list[int]
    draws: int
    p_value: float
    """G test, the rarest cells pooled."""
    p_limit: float
    tv: float
    tv_limit: float

    @property
    def passed(self) -> bool:
        return self.p_value >= self.p_limit and self.tv <= self.tv_limit


@torch.inference_mode()
def pair_law(target: GPT, sampler: Sampler, context: Sequence[int], draws: int, seed: int) -> PairLaw:
    """P(a, b) = p(a) · p(b | a), from forwards of whole texts without any cache.

    Args:
        target: the model whose law it is.
        sampler: logits to the distributions sampled.
        context: committed ids, at most a window less one where the decoder crops.
        draws: pairs that will be drawn; decides which pairs have cells of their own.
        seed: of the noise floor's simulation.
    """
    ids_T = torch.tensor(list(context), device=target.lm_head.weight.device)
    p_V = sampler(target(ids_T[None])[0, -1]).double()
    first_F = (draws * p_V >= LEAST_EXPECTED).nonzero()[:, 0]
    texts_FT = torch.cat([ids_T.expand(len(first_F), -1), first_F[:, None]], 1)
    second_FV = torch.cat([sampler(target(rows)[:, -1]).double() for rows in texts_FT.split(ROWS)])
    p_FV = p_V[first_F, None] * second_FV / second_FV.sum(-1, keepdim=True)
    others = p_V.sum() - p_V[first_F].sum()
    p_C = torch.cat([p_FV.flatten(), others.clamp(min=0)[None]]).cpu().numpy()
    p_C /= p_C.sum()
    cell_V = np.full(len(p_V), -1)
    cell_V[first_F.cpu().numpy()] = np.arange(len(first_F)) * len(p_V)
    return PairLaw(list(context), draws, cell_V, p_C, tv_limit(p_C, draws, seed, simulations=200))


@torch.inference_mode()
def check_joint(decoder: AnyDecoder, law: PairLaw, seed: int, num_checks: int, batch: int | None = None) -> JointCheck:
    """Draws pairs, each by one round and, where that gives one symbol, another.

    Args:
        decoder: target with drafter, as timed.
        law: what the pairs are held against.
        seed: of the noise.
        num_checks: checks of this call, which share the false-alarm budget.
        batch: rows at once; as many as the decoder is built for, or takes, unless told.
    """
    device = decoder.target.lm_head.weight.device
    batch = batch or decoder.batch or min(CHECK_BATCH, law.draws)
    state, _ = decoder.prefill([law.context] * (decoder.batch or 1))
    state = state if decoder.batch or batch == 1 else decoder.expand(state, batch)
    active_B = torch.ones(batch, dtype=torch.bool, device=device)
    generator = torch.Generator(device=device).manual_seed(mix(seed))

    def noise() -> Noise:
        return Noise.split(torch.rand(batch, 2 * decoder.gamma + 1, generator=generator, device=device))

    count_C = np.zeros(len(law.p_C), dtype=np.int64)
    for done in range(0, law.draws, batch):
        # two rounds from a state write further than its ring lets it be played again: each pair has a copy of it
        after, one = decoder.play(copied(state), noise(), active_B)
        _, two = decoder.play(after, noise(), active_B)
        first_B, second_B = pairs(one.emitted_BN, one.count_B, two.emitted_BN)
        wanted = law.draws - done
        cells = law.cells(first_B[:wanted].cpu().numpy(), second_B[:wanted].cpu().numpy())
        count_C += np.bincount(cells, minlength=len(count_C))
    return JointCheck(
        context=law.context,
        draws=law.draws,
        p_value=g_test_p(count_C, law.p_C, LEAST_EXPECTED),
        p_limit=FALSE_ALARM / num_checks,
        tv=total_variation(count_C / law.draws, law.p_C),
        tv_limit=law.tv_limit,
    )


def pairs(one_BN: Tensor, count_B: Tensor, two_BN: Tensor) -> tuple[Tensor, Tensor]:
    """The first two symbols of every row, the second from the second round where the first gave but one."""
    second_B = one_BN[:, min(1, one_BN.shape[1] - 1)]
    return one_BN[:, 0], torch.where(count_B > 1, second_B, two_BN[:, 0])


@torch.inference_mode()
def uncertain_contexts(target: GPT, sampler: Sampler, contexts: Sequence[list[int]], number: int) -> list[list[int]]:
    """Of contexts of one length, those after which the target is least certain (highest entropy): there most shows."""
    ids_BT = torch.tensor(contexts, device=target.lm_head.weight.device)
    p_BV = torch.cat([sampler(target(rows)[:, -1]) for rows in ids_BT.split(ROWS)])
    order = torch.special.entr(p_BV).sum(-1).argsort(descending=True, stable=True)
    return [contexts[i] for i in order[:number].tolist()]
