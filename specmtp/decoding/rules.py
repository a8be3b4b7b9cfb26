"""Accept rules beside the token-level one of ``accept.py``, and all of them by name.

Shapes: B rows, G drafts (gamma), N = G + 1 places, V symbols.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.decoding.accept import AcceptRule, Proposal, Verdict, accept, kept, of_drafts, residual_or_p, row_of
from specmtp.decoding.noise import Noise
from specmtp.decoding.sampling import sample


def block(p_BNV: Tensor, proposal: Proposal, noise: Noise) -> Verdict:
    """Block verification: keeps the longest beginning of the drafts that the block as a whole can afford.

    With P_0 = 1 and P_i = min(P_{i-1} · p(x_i) / q(x_i), 1), the first i drafts may stay with probability
    h_i = R_i / (R_i + 1 - P_i), R_i = Σ_x max(P_i · p(x) - q(x), 0) at the place behind them; h = P for all of them.
    What follows comes from max(P · p - q, 0), or from p behind all drafts. Lossless, and never fewer tokens on average
    than the token-level rule. Source: Sun et al. 2024 (arXiv 2403.10444), Algorithm 2.
    """
    q_BGV, num_drafts_B = proposal.q_BGV, proposal.num_drafts_B
    gamma = q_BGV.shape[1]
    p_draft_BG, q_draft_BG = of_drafts(p_BNV, proposal)
    ratio_BG = torch.where(q_draft_BG > 0, p_draft_BG / q_draft_BG, 1.0)
    afford_B = torch.ones_like(noise.emit_v_B)
    affords, num_accepted_B = [afford_B], torch.zeros_like(num_drafts_B)
    for i in range(1, gamma + 1):
        afford_B = (afford_B * ratio_BG[:, i - 1]).clamp(max=1)
        affords.append(afford_B)
        stays_B = afford_B
        if i < gamma:
            more_B = (afford_B[:, None] * p_BNV[:, i] - q_BGV[:, i]).clamp(min=0).sum(-1)
            below_B = more_B + 1 - afford_B
            stays_B = torch.where(below_B > 0, more_B / below_B, 1.0)  # 0/0: nothing is missing
            stays_B = torch.where(num_drafts_B == i, afford_B, stays_B)
        stays = (noise.accept_u_BG[:, i - 1] < stays_B) & (i <= num_drafts_B)
        num_accepted_B = torch.where(stays, i, num_accepted_B)
    p_BV = row_of(p_BNV, num_accepted_B)
    if gamma:
        q_BV = row_of(q_BGV, num_accepted_B.clamp(max=gamma - 1))
        afford_B1 = torch.stack(affords, 1).gather(1, num_accepted_B[:, None])
        p_BV = residual_or_p(afford_B1 * p_BV - q_BV, p_BV, num_accepted_B < num_drafts_B)
    beta_BG = torch.minimum(p_BNV[:, :gamma], q_BGV).sum(-1)
    return Verdict(num_accepted_B, sample(p_BV, noise.emit_v_B), p_draft_BG, q_draft_BG, beta_BG)


def exact_match(p_BNV: Tensor, proposal: Proposal, noise: Noise) -> Verdict:
    """Draws the target's own token at every place and keeps drafts as long as they are that token.

    What engines without probabilities of the draft do. Lossless: every token emitted is one that p gave. A draft is
    kept with chance Σ p·q, less than the Σ min(p, q) of the token-level rule wherever q is spread over several tokens.
    """
    gamma = proposal.drafts_BG.shape[1]
    p_draft_BG, q_draft_BG = of_drafts(p_BNV, proposal)
    own_BN = sample(p_BNV, torch.cat([noise.accept_u_BG, noise.emit_v_B[:, None]], 1))
    num_accepted_B = kept(own_BN[:, :gamma] == proposal.drafts_BG, proposal.num_drafts_B)
    place_B = torch.where(num_accepted_B < proposal.num_drafts_B, num_accepted_B, gamma)
    # behind all drafts that count, fresh noise draws from the row behind them
    bonus_B = sample(row_of(p_BNV, num_accepted_B), noise.emit_v_B)
    next_token_B = torch.where(place_B < gamma, own_BN.gather(1, place_B[:, None])[:, 0], bonus_B)
    beta_BG = (p_BNV[:, :gamma] * proposal.q_BGV).sum(-1)
    return Verdict(num_accepted_B, next_token_B, p_draft_BG, q_draft_BG, beta_BG)


TYPICAL_MOST, TYPICAL_SCALE = 0.09, 0.3
"""Medusa's thresholds."""


def typical(p_BNV: Tensor, proposal: Proposal, noise: Noise) -> Verdict:
    """Keeps drafts that the target finds typical: p(x) > min(0.09, 0.3 · exp(-H(p))). NOT lossless.

    More tokens a forward, from another law than the target's. Source: Cai et al. 2024 (Medusa, arXiv 2401.10774), §3.3.
    """
    gamma = proposal.drafts_BG.shape[1]
    p_BGV = p_BNV[:, :gamma]
    p_draft_BG, q_draft_BG = of_drafts(p_BNV, proposal)
    entropy_BG = torch.special.entr(p_BGV).sum(-1)
    least_BG = (TYPICAL_SCALE * (-entropy_BG).exp()).clamp(max=TYPICAL_MOST)
    num_accepted_B = kept(p_draft_BG > least_BG, proposal.num_drafts_B)
    next_token_B = sample(row_of(p_BNV, num_accepted_B), noise.emit_v_B)
    beta_BG = (proposal.q_BGV * (p_BGV > least_BG[..., None])).sum(-1)
    return Verdict(num_accepted_B, next_token_B, p_draft_BG, q_draft_BG, beta_BG)


@dataclass(frozen=True)
class Rule:
    """An accept rule and what it promises."""

    name: str
    title: str
    """As people read it."""
    accept: AcceptRule
    lossless: bool
    """Whether the text keeps the target's law."""
    by_place: bool
    """Whether a draft that is examined is accepted with probability β, whatever stands beside it."""
    least_gamma: int = 1
    """Drafts a round from which it differs from the usual rule."""


TOKEN = "token"
"""The usual rule."""
RULES = {
    rule.name: rule
    for rule in (
        Rule(TOKEN, "token by token", accept, lossless=True, by_place=True),
        Rule("block", "block verification", block, lossless=True, by_place=False, least_gamma=2),
        Rule("exact_match", "exact match", exact_match, lossless=True, by_place=True),
        Rule("typical", "typical (lossy)", typical, lossless=False, by_place=True),
    )
}
"""Every rule by its name."""
