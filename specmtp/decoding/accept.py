"""The accept rule of speculative sampling: which drafts stay, and the token that follows them.

Source: Leviathan et al. 2023 (arXiv 2211.17192), Algorithm 1; Chen et al. 2023 (arXiv 2302.01318) with p and q
swapped. The emitted tokens are distributed exactly as p.

Shapes: B rows, G drafts (gamma), V symbols.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.decoding.noise import Noise
from specmtp.decoding.sampling import sample


@dataclass(frozen=True)
class Proposal:
    """What a drafter proposes for one round."""

    drafts_BG: Tensor
    """Token ids, int64."""
    q_BGV: Tensor
    """The distribution each draft was sampled from, float32."""
    num_drafts_B: Tensor
    """Drafts of a row that count, int64; those at or past it are not examined."""


@dataclass(frozen=True)
class Verdict:
    """What the target made of a proposal."""

    num_accepted_B: Tensor
    next_token_B: Tensor
    """Resampled after a rejection, else drawn from p (bonus)."""
    p_draft_BG: Tensor
    """p of each draft, float32."""
    q_draft_BG: Tensor
    """q of each draft, float32."""
    beta_BG: Tensor
    """The chance that a draft at this place is accepted, float32: Σ min(p, q) token by token; see other rules."""


AcceptRule = Callable[[Tensor, Proposal, Noise], Verdict]
"""The signature of every accept rule."""


def accept(p_BNV: Tensor, proposal: Proposal, noise: Noise) -> Verdict:
    """Accepts draft x iff u·q(x) < p(x), up to the first rejection.

    Then one more token: from max(p - q, 0) after a rejection (its own sum is the normaliser; where rounding leaves
    nothing of it, p), from p itself where no draft was rejected.

    Args:
        p_BNV: the target's distribution at the N = G + 1 places, float32.
        proposal: the drafts and their distributions.
        noise: independent uniforms of this round.
    """
    q_BGV, num_drafts_B = proposal.q_BGV, proposal.num_drafts_B
    gamma = q_BGV.shape[1]
    p_draft_BG, q_draft_BG = of_drafts(p_BNV, proposal)
    num_accepted_B = kept(noise.accept_u_BG * q_draft_BG < p_draft_BG, num_drafts_B)

    p_BV = row_of(p_BNV, num_accepted_B)
    if gamma:
        q_BV = row_of(q_BGV, num_accepted_B.clamp(max=gamma - 1))
        p_BV = residual_or_p(p_BV - q_BV, p_BV, num_accepted_B < num_drafts_B)
    return Verdict(
        num_accepted_B,
        sample(p_BV, noise.emit_v_B),
        p_draft_BG,
        q_draft_BG,
        torch.minimum(p_BNV[:, :gamma], q_BGV).sum(-1),
    )


def of_drafts(p_BNV: Tensor, proposal: Proposal) -> tuple[Tensor, Tensor]:
    """Probabilities p and q of every draft, [B, G] each."""
    index_BG1 = proposal.drafts_BG[..., None]
    p_BGV = p_BNV[:, : index_BG1.shape[1]]
    return p_BGV.gather(-1, index_BG1)[..., 0], proposal.q_BGV.gather(-1, index_BG1)[..., 0]


def kept(stays_BG: Tensor, num_drafts_B: Tensor) -> Tensor:
    """Drafts up to the first that does not stay, or that does not count."""
    gamma = stays_BG.shape[1]
    if gamma == 0:
        return torch.zeros_like(num_drafts_B)
    place_G = torch.arange(gamma, device=stays_BG.device)
    stays_BG = stays_BG & (place_G < num_drafts_B[:, None])
    return torch.where(stays_BG, gamma, place_G).amin(1)


def residual_or_p(difference_BV: Tensor, p_BV: Tensor, rejected_B: Tensor) -> Tensor:
    """What the next token is drawn from: after a rejection the positive part, if rounding leaves any; else p."""
    residual_BV = difference_BV.clamp(min=0)
    return torch.where(rejected_B[:, None] & (residual_BV.sum(-1, keepdim=True) > 0), residual_BV, p_BV)


def row_of(x_BNV: Tensor, index_B: Tensor) -> Tensor:
    """x[b, index[b]] of every row, [B, V]."""
    return x_BNV.gather(1, index_B[:, None, None].expand(-1, 1, x_BNV.shape[-1]))[:, 0]
