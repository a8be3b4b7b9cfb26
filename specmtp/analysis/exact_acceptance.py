"""alpha_exact: acceptance without sampling noise, from Σ min(p, q) at every position of a text.

Shapes: B windows, T inputs, W = T + 1 tokens a window, N positions, V symbols.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.data.windows import PAD
from specmtp.decoding.sampling import Sampler
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

LogitPair = tuple[Tensor, Tensor]
"""Logits [N, V] of target and drafter for the same tokens."""


@dataclass(frozen=True)
class Agreement:
    """Sums over the positions of a text at which target and drafter predict the same token; add two to pool them."""

    beta_sum: float = 0.0
    """Σ of β = Σ_x min(p, q): the chance that a draft is accepted there."""
    same_best: int = 0
    """Positions where both hold the same token for the most probable one."""
    positions: int = 0

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(
            self.beta_sum + other.beta_sum, self.same_best + other.same_best, self.positions + other.positions
        )

    @property
    def alpha_exact(self) -> float | None:
        """Mean of β: what a first draft is accepted with."""
        return self.beta_sum / self.positions if self.positions else None

    @property
    def top1_agreement(self) -> float | None:
        return self.same_best / self.positions if self.positions else None


def agreement(pair: LogitPair, sampler: Sampler) -> Agreement:
    """What target and drafter have in common once both go through the sampler."""
    p_NV, q_NV = (sampler(logits_NV) for logits_NV in pair)
    same_N = p_NV.argmax(-1) == q_NV.argmax(-1)
    return Agreement(float(torch.minimum(p_NV, q_NV).sum(-1).cpu().double().sum()), int(same_N.sum()), len(p_NV))


@torch.inference_mode()
def paired_logits(target: MultiTokenGPT, draft: GPT | None, windows_BW: Tensor, first: int = 1) -> dict[str, LogitPair]:
    """Logits for the same tokens by drafter, teacher-forced: draft, mtp (depth 1), mtp2, ….

    Args:
        target: the target with its MTP modules.
        draft: the draft model, if there is one.
        windows_BW: ids; what is PAD is not predicted.
        first: place in a window of the first token that counts; what stands before is only read.
    """
    ids_BT = windows_BW[:, :-1].clamp(min=0)
    counts_BT = windows_BW[:, 1:] != PAD
    counts_BT[:, : first - 1] = False
    main_BTV, *depths = target.forward(ids_BT)  # not target(…): a compiled one would be compiled for this shape too
    pairs = {}
    if draft is not None:
        pairs["draft"] = main_BTV[counts_BT], draft(ids_BT)[counts_BT]
    for k, depth_BTV in enumerate(depths, start=1):
        counted_BT = counts_BT[:, k:]
        pairs["mtp" if k == 1 else f"mtp{k}"] = main_BTV[:, k:][counted_BT], depth_BTV[counted_BT]
    return pairs
