"""The LightningModules: the target with its MTP modules, the draft model, and MTP modules of a frozen target."""

from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from specmtp.checkpoint import HEADS_OF
from specmtp.nn.config import GPTConfig
from specmtp.nn.mtp import MultiTokenGPT
from specmtp.training.base import LanguageModule
from specmtp.training.distillation import DistilledModule, Objective
from specmtp.training.losses import LossSum, depth_losses, distillation_losses
from specmtp.training.optim import OptimConfig


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
        check_shared(mtp_shared, mtp_depth)
        self.mtp_weight = mtp_weight if mtp_depth else 0.0
        net = replace(net, vocab_size=len(vocabulary))
        self._adopt(
            MultiTokenGPT(net, mtp_depth, mtp_shared),
            {"mtp_depth": mtp_depth, "mtp_shared": mtp_shared, "mtp_weight": self.mtp_weight},
        )


class DraftModule(DistilledModule):
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
            target: checkpoint or run of a frozen target; with one, alpha_exact is logged at every validation.
            objective: cross-entropy on text; or, towards the target, forward KL, -log of the acceptance Σ min(p, q), or
                the mean of those two (hybrid).
            own_text: share of every batch that is the target's own text, in place of the corpus.
            compile: compile the network with torch.compile.
            seed: seeds dropout; linked to seed_everything.
        """
        super().__init__(vocabulary, optimizer, target, objective, own_text, compile, seed)
        if self.teacher and compile:
            self.teacher.net.compile()
        self._adopt(
            MultiTokenGPT(replace(net, vocab_size=len(vocabulary))),
            self.distilled,
            ["kl", "log_alpha", "alpha_exact"] if self.teacher else [],
        )

    def losses(self, ids_BW: Tensor) -> dict[str, LossSum]:
        ids_BT = ids_BW[:, :-1].clamp(min=0)
        logits = self.net(ids_BT)
        found = depth_losses(logits, ids_BW)
        if self.teacher and not (self.training and self.objective == "cross_entropy"):
            found |= distillation_losses(self.teacher.logits(ids_BT), logits[0], ids_BW)
        return found


class MTPHeadsModule(DistilledModule):
    """Trains MTP modules on a frozen target, with their chain unrolled as it drafts."""

    role = "target"

    def __init__(
        self,
        vocabulary: str,
        optimizer: OptimConfig,
        target: str,
        mtp_depth: int = 1,
        mtp_shared: bool = False,
        num_drafts: int = 4,
        objective: Objective = "log_alpha",
        own_text: float = 0.0,
        warm_start: bool = True,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        compile: bool = False,
        seed: int = 1337,
    ) -> None:
        """
        Args:
            vocabulary: the symbols in id order; linked to the data.
            optimizer: optimiser and schedule.
            target: checkpoint or run of the target; its main model stays as it is, so no main loss can change.
            mtp_depth: MTP modules.
            mtp_shared: one MTP module for all depths.
            num_drafts: drafts that are trained for, at least mtp_depth; those past it chain the last module, fed its
                own hidden states.
            objective: cross-entropy on text; or, towards the target, forward KL, -log of the acceptance Σ min(p, q), or
                the mean of those two (hybrid). The mean over drafts is minimised.
            own_text: share of every batch that is the target's own text, in place of the corpus.
            warm_start: begin with the target's own MTP modules where they are of this depth, else anew.
            dropout: on the residual branches of the modules.
            attention_dropout: on their attention weights; null: what the target was trained with.
            compile: compile the network with torch.compile.
            seed: seeds dropout; linked to seed_everything.
        """
        super().__init__(vocabulary, optimizer, target, objective, own_text, compile, seed)
        if not self.teacher:
            raise ValueError("MTP modules are trained on a target: name its checkpoint or run with --model.target")
        if mtp_depth < 1:
            raise ValueError(f"mtp_depth must be at least 1 where MTP modules are trained, got {mtp_depth}")
        check_shared(mtp_shared, mtp_depth)
        if num_drafts < mtp_depth:
            raise ValueError(f"num_drafts must be at least mtp_depth, got {num_drafts} and {mtp_depth}")
        self.num_drafts = num_drafts
        config = replace(self.teacher.net.config, dropout=dropout)
        if attention_dropout is not None:
            config = replace(config, attention_dropout=attention_dropout)
        net = MultiTokenGPT(config, mtp_depth, mtp_shared)
        net.gpt.load_state_dict(self.teacher.net.state_dict())
        own = self.teacher.mtp
        warm = warm_start and (own.depth, own.shared) == (mtp_depth, mtp_shared)
        if warm:
            net.mtp.load_state_dict(own.state_dict())
        net.gpt.requires_grad_(False)
        self._adopt(
            net,
            {"mtp_depth": mtp_depth, "mtp_shared": mtp_shared, "num_drafts": num_drafts, "warm_start": warm}
            | self.distilled,
            [f"mtp{k}" for k in range(mtp_depth + 1, num_drafts + 1)]
            + [name + of for of in self._drafts.values() for name in ("kl", "log_alpha", "alpha_exact")],
        )

    @property
    def lookahead(self) -> tuple[str, int]:
        return "num_drafts", self.num_drafts

    @property
    def _drafts(self) -> dict[str, str]:
        """Name of every draft's cross-entropy, and what the names of its other losses end with."""
        return {f"mtp{k}": f"_mtp{k}" for k in range(1, self.num_drafts + 1)}

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.net.gpt.eval()  # what is frozen has no dropout
        return self

    @property
    def description(self) -> dict[str, Any]:
        return super().description | {HEADS_OF: self.distilled["target_sha256"]}

    def losses(self, ids_BW: Tensor) -> dict[str, LossSum]:
        logits = self.net(ids_BW[:, :-1].clamp(min=0), num_drafts=self.num_drafts)
        found = depth_losses(logits, ids_BW)
        for k, of in enumerate(self._drafts.values(), start=1):
            losses = distillation_losses(logits[0][:, k:], logits[k], ids_BW[:, k:])
            found |= {name + of: pair for name, pair in losses.items()}
        return found

    def validation_objective(self, values: dict[str, Tensor]) -> Tensor:
        return torch.stack([self.of_objective(values, *names) for names in self._drafts.items()]).mean()


def check_shared(shared: bool, depth: int) -> None:
    """
    Raises:
        ValueError: one module would be shared by fewer than two depths.
    """
    if shared and depth < 2:
        raise ValueError(f"mtp_shared shares one module between depths and needs mtp_depth >= 2, got {depth}")
