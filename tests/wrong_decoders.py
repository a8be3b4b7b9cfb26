"""Decoders with a fault each, for checks to find."""

from typing import Any

import torch

from specmtp.decoding.accept import Proposal, Verdict, accept
from specmtp.decoding.drafters import DraftModel
from specmtp.decoding.loop import Decoder
from specmtp.decoding.noise import Noise
from specmtp.decoding.round import Round
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.state import State


def inflated(p_BNV: torch.Tensor, proposal: Proposal, noise: Noise) -> Verdict:
    """An accept rule whose ratio is 10 % too large."""
    return accept(p_BNV, proposal, Noise(noise.draft_v_BG, noise.accept_u_BG / 1.1, noise.emit_v_B))


class OffByOne(Decoder):
    """Its target's cache stands one slot off after the prefill."""

    def prefill(self, prompts: Any) -> tuple[State, int]:
        state, forwards = super().prefill(prompts)
        for ring in (*state.cache.keys, *state.cache.values):
            ring.copy_(ring.roll(1, 2))
        return state, forwards


class OtherTemperature(DraftModel):
    """Drafts are drawn as they should, and scored as if at temperature 1.25."""

    def propose(self, state: State, sampler: Sampler, draft_v_BG: torch.Tensor) -> Proposal:
        right = super().propose(state, sampler, draft_v_BG)
        q_BGV = right.q_BGV.pow(0.8)
        return Proposal(right.drafts_BG, q_BGV / q_BGV.sum(-1, keepdim=True), right.num_drafts_B)


class Forgetful(Decoder):
    """Past 40 tokens its target's cache holds zeros alone."""

    def play(self, state: State, noise: Noise, active_B: torch.Tensor) -> tuple[State, Round]:
        if int(state.length_B.min()) > 40:
            for ring in (*state.cache.keys, *state.cache.values):
                ring.zero_()
        return super().play(state, noise, active_B)
