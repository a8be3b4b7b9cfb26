"""What all LightningModules here share: steps that log, validation over a whole split, resume, checkpoints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics import Metric

from specmtp.checkpoint import Role, pack
from specmtp.data.seeding import mix
from specmtp.data.vocabulary import Vocabulary
from specmtp.data.windows import VALIDATION_BLOCK
from specmtp.nn.mtp import MultiTokenGPT
from specmtp.training.losses import LossSum, depth_losses, mean, total_loss
from specmtp.training.optim import OptimConfig, make_optimizer


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
    return f"{stage}/{name}" if name.startswith("alpha_exact") else f"{stage}/loss_{name}"


class LanguageModule(LightningModule):
    """A network in training; what it minimises is its subclass's affair."""

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

    @property
    def lookahead(self) -> tuple[str, int]:
        """The option that says how many drafts are trained for, and their number."""
        return "mtp_depth", self.net.mtp.depth

    def validation_objective(self, values: dict[str, Tensor]) -> Tensor:
        """What the best checkpoint is best in, from the mean validation losses."""
        return values["main"]

    def setup(self, stage: str) -> None:
        block = self.trainer.datamodule.block_size  # type: ignore[attr-defined]
        name, ahead = self.lookahead
        if ahead >= min(block, VALIDATION_BLOCK):
            raise ValueError(
                f"{name} must be below block_size and below {VALIDATION_BLOCK}, the length of validation windows; "
                f"got {ahead} and block_size {block}"
            )

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
            self.log(tag("val", name), value.float(), prog_bar=name == "main")
            if name == "main":
                self.log("val/perplexity", value.exp().float())
                self.log("val/bits_per_character", (value / math.log(2)).float())
        objective = self.validation_objective(values)
        if not (values["main"].isfinite() and objective.isfinite()):
            raise ValueError(
                f"training diverged: the validation loss is {objective.item()} after {self.global_step} steps; try a "
                "lower model.optimizer.lr or trainer.gradient_clip_val 1.0"
            )
        self.log("val/objective", objective.float())
        self.log("step", float(self.global_step))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer, schedule = make_optimizer(self.net, self.optimizer_config, self.trainer.max_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    @property
    def description(self) -> dict[str, Any]:
        """What a checkpoint says of its network."""
        return pack(self.net, self.role, self.vocabulary)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["specmtp"] = self.description
        checkpoint["data"] = self.trainer.datamodule.settings  # type: ignore[attr-defined]
