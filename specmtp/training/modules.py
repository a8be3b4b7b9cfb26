"""The two LightningModules: the target with its MTP modules, and the small draft model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics import Metric

from specmtp.checkpoint import Role, pack
from specmtp.data.seeding import mix
from specmtp.data.vocabulary import Vocabulary
from specmtp.nn.config import GPTConfig
from specmtp.nn.mtp import MultiTokenGPT
from specmtp.training.losses import LossSum, depth_losses, distillation_losses, mean, total_loss
from specmtp.training.optim import OptimConfig, make_optimizer
from specmtp.training.teacher import Teacher


class MeanLoss(Metric):
    """Σ loss / number of terms, pooled over batches and processes."""

    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")  # a sum a batch; MPS has no float64
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, loss: LossSum) -> None:
        self.total += loss[0]
        self.count += loss[1]

    def compute(self) -> Tensor:
        return self.total / self.count


def tag(stage: str, name: str) -> str:
    """Where a mean is logged."""
    return f"{stage}/{name}" if name == "alpha_exact" else f"{stage}/loss_{name}"


class LanguageModule(LightningModule):
    """What target and draft share: steps that log, validation over the whole split, exact resume, safe checkpoints."""

    role: Role
    net: MultiTokenGPT
    mtp_weight: float = 0.0

    def __init__(self, vocabulary: str, optimizer: OptimConfig, seed: int, compile: bool) -> None:
        super().__init__()
        self.vocabulary = Vocabulary(vocabulary)
        self.optimizer_config, self.seed, self.compile_net = optimizer, seed, compile

    def _adopt(self, net: MultiTokenGPT, hparams: Mapping[str, Any], more_losses: Sequence[str] = ()) -> None:
        """Takes the network in: metrics by loss name, plain hyper-parameters, compilation if asked."""
        self.net = net
        names = ["main", *(f"mtp{k}" for k in range(1, net.mtp.depth + 1)), *more_losses]
        self.val_losses = nn.ModuleDict({name: MeanLoss() for name in names})
        self.save_hyperparameters(
            {**hparams, "optimizer": asdict(self.optimizer_config), "net": asdict(net.gpt.config), "seed": self.seed}
        )
        if self.compile_net:
            net.compile()  # not self: a compiled LightningModule loses self.log, torch.compile(net) renames the keys

    def losses(self, ids_BW: Tensor) -> dict[str, LossSum]:
        """(sum, count) of every loss of a batch of windows."""
        return depth_losses(self.net(ids_BW[:, :-1].clamp(min=0)), ids_BW)

    def training_loss(self, losses: dict[str, LossSum]) -> Tensor:
        """What is minimised."""
        return total_loss(losses, self.mtp_weight)

    def validation_objective(self, values: dict[str, Tensor]) -> Tensor:
        """What the best checkpoint is best in, from the mean validation losses."""
        return values["main"]

    def setup(self, stage: str) -> None:
        depth, block = self.net.mtp.depth, self.trainer.datamodule.block_size  # type: ignore[attr-defined]
        if depth >= block:
            raise ValueError(f"block_size must exceed mtp_depth, got {block} and {depth}")

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
        """Seeds the global RNG for dropout from (seed, step, micro-batch, rank): a resumed run draws the same masks."""
        micro = batch_idx % self.trainer.accumulate_grad_batches
        torch.manual_seed(mix(self.seed, self.global_step, micro, self.global_rank))

    def training_step(self, ids_BW: Tensor, batch_idx: int) -> Tensor:
        losses = self.losses(ids_BW)
        loss = self.training_loss(losses)
        self.log("train/loss", loss, prog_bar=True)
        self.log_dict({tag("train", name): mean(pair) for name, pair in losses.items()})
        self.log_dict({"train/mtp_weight": self.mtp_weight, "train/lr": self.lr_schedulers().get_last_lr()[0]})  # type: ignore[union-attr]
        self.log("step", float(self.global_step + 1))  # the x-axis of every tag is optimiser steps done
        return loss

    def validation_step(self, ids_BW: Tensor, batch_idx: int) -> None:
        for name, pair in self.losses(ids_BW).items():
            self.val_losses[name].update(pair)  # type: ignore[operator]

    def on_validation_epoch_end(self) -> None:
        values: dict[str, Tensor] = {}
        for name, metric in self.val_losses.items():
            value = values[name] = metric.compute()  # type: ignore[operator]
            metric.reset()  # type: ignore[operator]
            if name == "main" and not value.isfinite():
                raise ValueError(
                    f"training diverged: the validation loss is {value.item()} after {self.global_step} steps; try a "
                    "lower model.optimizer.lr or trainer.gradient_clip_val 1.0"
                )
            self.log(tag("val", name), value.float(), prog_bar=name == "main")
            if name == "main":
                self.log("val/perplexity", value.exp().float())
                self.log("val/bits_per_character", (value / math.log(2)).float())
        self.log("val/objective", self.validation_objective(values).float())
        self.log("step", float(self.global_step))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer, schedule = make_optimizer(self.net, self.optimizer_config, self.trainer.max_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["specmtp"] = pack(self.net, self.role, self.vocabulary)
        checkpoint["data"] = self.trainer.datamodule.settings  # type: ignore[attr-defined]


class GPTModule(LanguageModule):
    """Trains the target: main + mtp_weight · mean over depths of the MTP losses."""

    role = "target"

    def __init__(
        self,
        vocabulary: str,
        net: GPTConfig,
        optimizer: OptimConfig,
        mtp_depth: int = 1,
        mtp_shared: bool = False,
        mtp_weight: float = 0.3,
        compile: bool = False,
        seed: int = 1337,
    ) -> None:
        """
        Args:
            vocabulary: the symbols in id order; linked to the data.
            net: shape of the GPT; its vocab_size is the vocabulary's.
            optimizer: optimiser and schedule.
            mtp_depth: MTP modules; 0 trains the plain model.
            mtp_shared: one MTP module for all depths.
            mtp_weight: weight of the MTP loss (the papers' λ).
            compile: compile the network with torch.compile.
            seed: seeds dropout; linked to seed_everything.
        """
        super().__init__(vocabulary, optimizer, seed, compile)
        if not mtp_weight >= 0:
            raise ValueError(f"mtp_weight must not be negative, got {mtp_weight}")
        if mtp_depth > 0 and mtp_weight == 0:
            raise ValueError(
                "mtp_weight 0 with mtp_depth > 0 trains heads without a loss: set mtp_depth 0 (control.yaml)"
            )
        if mtp_shared and mtp_depth < 2:
            raise ValueError(f"mtp_shared shares one module between depths and needs mtp_depth >= 2, got {mtp_depth}")
        self.mtp_weight = mtp_weight if mtp_depth else 0.0
        net = replace(net, vocab_size=len(vocabulary))
        self._adopt(
            MultiTokenGPT(net, mtp_depth, mtp_shared),
            {"mtp_depth": mtp_depth, "mtp_shared": mtp_shared, "mtp_weight": self.mtp_weight},
        )


Objective = Literal["cross_entropy", "kl", "log_alpha", "hybrid"]


class DraftModule(LanguageModule):
    """Trains the small draft model: with cross-entropy on text, or distilled from a frozen target."""

    role = "draft"

    def __init__(
        self,
        vocabulary: str,
        net: GPTConfig,
        optimizer: OptimConfig,
        target: str | None = None,
        objective: Objective = "cross_entropy",
        own_text: float = 0.0,
        compile: bool = False,
        seed: int = 1337,
    ) -> None:
        """
        Args:
            vocabulary: the symbols in id order; linked to the data.
            net: shape of the draft GPT; its vocab_size is the vocabulary's.
            optimizer: optimiser and schedule.
            target: checkpoint of a frozen target; with one, alpha_exact is logged at every validation.
            objective: cross-entropy on text; or, towards the target, forward KL, -log of the acceptance Σ min(p, q), or
                the mean of those two (hybrid).
            own_text: share of every batch that is the target's own text, in place of the corpus.
            compile: compile the network with torch.compile.
            seed: seeds dropout; linked to seed_everything.
        """
        super().__init__(vocabulary, optimizer, seed, compile)
        if target is None and (objective != "cross_entropy" or own_text):
            raise ValueError(
                f"objective {objective} with own_text {own_text:g} learns from a target: name its checkpoint with "
                "--model.target"
            )
        if not 0 <= own_text <= 1:
            raise ValueError(f"own_text is a share of every batch and must lie in [0, 1], got {own_text}")
        self.objective, self.own_text = objective, own_text
        self.teacher = Teacher(target, self.vocabulary) if target else None
        distilled: dict[str, Any] = {}
        if self.teacher:
            distilled = {"objective": objective, "own_text": own_text, "target_sha256": self.teacher.sha256}
            if compile:
                self.teacher.net.compile()
        self._adopt(
            MultiTokenGPT(replace(net, vocab_size=len(vocabulary))),
            distilled,
            ["kl", "log_alpha", "alpha_exact"] if self.teacher else [],
        )

    def losses(self, ids_BW: Tensor) -> dict[str, LossSum]:
        ids_BT = ids_BW[:, :-1].clamp(min=0)
        logits = self.net(ids_BT)
        found = depth_losses(logits, ids_BW)
        if self.teacher and not (self.training and self.objective == "cross_entropy"):
            found |= distillation_losses(self.teacher.logits(ids_BT), logits[0], ids_BW)
        return found

    def training_loss(self, losses: dict[str, LossSum]) -> Tensor:
        return self.validation_objective({name: mean(pair) for name, pair in losses.items()})

    def validation_objective(self, values: dict[str, Tensor]) -> Tensor:
        if self.objective == "hybrid":
            return (values["kl"] + values["log_alpha"]) / 2
        return values["main" if self.objective == "cross_entropy" else self.objective]

    def on_fit_start(self) -> None:
        if self.teacher and self.own_text:
            self.teacher.write(self.seed)

    def training_step(self, ids_BW: Tensor, batch_idx: int) -> Tensor:
        own = round(self.own_text * len(ids_BW))
        if self.teacher and own:
            key = self.seed, self.global_step, batch_idx % self.trainer.accumulate_grad_batches, self.global_rank
            ids_BW = torch.cat([self.teacher.own_windows(own, ids_BW.shape[1], *key).to(ids_BW), ids_BW[own:]])
        return super().training_step(ids_BW, batch_idx)
