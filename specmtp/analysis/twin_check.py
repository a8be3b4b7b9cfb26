"""Proof that a graph drafts as its networks do: its rounds beside those of an eager decoder, from the same noise.

No check of the output can see this. With a drafter of other weights the output keeps the target's law; it only comes
at another speed, and the acceptance of the row is not its drafter's.

Shapes: B rows, G drafts (gamma).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.data.seeding import mix
from specmtp.decoding.loop import AnyDecoder, filled_batches
from specmtp.decoding.noise import Noise
from specmtp.decoding.round import Round
from specmtp.decoding.sampling import Sampler

DRAFTS_LIMIT = {torch.float32: 1e-3, torch.bfloat16: 0.2}
"""Largest difference of probabilities that counts as rounding, by the dtype of the weights."""
DIFFERING_AT_CUTS = 0.02
"""Share of drafts that may differ where distributions are cut."""


@dataclass(frozen=True)
class TwinCheck:
    """The drafts of a graph beside those of its eager twin."""

    drafts: int
    """Compared: those that both made after the same text and the same drafts."""
    differing: int
    """Of those, with other probabilities than within the limit; and rounds with another number of drafts."""
    max_abs_diff: float
    """Of the drafter's probabilities q."""
    limit: float
    cuts: bool
    """Whether top-k or top-p cuts the distributions: a rounding may then move a symbol over the cut."""

    @property
    def passed(self) -> bool:
        return self.differing <= (DIFFERING_AT_CUTS * self.drafts if self.cuts else 0)


@torch.inference_mode()
def check_twin(
    decoder: AnyDecoder, twin: AnyDecoder, contexts: Sequence[list[int]], seed: int, rounds: int = 8
) -> TwinCheck:
    """Plays rounds of both from the same contexts with the same noise, for as long as they emit the same tokens.

    At temperature 1, where a difference of logits is seen before it changes a choice.

    Args:
        decoder: of graphs.
        twin: an eager decoder of the same networks, gamma and accept rule.
        contexts: committed ids to begin from.
        seed: of the noise.
        rounds: from every context at most.
    """
    one, two = (d.with_sampler(Sampler(1.0, d.sampler.top_k, d.sampler.top_p)) for d in (decoder, twin))
    device, limit = decoder.target.lm_head.weight.device, DRAFTS_LIMIT[decoder.target.lm_head.weight.dtype]
    generator = torch.Generator(device=device).manual_seed(mix(seed))
    batch = decoder.batch or len(contexts)
    active_B = torch.ones(batch, dtype=torch.bool, device=device)
    drafts, differing, worst = 0, 0, 0.0
    for group in filled_batches(contexts, batch):
        state, other = one.prefill(group)[0], two.prefill(group)[0]
        together_B = active_B
        for _ in range(rounds):
            noise = Noise.split(torch.rand(batch, 2 * decoder.gamma + 1, generator=generator, device=device))
            (state, a), (other, b) = one.play(state, noise, active_B), two.play(other, noise, active_B)
            after_same_BG = _after_same(a, b) & together_B[:, None]
            difference_BG = (a.proposal.q_BGV - b.proposal.q_BGV).abs().amax(-1) * after_same_BG
            other_number_B = (a.proposal.num_drafts_B != b.proposal.num_drafts_B) & together_B
            worst = max(worst, float(difference_BG.max()))
            drafts += int(after_same_BG.sum())
            differing += int((difference_BG > limit).sum() + other_number_B.sum())
            together_B = together_B & _same_emitted(a, b) & ~other_number_B
            if not together_B.any():
                break
    cuts = (decoder.sampler.top_k, decoder.sampler.top_p) != (None, None)
    return TwinCheck(drafts, differing, worst, limit, cuts)


def _after_same(a: Round, b: Round) -> Tensor:
    """[B, G]: drafts that both made, after the same drafts."""
    same_BG = a.proposal.drafts_BG == b.proposal.drafts_BG
    before_BG = torch.ones_like(same_BG)
    before_BG[:, 1:] = same_BG[:, :-1].cummin(1).values
    place_G = torch.arange(same_BG.shape[1], device=same_BG.device)
    num_drafts_B = torch.minimum(a.proposal.num_drafts_B, b.proposal.num_drafts_B)
    return before_BG & (place_G < num_drafts_B[:, None])


def _same_emitted(a: Round, b: Round) -> Tensor:
    """[B]: rows that emitted the same tokens."""
    place_N = torch.arange(a.emitted_BN.shape[1], device=a.emitted_BN.device)
    same_BN = (a.emitted_BN == b.emitted_BN) | (place_N >= a.count_B[:, None])
    return (a.count_B == b.count_B) & same_BN.all(1)
