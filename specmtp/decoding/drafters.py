"""Drafters: who guesses the next gamma tokens, and from which state.

A drafter is asked for a proposal once a round, and told afterwards what the target's forward saw. Its state travels in
``State.drafter``.

Shapes: B rows, G drafts (gamma), T tokens, D the target's width, V symbols.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from specmtp.decoding.accept import Proposal
from specmtp.decoding.sampling import Sampler, sample
from specmtp.decoding.state import State
from specmtp.nn.cache import KVCache, max_forward_tokens, ring_slots
from specmtp.nn.gpt import GPT


class Drafter(Protocol):
    """The interface of a drafter."""

    name: str
    """Its name in logs and ledgers: plain, draft, mtp."""
    gamma: int
    """Drafts a round."""
    lookahead: int
    """How many tokens past a target row its own prefill reads."""

    @property
    def max_tokens(self) -> int | None:
        """The most tokens its prefill takes at once; None where it does not matter."""
        ...

    def begin(self, batch: int, device: torch.device, dtype: torch.dtype) -> Any:
        """An empty state for so many rows; dtype is that of keys and values."""
        ...

    def prefill(self, drafter_state: Any, start_B: Tensor, ids_BT: Tensor, h_BTD: Tensor) -> None:
        """Takes in committed text at positions start..: the target's hidden rows, and their tokens with lookahead."""
        ...

    def propose(self, state: State, sampler: Sampler, draft_v_BG: Tensor) -> Proposal:
        """Gamma drafts after the pending token, each drawn by inverse CDF from its own distribution."""
        ...

    def observe(self, drafter_state: Any, start_B: Tensor, h_BTD: Tensor) -> None:
        """Takes in the target's hidden rows of a verification at positions start.."""
        ...

    def expand(self, drafter_state: Any, batch: int) -> Any:
        """The state of one row, copied to so many."""
        ...


class Stateless:
    """What drafters share that keep nothing between rounds: they propose, from the tokens alone."""

    lookahead = 0
    max_tokens: int | None = None

    def begin(self, batch: int, device: torch.device, dtype: torch.dtype) -> Any:
        return None

    def prefill(self, drafter_state: Any, start_B: Tensor, ids_BT: Tensor, h_BTD: Tensor) -> None:
        pass

    def observe(self, drafter_state: Any, start_B: Tensor, h_BTD: Tensor) -> None:
        pass

    def expand(self, drafter_state: Any, batch: int) -> Any:
        return None


class NoDrafter(Stateless):
    """Plain decoding: nothing drafted, one token a round."""

    name, gamma = "plain", 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def propose(self, state: State, sampler: Sampler, draft_v_BG: Tensor) -> Proposal:
        none_BG = state.length_B.new_empty(len(state.length_B), 0)
        return Proposal(
            none_BG, draft_v_BG.new_empty(*none_BG.shape, self.vocab_size), torch.zeros_like(state.length_B)
        )


class DraftModel:
    """A separate small model drafts, one forward a draft (Leviathan et al. 2023).

    Each round it is rewound to two tokens before the end and fed both (rewriting one is harmless), then single drafts:
    after full acceptance there is no hole in its cache, and shapes never change.
    """

    name, lookahead = "draft", 0

    def __init__(self, net: GPT, gamma: int) -> None:
        self.net, self.gamma = net, check_gamma(gamma)
        self.num_slots = ring_slots(net.config, gamma)
        self.max_tokens = max_forward_tokens(net.config, self.num_slots)

    def begin(self, batch: int, device: torch.device, dtype: torch.dtype) -> KVCache:
        return KVCache.create(self.net.config, batch, self.num_slots, device, dtype)

    def prefill(self, drafter_state: KVCache, start_B: Tensor, ids_BT: Tensor, h_BTD: Tensor) -> None:
        self.net.hidden(ids_BT, drafter_state, drafter_state.geometry(start_B, ids_BT.shape[1]))

    def propose(self, state: State, sampler: Sampler, draft_v_BG: Tensor) -> Proposal:
        cache: KVCache = state.drafter
        start_B = (state.length_B - 2).clamp(min=0)
        ids_BT = state.tokens(start_B, 2)
        drafts, qs, geometry = [], [], cache.geometry(start_B, self.gamma + 1)
        for i in range(self.gamma):
            first, num = (i + 1, 1) if i else (0, 2)
            h_B1D = self.net.last_hidden(ids_BT, cache, geometry.rows(first, num, self.gamma + 1))
            q_BV = sampler(self.net.logits(h_B1D)[:, 0])
            ids_BT = sample(q_BV, draft_v_BG[:, i])[:, None]
            drafts.append(ids_BT)
            qs.append(q_BV)
        return Proposal(torch.cat(drafts, 1), torch.stack(qs, 1), draftable(state, self.gamma))

    def observe(self, drafter_state: KVCache, start_B: Tensor, h_BTD: Tensor) -> None:
        pass

    def expand(self, drafter_state: KVCache, batch: int) -> KVCache:
        return drafter_state.expand(batch)


def check_gamma(gamma: int) -> int:
    """The gamma itself.

    Raises:
        ValueError: it is no whole number from 1.
    """
    if isinstance(gamma, bool) or not isinstance(gamma, int) or gamma < 1:
        raise ValueError(f"gamma must be a whole number from 1, got {gamma!r}")
    return gamma


def draftable(state: State, gamma: int) -> Tensor:
    """num_drafts of every row: gamma, and 0 while the pending token is at position 0 (there is nothing behind it)."""
    return torch.where(state.length_B >= 2, gamma, 0)
