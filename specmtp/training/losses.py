"""Losses as (sum, count) pairs: divide once, after everything is added up.

Shapes: B rows, T inputs, W = T + 1 tokens a window, V symbols.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specmtp.data.windows import PAD

LossSum = tuple[Tensor, Tensor]
"""Sum of the terms (nats) and their number (int64)."""


def depth_losses(logits: list[Tensor], ids_BW: Tensor) -> dict[str, LossSum]:
    """Cross-entropy of the main model ("main") and of every MTP depth ("mtp1", …), each with its own count.

    Depth k has T-k rows; row i is compared with token i+k+1. Tails are left out, padding has no term, nothing wraps.
    A depth for which no row is left has sum 0 and count 0.

    Args:
        logits: [B, T-k, V] for k = 0 (main), 1, 2, … as ``MultiTokenGPT.forward`` returns them.
        ids_BW: the window, inputs and the token after the last; ``PAD`` where there is no token.
    """
    losses = {}
    for k, logits_BTV in enumerate(logits):
        target = ids_BW[:, k + 1 :].flatten()
        total = F.cross_entropy(logits_BTV.flatten(0, 1).float(), target, ignore_index=PAD, reduction="sum")
        losses["main" if k == 0 else f"mtp{k}"] = (total, (target != PAD).sum())
    return losses


def distillation_losses(p_logits_BTV: Tensor, q_logits_BTV: Tensor, ids_BW: Tensor) -> dict[str, LossSum]:
    """How far a drafter (q) is from its target (p) where a token follows.

    "kl": Σ p (log p - log q). "log_alpha": -log Σ min(p, q), after the chance that a draft is accepted
    (Leviathan et al. 2023, Corollary 3.6). "alpha_exact": that chance itself.
    """
    counts_BT = ids_BW[:, 1:] != PAD
    log_p_NV, log_q_NV = (logits[counts_BT].float().log_softmax(-1) for logits in (p_logits_BTV, q_logits_BTV))
    log_alpha_N = torch.minimum(log_p_NV, log_q_NV).logsumexp(-1)
    number = counts_BT.sum()
    return {
        "kl": ((log_p_NV.exp() * (log_p_NV - log_q_NV)).sum(), number),
        "log_alpha": (-log_alpha_N.sum(), number),
        "alpha_exact": (log_alpha_N.exp().sum(), number),
    }


def mean(loss: LossSum) -> Tensor:
    """Sum / count; 0, with zero gradient, where there was no term."""
    total, count = loss
    return total / count.clamp(min=1)


def total_loss(losses: dict[str, LossSum], mtp_weight: float) -> Tensor:
    """Main + mtp_weight · mean over depths of the MTP losses (DeepSeek-V3, arXiv 2412.19437 eq. 24-25)."""
    depths = [mean(loss) for name, loss in losses.items() if name.startswith("mtp")]
    main = mean(losses["main"])
    return main + mtp_weight * torch.stack(depths).mean() if depths and mtp_weight else main
