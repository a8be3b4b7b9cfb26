"""Optimiser and learning-rate schedule."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


@dataclass(frozen=True)
class OptimConfig:
    """AdamW with linear warm-up and then a cosine or a constant rate."""

    lr: float = 3e-3
    """Highest learning rate."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.99
    """Decay of the second moment."""
    weight_decay: float = 0.01
    """Decoupled weight decay, on every parameter."""
    warmup_steps: int = 100
    """Optimiser steps of linear warm-up."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """What follows the warm-up."""
    final_lr_ratio: float = 0.05
    """Where the cosine ends, as a part of lr."""

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        if self.weight_decay < 0 or self.warmup_steps < 0:
            raise ValueError("weight_decay and warmup_steps must not be negative")
        if not 0 <= self.final_lr_ratio <= 1:
            raise ValueError(f"final_lr_ratio must lie in [0, 1], got {self.final_lr_ratio}")


def lr_ratio(step: int, max_steps: int, config: OptimConfig) -> float:
    """The learning rate at an optimiser step as a part of ``config.lr``."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    done = min((step - config.warmup_steps) / max(max_steps - config.warmup_steps, 1), 1.0)
    return config.final_lr_ratio + (1 - config.final_lr_ratio) * (1 + math.cos(math.pi * done)) / 2


def make_optimizer(net: nn.Module, config: OptimConfig, max_steps: int) -> tuple[torch.optim.AdamW, LambdaLR]:
    """AdamW over all parameters of a network, and its schedule in optimiser steps."""
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=config.lr, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay
    )
    return optimizer, LambdaLR(optimizer, lambda step: lr_ratio(step, max_steps, config))
