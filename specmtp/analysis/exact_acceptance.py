"""alpha_exact: acceptance without sampling noise, from Σ min(p, q) at every position of a text.

Shapes: B windows, T inputs, W = T + 1 tokens a window, V symbols.
"""

import torch
from torch import Tensor

from specmtp.data.windows import PAD
from specmtp.decoding.sampling import Sampler
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

Sum = tuple[float, int]
"""Σ over positions, and their number."""


def overlap(p_BTV: Tensor, q_BTV: Tensor, valid_BT: Tensor) -> Sum:
    """(Σ over valid positions of Σ_x min(p, q), number of positions)."""
    beta_BT = torch.minimum(p_BTV, q_BTV).sum(-1)
    return float(beta_BT[valid_BT].double().sum()), int(valid_BT.sum())


@torch.inference_mode()
def draft_overlap(target: MultiTokenGPT, draft: GPT, sampler: Sampler, windows_BW: Tensor) -> Sum:
    """Overlap of target and draft model at every position of windows: what a first draft is accepted with."""
    ids_BT = windows_BW[:, :-1].clamp(min=0)
    return overlap(sampler(target.gpt(ids_BT)), sampler(draft(ids_BT)), windows_BW[:, 1:] != PAD)


@torch.inference_mode()
def mtp_overlap(target: MultiTokenGPT, sampler: Sampler, windows_BW: Tensor) -> list[Sum]:
    """Overlap of the main model with each MTP depth where both predict the same token, teacher-forced."""
    main_BTV, *depths = target(windows_BW[:, :-1].clamp(min=0))
    p_BTV = sampler(main_BTV)
    return [
        overlap(p_BTV[:, k:], sampler(q_BTV), windows_BW[:, k + 1 :] != PAD) for k, q_BTV in enumerate(depths, start=1)
    ]
