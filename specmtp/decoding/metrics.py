"""Acceptance as a torchmetrics metric: counts that pool over updates and processes, then the rates of ``Counts``."""

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from specmtp.decoding.trace import Counts, Trace

_WHOLE = ("rounds", "drafted", "examined", "accepted", "emitted", "target_forwards", "draft_forwards")
_BY_PLACE = ("histogram", "examined_at", "accepted_at")
_REAL = ("beta_sum", "beta_variance")


class Acceptance(Metric):
    """Pools the counts of traces of one gamma; ``counts`` gives them back.

    acceptance_rate = Σ accepted / Σ examined, accepted_per_drafted = Σ accepted / Σ drafted,
    tokens_per_target_forward = Σ emitted / Σ rounds: sums over all updates and processes first, one division last.
    """

    full_state_update = False

    def __init__(self, gamma: int) -> None:
        super().__init__()
        self.gamma = gamma
        for name in _WHOLE:
            self.add_state(name, torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        for name in _BY_PLACE:
            size = gamma + 1 if name == "histogram" else gamma
            self.add_state(name, torch.zeros(size, dtype=torch.int64), dist_reduce_fx="sum")
        for name in _REAL:
            self.add_state(name, torch.zeros(()), dist_reduce_fx="sum")

    def update(self, trace: Trace) -> None:
        """Adds a trace of this gamma."""
        counts = asdict(trace.counts())
        assert counts.pop("gamma") == self.gamma
        for name, value in counts.items():
            state: Tensor = getattr(self, name)
            state += torch.as_tensor(value, dtype=state.dtype, device=state.device)

    def compute(self) -> dict[str, Tensor]:
        """The sums by name, pooled over updates and processes."""
        return {name: getattr(self, name) for name in (*_WHOLE, *_BY_PLACE, *_REAL)}

    def counts(self) -> Counts:
        """The pooled sums as ``Counts``, which has the rates."""
        sums: dict[str, Any] = {k: v.tolist() for k, v in self.compute().items()}
        by_place = {name: tuple(np.atleast_1d(sums[name]).tolist()) for name in _BY_PLACE}
        return Counts(gamma=self.gamma, **{**sums, **by_place})
