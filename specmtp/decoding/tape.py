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
    record_RBC: Tensor
    """float32 [R, B, 5 + 5·G]: num_drafts, num_accepted, next_token, count, drafts, emitted; p, q and β of the drafts.
    One tensor, since every one that a graph is given costs a call 0.7 µs; ids are exact below 2²⁴."""
    pq_BMV: Tensor
    """The distributions of the last round, p at N places, then q at G."""

    @classmethod
    def create(cls, rounds: int, batch: int, gamma: int, vocab_size: int, device: torch.device) -> "Tape":
        """An empty tape."""
        return cls(
            torch.zeros(1, dtype=torch.long, device=device),
            torch.zeros(rounds, batch, 5 + 5 * gamma, device=device),
            torch.zeros(batch, 2 * gamma + 1, vocab_size, device=device),
        )

    @property
    def gamma(self) -> int:
        return self.pq_BMV.shape[1] // 2

    def write(self, played: Round) -> None:
        """Puts a round down at the next place."""
        proposal, verdict = played.proposal, played.verdict
        numbers = (proposal.num_drafts_B, verdict.num_accepted_B, verdict.next_token_B, played.count_B)
        whole = torch.cat([torch.stack(numbers, 1), proposal.drafts_BG, played.emitted_BN], 1)
        real = (verdict.p_draft_BG, verdict.q_draft_BG, verdict.beta_BG)
        self.record_RBC.index_put_((self.next_1,), torch.cat([whole.float(), *real], 1)[None])
        self.pq_BMV.copy_(torch.cat([played.p_BNV, proposal.q_BGV], 1))
        self.next_1.add_(1)

    def first(self) -> Round:
        """The first round, with its distributions if it is the last one too."""
        whole, (p_draft_BG, q_draft_BG, beta_BG) = self._parts(self.record_RBC[0].clone())
        numbers_B4, drafts_BG, emitted_BN = whole
        num_drafts_B, num_accepted_B, next_token_B, count_B = numbers_B4.unbind(-1)
        p_BNV, q_BGV = self.pq_BMV.clone().split([self.gamma + 1, self.gamma], 1)
        verdict = Verdict(num_accepted_B, next_token_B, p_draft_BG, q_draft_BG, beta_BG)
        return Round(Proposal(drafts_BG, q_BGV, num_drafts_B), verdict, emitted_BN, count_B, p_BNV)

    def trace(self, rounds: int) -> Trace:
        """The trace of the first rounds, on the CPU."""
        whole, real = self._parts(self.record_RBC[:rounds].clone().cpu())
        numbers_RB4, drafts_RBG, emitted_RBN = whole
        num_drafts_RB, num_accepted_RB, _, count_RB = numbers_RB4.unbind(-1)
        return Trace(drafts_RBG, num_drafts_RB, num_accepted_RB, emitted_RBN, count_RB > 0, *real)

    def _parts(self, record: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Whole numbers (four, drafts, emitted), and the p, q and β of the drafts."""
        gamma = self.gamma
        whole, real = record.split([5 + 2 * gamma, 3 * gamma], -1)
        return list(whole.long().split([4, gamma, gamma + 1], -1)), real.split([gamma] * 3, -1)
