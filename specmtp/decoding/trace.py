"""The trace of a generation, and the counts that every rate is computed from.

Words. Per round: *drafted*, *examined* (up to and including the first rejection), *accepted*, *emitted*.

Shapes: R rounds, B rows, G drafts (gamma), N = G + 1 places.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from specmtp.decoding.round import Round

ACCEPTED, RESAMPLED, SAMPLED = "accepted", "resampled", "sampled"
"""Marks of a token: accepted draft; drawn by the target after a rejection; drawn from p (bonus, or plain)."""


@dataclass(frozen=True)
class Counts:
    """Sums over rounds and rows, from which all rates follow; add two to pool them.

    Rates are None where nothing was drafted (or examined, or played).
    """

    gamma: int
    rounds: int
    drafted: int
    examined: int
    accepted: int
    emitted: int
    target_forwards: int
    draft_forwards: int
    histogram: tuple[int, ...]
    """Rounds by number of accepted drafts, 0..gamma."""
    examined_at: tuple[int, ...]
    accepted_at: tuple[int, ...]
    beta_sum: float
    """Σ over examined positions of β, the chance to accept there: Σ_x min(p, q) with the usual accept rule."""
    beta_variance: float
    """Σ over examined positions of β(1 - β)."""

    @classmethod
    def empty(cls, gamma: int) -> "Counts":
        """Counts of nothing, to start a sum with."""
        none_at = (0,) * gamma
        return cls(gamma, 0, 0, 0, 0, 0, 0, 0, (0, *none_at), none_at, none_at, 0.0, 0.0)

    def __add__(self, other: "Counts") -> "Counts":
        assert self.gamma == other.gamma, "counts of different gamma are not pooled"
        total: dict[str, Any] = {}
        for field in fields(self):
            a, b = getattr(self, field.name), getattr(other, field.name)
            total[field.name] = tuple(x + y for x, y in zip(a, b, strict=True)) if isinstance(a, tuple) else a + b
        return Counts(**{**total, "gamma": self.gamma})

    @property
    def acceptance_rate(self) -> float | None:
        """Σ accepted / Σ examined: the α of Leviathan's eq. (1)."""
        return _ratio(self.accepted, self.examined)

    @property
    def accepted_per_drafted(self) -> float | None:
        """Σ accepted / Σ drafted; falls with gamma by construction."""
        return _ratio(self.accepted, self.drafted)

    @property
    def tokens_per_target_forward(self) -> float | None:
        """Σ emitted / Σ rounds, the resampled or bonus token included, prefill forwards not."""
        return _ratio(self.emitted, self.rounds)

    @property
    def acceptance_at(self) -> list[float | None]:
        """Accepted at draft position i / examined at i, one value a position."""
        return [_ratio(a, e) for a, e in zip(self.accepted_at, self.examined_at, strict=True)]

    @property
    def alpha_minpq(self) -> float | None:
        """Mean of β over the positions examined: of Σ_x min(p, q) with the usual accept rule."""
        return _ratio(self.beta_sum, self.examined)

    def check(self) -> None:
        """Asserts what holds of every sum of whole rounds, whatever the models."""
        assert self.emitted == self.accepted + self.rounds
        assert self.target_forwards == self.rounds
        assert self.draft_forwards == self.gamma * self.rounds
        assert sum(self.histogram) == self.rounds
        assert sum(i * n for i, n in enumerate(self.histogram)) == self.accepted
        assert 0 <= self.accepted <= self.examined <= self.drafted
        assert sum(self.examined_at) == self.examined
        assert sum(self.accepted_at) == self.accepted

    @property
    def acceptance_matches_beta(self) -> bool:
        """Whether |Σ accepted - Σ β| ≤ 5·√Σ β(1-β): what chance allows an exact accept rule, all but 6 in 10⁷ times.

        Rounding gives the bound a floor of 1e-4 an examined position.
        """
        slack = 5 * self.beta_variance**0.5 + 1e-4 * self.examined
        return abs(self.accepted - self.beta_sum) <= slack


@dataclass(frozen=True)
class RowRound:
    """One row's part in a round, as lists."""

    drafts: list[int]
    p: list[float]
    """The target's probability of every draft, and below the drafter's."""
    q: list[float]
    accepted: int
    emitted: list[int]

    @property
    def marks(self) -> list[str]:
        """One a token emitted."""
        return [ACCEPTED] * self.accepted + [RESAMPLED if self.accepted < len(self.drafts) else SAMPLED]


@dataclass(frozen=True)
class Trace:
    """Round by round: drafts, verdicts, marks. Rounds in which a row was frozen do not count for it."""

    drafts_RBG: Tensor
    num_drafts_RB: Tensor
    num_accepted_RB: Tensor
    emitted_RBN: Tensor
    active_RB: Tensor
    p_draft_RBG: Tensor
    q_draft_RBG: Tensor
    beta_RBG: Tensor

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> "Trace":
        """The trace of one round or more, on the CPU."""

        def stack(tensors: list[Tensor]) -> Tensor:
            return torch.stack(tensors).cpu()

        return cls(
            stack([r.proposal.drafts_BG for r in rounds]),
            stack([r.proposal.num_drafts_B for r in rounds]),
            stack([r.verdict.num_accepted_B for r in rounds]),
            stack([r.emitted_BN for r in rounds]),
            stack([r.count_B for r in rounds]) > 0,
            stack([r.verdict.p_draft_BG for r in rounds]),
            stack([r.verdict.q_draft_BG for r in rounds]),
            stack([r.verdict.beta_BG for r in rounds]),
        )

    @classmethod
    def joined(cls, pieces: Sequence["Trace"]) -> "Trace":
        """One trace of several, at least one, round after round."""
        return cls(*(torch.cat([getattr(piece, field.name) for piece in pieces]) for field in fields(cls)))

    @property
    def gamma(self) -> int:
        return self.drafts_RBG.shape[2]

    def rounds(self, row: int) -> list["RowRound"]:
        """The rounds in which a row was active."""
        active_R = self.active_RB[:, row]
        columns = (
            self.num_drafts_RB, self.num_accepted_RB, self.drafts_RBG, self.p_draft_RBG, self.q_draft_RBG,
            self.emitted_RBN,
        )  # fmt: skip
        return [
            RowRound(drafts[:drafted], p[:drafted], q[:drafted], accepted, emitted[: accepted + 1])
            for drafted, accepted, drafts, p, q, emitted in zip(
                *(column[active_R, row].tolist() for column in columns), strict=True
            )
        ]

    def tokens(self, row: int) -> list[int]:
        """All tokens a row emitted, uncut."""
        return [token for played in self.rounds(row) for token in played.emitted]

    def marks(self, row: int) -> list[str]:
        """The mark of every token of ``tokens(row)``."""
        return [mark for played in self.rounds(row) for mark in played.marks]

    def counts(self) -> Counts:
        """The sums of this trace."""
        gamma, active_RB = self.gamma, self.active_RB
        accepted_RB, drafted_RB = self.num_accepted_RB, self.num_drafts_RB
        place_G = torch.arange(gamma)
        examined_RB = torch.minimum(accepted_RB + 1, drafted_RB)
        examined_RBG = (place_G < examined_RB[..., None]) & active_RB[..., None]
        accepted_RBG = (place_G < accepted_RB[..., None]) & active_RB[..., None]
        beta_E = self.beta_RBG[examined_RBG].double().clamp(max=1)
        rounds = int(active_RB.sum())
        return Counts(
            gamma=gamma,
            rounds=rounds,
            drafted=int(drafted_RB[active_RB].sum()),
            examined=int(examined_RBG.sum()),
            accepted=int(accepted_RB[active_RB].sum()),
            emitted=int((accepted_RB[active_RB] + 1).sum()),
            target_forwards=rounds,
            draft_forwards=gamma * rounds,
            histogram=tuple(torch.bincount(accepted_RB[active_RB], minlength=gamma + 1).tolist()),
            examined_at=tuple(examined_RBG.sum((0, 1)).tolist()),
            accepted_at=tuple(accepted_RBG.sum((0, 1)).tolist()),
            beta_sum=float(beta_E.sum()),
            beta_variance=float((beta_E * (1 - beta_E)).sum()),
        )


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None
