"""What drafters share that learn from a frozen target: the objective, and the target's own text in their batches."""

from typing import Any, Literal

import torch
from torch import Tensor

from specmtp.training.base import LanguageModule
from specmtp.training.losses import LossSum, mean
from specmtp.training.optim import OptimConfig
from specmtp.training.teacher import OWN_TOKENS, Teacher

Objective = Literal["cross_entropy", "kl", "log_alpha", "hybrid"]


class DistilledModule(LanguageModule):
    """A drafter in training, with cross-entropy on text, or towards a target."""

    def __init__(
        self,
        vocabulary: str,
        optimizer: OptimConfig,
        target: str | None,
        objective: Objective,
        own_text: float,
        compile: bool,
        seed: int,
    ) -> None:
        super().__init__(vocabulary, optimizer, seed, compile)
        if not target and (objective != "cross_entropy" or own_text):
            raise ValueError(
                f"objective {objective} with own_text {own_text:g} learns from a target: name its checkpoint or "
                "run with --model.target"
            )
        if not 0 <= own_text <= 1:
            raise ValueError(f"own_text is a share of every batch and must lie in [0, 1], got {own_text}")
        self.objective, self.own_text = objective, own_text
        self.teacher = Teacher(target, self.vocabulary) if target else None

    @property
    def distilled(self) -> dict[str, Any]:
        """The hyper-parameters of distillation; none without a target."""
        if not self.teacher:
            return {}
        return {"objective": self.objective, "own_text": self.own_text, "target_sha256": self.teacher.sha256}

    def of_objective(self, values: dict[str, Tensor], cross_entropy: str = "main", of: str = "") -> Tensor:
        """The objective from mean losses by name; ``of`` is what the names of one of several drafts end with."""
        if self.objective == "cross_entropy":
            return values[cross_entropy]
        if self.objective == "hybrid":
            return (values["kl" + of] + values["log_alpha" + of]) / 2
        return values[self.objective + of]

    def validation_objective(self, values: dict[str, Tensor]) -> Tensor:
        return self.of_objective(values)

    def training_loss(self, losses: dict[str, LossSum]) -> Tensor:
        return self.validation_objective({name: mean(pair) for name, pair in losses.items()})

    def setup(self, stage: str) -> None:
        super().setup(stage)
        block = self.trainer.datamodule.block_size  # type: ignore[attr-defined]
        if self.own_text and block >= OWN_TOKENS:
            raise ValueError(f"own_text takes a block_size below {OWN_TOKENS}, the length of its texts, got {block}")

    def on_fit_start(self) -> None:
        if self.teacher and self.own_text:
            self.teacher.write(self.seed)

    def training_step(self, ids_BW: Tensor, batch_idx: int) -> Tensor:
        own = round(self.own_text * len(ids_BW))
        if self.teacher and own:
            key = self.seed, self.global_step, batch_idx % self.trainer.accumulate_grad_batches, self.global_rank
            ids_BW = torch.cat([self.teacher.own_windows(own, ids_BW.shape[1], *key).to(ids_BW), ids_BW[own:]])
        return super().training_step(ids_BW, batch_idx)
