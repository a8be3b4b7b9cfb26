"""Proof that the output was not changed: causality and greedy identity. The law of samples is in sampling_check.py.

Shapes: B rows, T tokens, V symbols.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.nn.gpt import GPT

CAUSAL_LIMIT = 1e-5
"""Largest difference of fp32 logits that counts as none."""
TIE_GAP = {torch.float32: 1e-5, torch.bfloat16: 0.125}
"""Top-two gap of the logits below which a greedy choice is a tie, by the dtype of the weights: in bf16 a logit near 10
moves by 0.06 from rounding alone, and other shapes round differently."""


@torch.inference_mode()
def causal_difference(target: GPT, ids_T: Tensor, later: int = 8) -> float:
    """Largest difference of the logits of all but the last ``later`` positions, fed alone or with those behind them."""
    whole_BTV = target(ids_T[None])
    alone_BTV = target(ids_T[None, :-later])
    return float((whole_BTV[:, :-later] - alone_BTV).abs().max())


@dataclass(frozen=True)
class Divergence:
    """Where greedy outputs part for the first time."""

    prompt: int
    position: int
    gap: float
    """Top-two gap of the target's fp32 logits there."""


@dataclass(frozen=True)
class GreedyCheck:
    """Greedy speculative text against greedy plain text."""

    prompts: int
    tokens: int
    identical: int
    """Prompts with the same text throughout."""
    first_divergence: Divergence | None
    tie_gap: float

    @property
    def passed(self) -> bool:
        """Identical, or parted at a tie."""
        return self.first_divergence is None or self.first_divergence.gap < self.tie_gap


@torch.inference_mode()
def compare_greedy(
    target: GPT, prompts: Sequence[list[int]], plain: Sequence[list[int]], arm: Sequence[list[int]]
) -> GreedyCheck:
    """Compares texts token by token; of the divergences, the one with the widest gap is reported."""
    divergences = []
    for i, (prompt, a, b) in enumerate(zip(prompts, plain, arm, strict=True)):
        if a != b:
            shared = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            text = torch.tensor([[*prompt, *a[:shared]]], device=target.lm_head.weight.device)
            top = target(text)[0, -1].float().topk(2).values
            divergences.append(Divergence(i, shared, float(top[0] - top[1])))
    worst = max(divergences, key=lambda d: d.gap, default=None)
    tie_gap = TIE_GAP[target.lm_head.weight.dtype]
    return GreedyCheck(len(prompts), len(plain[0]), len(prompts) - len(divergences), worst, tie_gap)
