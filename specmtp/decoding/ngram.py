"""Prompt lookup: the text itself drafts. What followed the last few tokens before may follow them again.

Needs no network and no training: the baseline that every trained drafter must beat.
Source: Saxena 2023, Prompt Lookup Decoding; a fixed-shape form of it.

Shapes: B rows, G drafts (gamma), T tokens, S slots of the history, M longest match.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specmtp.decoding.accept import Proposal
from specmtp.decoding.drafters import check_gamma
from specmtp.decoding.sampling import Sampler
from specmtp.decoding.state import State
from specmtp.nn.cache import positions

HISTORY, LONGEST = 1024, 8
"""Tokens looked back over, and how many of the last ones are compared."""


@dataclass(frozen=True)
class History:
    """The latest tokens of every row: position n stands in slot n mod S."""

    token_BS: Tensor

    def write(self, start_B: Tensor, ids_BT: Tensor) -> None:
        """Puts tokens at positions start.. into the ring."""
        self.token_BS.scatter_(1, positions(start_B, ids_BT.shape[1]) % self.token_BS.shape[1], ids_BT)


class NGramDrafter:
    """Drafts what followed the longest earlier match of the text's end, the latest one if several are as long.

    Drafts are certain (q is a one-hot), so one is accepted with the probability that the target gives it. A row whose
    last token never came before drafts nothing.
    """

    name, lookahead = "ngram", 0
    max_tokens: int | None = HISTORY

    def __init__(self, vocab_size: int, gamma: int) -> None:
        self.vocab_size, self.gamma = vocab_size, check_gamma(gamma)

    def begin(self, batch: int, device: torch.device, dtype: torch.dtype) -> History:
        return History(torch.zeros(batch, HISTORY, dtype=torch.long, device=device))

    def prefill(self, drafter_state: History, start_B: Tensor, ids_BT: Tensor, h_BTD: Tensor) -> None:
        drafter_state.write(start_B, ids_BT)

    def propose(self, state: State, sampler: Sampler, draft_v_BG: Tensor) -> Proposal:
        """Gamma drafts; where the copied piece ends at the text's end, it goes on from its own beginning.

        Example, text "a b c a b": the end "a b" matched at the beginning, "c a b" followed, so the drafts are c a b c …
        """
        history: History = state.drafter
        n_B, num_new = state.length_B, self.gamma + 1  # a round commits so many tokens at most
        history.write(n_B - num_new, state.tokens(n_B - num_new, num_new))
        token_BS, device = history.token_BS, n_B.device
        slot_S = torch.arange(HISTORY, device=device)
        position_BS = (n_B - 1)[:, None] - (n_B[:, None] - 1 - slot_S) % HISTORY
        alike_BS = torch.ones_like(token_BS, dtype=torch.bool)
        matched_BS = torch.zeros_like(token_BS)
        for back in range(LONGEST):
            last_B1 = token_BS.gather(1, ((n_B - 1 - back) % HISTORY)[:, None])
            alike_BS = alike_BS & (token_BS.roll(back, 1) == last_B1) & (position_BS >= back)
            matched_BS = matched_BS + alike_BS
        # the oldest slots hold no whole match: what stands before them is already overwritten by the newest
        earlier_BS = (position_BS < (n_B - 1)[:, None]) & (position_BS > (n_B - HISTORY + LONGEST)[:, None])
        score_BS = torch.where(
            earlier_BS & (matched_BS > 0), matched_BS * HISTORY * 2 + position_BS - n_B[:, None], -HISTORY
        )
        best_B1 = score_BS.argmax(1, keepdim=True)
        end_B = position_BS.gather(1, best_B1)[:, 0]
        found_B = score_BS.gather(1, best_B1)[:, 0] > -HISTORY
        period_B = (n_B - 1 - end_B).clamp(min=1)
        ahead_BG = torch.arange(self.gamma, device=device) % period_B[:, None]
        drafts_BG = token_BS.gather(1, (end_B[:, None] + 1 + ahead_BG) % HISTORY)
        q_BGV = F.one_hot(drafts_BG, self.vocab_size).float()
        return Proposal(drafts_BG, q_BGV, torch.where(found_B & (n_B >= 2), self.gamma, 0))

    def observe(self, drafter_state: History, start_B: Tensor, h_BTD: Tensor) -> None:
        pass

    def expand(self, drafter_state: History, batch: int) -> History:
        return History(drafter_state.token_BS.repeat(batch, 1))
