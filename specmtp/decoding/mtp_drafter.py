"""The sequential MTP modules as a drafter (DeepSeek-V3, arXiv 2412.19437 §2.2).

Let n tokens be committed, positions 0..n-1. Row n-2 of depth 1 reads (h of position n-2, the pending token n-1) and
gives draft 1; row n-2 of depth k reads depth k-1 there and draft k-1, and gives draft k. Rows before it are re-fed with
true hidden states and committed tokens: the last gamma + depth of them cover every row that an earlier round filled
from drafts which were then rejected.

A draft past the last depth feeds the last module its own pre-norm output as hidden state, one position on, in the same
cache; the next re-feed overwrites it.

Shapes: B rows, G drafts (gamma), T tokens, S slots, D the target's width, V symbols.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.decoding.accept import Proposal
from specmtp.decoding.drafters import check_gamma, draftable
from specmtp.decoding.sampling import Sampler, sample
from specmtp.decoding.state import State
from specmtp.nn.cache import KVCache, max_forward_tokens, positions, ring_slots
from specmtp.nn.mtp import MultiTokenGPT


@dataclass(frozen=True)
class MTPState:
    """Hidden states of the target by position, and a cache for every depth in use."""

    hidden_BSD: Tensor
    """Ring of the target's hidden states: position n in slot n mod S."""
    cache: KVCache
    """Layer k-1 is depth k's."""

    def hidden(self, start_B: Tensor, num_rows: int) -> Tensor:
        """The target's hidden states at positions start.., [B, T, D]."""
        return self.hidden_BSD.gather(1, self._slots(start_B, num_rows))

    def write(self, start_B: Tensor, h_BTD: Tensor) -> None:
        """Puts hidden states at positions start.. into the ring."""
        slot_BTD = self._slots(start_B, h_BTD.shape[1])
        self.hidden_BSD.scatter_(1, slot_BTD, h_BTD.to(self.hidden_BSD.dtype))

    def _slots(self, start_B: Tensor, num_rows: int) -> Tensor:
        return _wide(positions(start_B, num_rows) % self.hidden_BSD.shape[1], self.hidden_BSD.shape[2])


class MTPDrafter:
    """The target's own MTP modules draft."""

    name = "mtp"

    def __init__(self, net: MultiTokenGPT, gamma: int) -> None:
        """
        Raises:
            ValueError: the model was trained without MTP.
        """
        if net.mtp.depth == 0:
            raise ValueError("the target has no MTP modules: train it with mtp_depth >= 1, or leave the MTP arms out")
        self.net, self.gamma = net, check_gamma(gamma)
        self.depth = min(net.mtp.depth, gamma)
        """Depths in use."""
        self.lookahead = self.depth
        self.num_slots = ring_slots(net.gpt.config, gamma, self.depth)
        self.max_tokens = max_forward_tokens(net.gpt.config, self.num_slots)

    def begin(self, batch: int, device: torch.device, dtype: torch.dtype) -> MTPState:
        config = self.net.gpt.config
        hidden_BSD = torch.zeros(batch, self.num_slots, config.d_model, device=device, dtype=dtype)
        cache = KVCache.create(config, batch, self.num_slots, device, dtype, num_layers=self.depth)
        return MTPState(hidden_BSD, cache)

    def prefill(self, drafter_state: MTPState, start_B: Tensor, ids_BT: Tensor, h_BTD: Tensor) -> None:
        self.observe(drafter_state, start_B, h_BTD)
        cache, rows = drafter_state.cache, h_BTD.shape[1]
        geometry = cache.geometry(start_B, rows)
        for k in range(1, self.depth + 1):
            embedded_BTD = self.net.gpt.embed_tokens(ids_BT[:, k : k + rows])
            h_BTD = self.net.mtp.at(k)(h_BTD, embedded_BTD, geometry, cache.layer(k - 1))

    def propose(self, state: State, sampler: Sampler, draft_v_BG: Tensor) -> Proposal:
        """Gamma drafts; see the file's head for the rows.

        Example, n = 6 committed tokens x0..x5, depth 1, gamma 2. Re-fed are rows 2, 3, 4: (h2, x3) (h3, x4) (h4, x5).
        Row 4 gives draft 1 for position 6. Then the module is fed its own output of row 4 and draft 1, standing at row
        5, which gives draft 2 for position 7.
        """
        mtp_state: MTPState = state.drafter
        gpt, n_B, num_rows = self.net.gpt, state.length_B, self.gamma + self.depth
        first_B, last_B = n_B - 1 - num_rows, n_B - 2  # rows before the text are read by no later one
        geometry = mtp_state.cache.geometry(first_B, num_rows)
        h_BTD = mtp_state.hidden(first_B, num_rows)
        drafts: list[Tensor] = []
        qs: list[Tensor] = []
        for i in range(self.gamma):
            k = min(i + 1, self.depth)
            module, layer = self.net.mtp.at(k), mtp_state.cache.layer(k - 1)
            if i < self.depth:  # re-feed depth k
                embedded_BTD = gpt.embed_tokens(state.tokens(first_B + k, num_rows))
                h_BTD = module(h_BTD, embedded_BTD, geometry, layer, last=k == self.depth)
                last_h_B1D = h_BTD[:, -1:]
            else:  # chain the last depth, one position on
                chained = mtp_state.cache.geometry(last_B + i + 1 - k, 1)
                last_h_B1D = module(last_h_B1D, gpt.embed_tokens(drafts[-1]), chained, layer)
            q_BV = sampler(gpt.logits(last_h_B1D)[:, 0])
            draft_B1 = sample(q_BV, draft_v_BG[:, i])[:, None]
            state.write(n_B + i, draft_B1)  # not committed: deeper depths read it there
            drafts.append(draft_B1)
            qs.append(q_BV)
        return Proposal(torch.cat(drafts, 1), torch.stack(qs, 1), draftable(state, self.gamma))

    def observe(self, drafter_state: MTPState, start_B: Tensor, h_BTD: Tensor) -> None:
        drafter_state.write(start_B, h_BTD)

    def expand(self, drafter_state: MTPState, batch: int) -> MTPState:
        return MTPState(drafter_state.hidden_BSD.repeat(batch, 1, 1), drafter_state.cache.expand(batch))


def _wide(index_BT: Tensor, width: int) -> Tensor:
    return index_BT[..., None].expand(-1, -1, width)
