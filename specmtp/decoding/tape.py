"""What a graph of rounds writes instead of returning it: records in fixed places of memory.

Shapes: R rounds of a chunk, B rows, G drafts (gamma), N = G + 1 places, V symbols.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.decoding.accept import Proposal, Verdict
from specmtp.decoding.round import Round
from specmtp.decoding.trace import Trace


@dataclass(frozen=True)
class Tape:
    """Room for the records of a chunk of rounds."""

    next_1: Tensor
    """The place of the next round, int64 [1]; graphs read their noise there and move it on."""
    whole: Tensor
    """int64 [R, B, 4 + G + N]: num_drafts, num_accepted, next_token, count, drafts, emitted."""
    real: Tensor
    """float32 [R, B, 3·G]: p, q and β of the drafts."""
    p_BNV: Tensor
    """The distributions of the last round, and so is the next."""
    q_BGV: Tensor

    @classmethod
    def create(cls, rounds: int, batch: int, gamma: int, vocab_size: int, device: torch.device) -> "Tape":
        """An empty tape."""
        return cls(
            torch.zeros(1, dtype=torch.long, device=device),
            torch.zeros(rounds, batch, 4 + gamma + gamma + 1, dtype=torch.long, device=device),
            torch.zeros(rounds, batch, 3 * gamma, device=device),
            torch.zeros(batch, gamma + 1, vocab_size, device=device),
            torch.zeros(batch, gamma, vocab_size, device=device),
        )

    @property
    def gamma(self) -> int:
        return self.q_BGV.shape[1]

    def write(self, played: Round) -> None:
        """Puts a round down at the next place."""
        proposal, verdict = played.proposal, played.verdict
        numbers = (proposal.num_drafts_B, verdict.num_accepted_B, verdict.next_token_B, played.count_B)
        whole = torch.cat([torch.stack(numbers, 1), proposal.drafts_BG, played.emitted_BN], 1)
        self.whole.index_put_((self.next_1,), whole[None])
        if self.gamma:
            real = torch.cat([verdict.p_draft_BG, verdict.q_draft_BG, verdict.beta_BG], 1)
            self.real.index_put_((self.next_1,), real[None])
            self.q_BGV.copy_(proposal.q_BGV)
        self.p_BNV.copy_(played.p_BNV)
        self.next_1.add_(1)

    def first(self) -> Round:
        """The first round, with its distributions if it is the last one too."""
        numbers_B4, drafts_BG, emitted_BN = self.whole[0].clone().split([4, self.gamma, self.gamma + 1], -1)
        num_drafts_B, num_accepted_B, next_token_B, count_B = numbers_B4.unbind(-1)
        p_draft_BG, q_draft_BG, beta_BG = self._thirds(self.real[0].clone())
        verdict = Verdict(num_accepted_B, next_token_B, p_draft_BG, q_draft_BG, beta_BG)
        proposal = Proposal(drafts_BG, self.q_BGV.clone(), num_drafts_B)
        return Round(proposal, verdict, emitted_BN, count_B, self.p_BNV.clone())

    def trace(self, rounds: int) -> Trace:
        """The trace of the first rounds, on the CPU."""
        whole, real = self.whole[:rounds].clone().cpu(), self.real[:rounds].clone().cpu()
        numbers, drafts_RBG, emitted_RBN = whole.split([4, self.gamma, self.gamma + 1], -1)
        num_drafts_RB, num_accepted_RB, _, count_RB = numbers.unbind(-1)
        p_draft_RBG, q_draft_RBG, beta_RBG = self._thirds(real)
        return Trace(
            drafts_RBG, num_drafts_RB, num_accepted_RB, emitted_RBN, count_RB > 0, p_draft_RBG, q_draft_RBG, beta_RBG
        )

    def _thirds(self, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return real[..., : self.gamma], real[..., self.gamma : 2 * self.gamma], real[..., 2 * self.gamma :]
