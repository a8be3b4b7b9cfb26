"""The round: draft, verify in one target forward, accept, commit. (state, noise) → (state, what happened).

Fixed shapes, no data-dependent control flow, no host in between; rows may accept different counts.

Shapes: B rows, G drafts (gamma), N = G + 1 places, V symbols.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specmtp.decoding.accept import AcceptRule, Proposal, Verdict
from specmtp.decoding.drafters import Drafter
from specmtp.decoding.noise import Noise
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.state import State
from specmtp.nn.gpt import GPT


@dataclass(frozen=True)
class Round:
    """What happened in a round; rows that were not active committed nothing."""

    proposal: Proposal
    verdict: Verdict
    emitted_BN: Tensor
    """Accepted drafts, then the target's own token; legal ids past it."""
    count_B: Tensor
    """Tokens emitted: num_accepted + 1, or 0 where the row was not active."""
    p_BNV: Tensor
    """The target's distribution at every place, given the drafts before it."""


def play_round(
    target: GPT,
    drafter: Drafter,
    sampler: Sampler,
    accept_rule: AcceptRule,
    state: State,
    noise: Noise,
    active_B: Tensor,
) -> tuple[State, Round]:
    """One round from a state.

    The target is fed the pending token at position n-1 and the gamma drafts behind it. Caches and rings are written in
    place: rows of committed tokens with what they hold already, and rows past them. So the old state stays valid, and
    playing from it again is a rollback.

    Args:
        target: the model whose distribution is kept.
        drafter: proposes drafts.
        sampler: logits to distributions, the same for target and drafter.
        accept_rule: (p_BNV, proposal, noise) → Verdict.
        state: as of before the round.
        noise: uniforms of this round.
        active_B: False freezes a row.
    """
    proposal = drafter.propose(state, sampler, noise.draft_v_BG)
    start_B = state.length_B - 1
    ids_BN = torch.cat([state.tokens(start_B, 1), proposal.drafts_BG], 1)
    h_BND = target.hidden(ids_BN, state.cache, state.cache.geometry(start_B, ids_BN.shape[1]))
    p_BNV = sampler(target.logits(h_BND))
    verdict = accept_rule(p_BNV, proposal, noise)
    drafter.observe(state.drafter, start_B, h_BND)

    played = emit(p_BNV, proposal, verdict, active_B)
    state.write(state.length_B, played.emitted_BN)
    return state.advanced(played.count_B), played


def emit(p_BNV: Tensor, proposal: Proposal, verdict: Verdict, active_B: Tensor) -> Round:
    """The round's record: accepted drafts in their places, then the target's own token."""
    num_places = proposal.drafts_BG.shape[1] + 1
    accepted_BN = torch.arange(num_places, device=active_B.device) < verdict.num_accepted_B[:, None]
    emitted_BN = torch.where(accepted_BN, F.pad(proposal.drafts_BG, (0, 1)), verdict.next_token_B[:, None])
    return Round(proposal, verdict, emitted_BN, torch.where(active_B, verdict.num_accepted_B + 1, 0), p_BNV)
