"""From logits to the distribution that is really sampled, and from uniforms to tokens.

Shapes: … any leading dimensions, V symbols.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy, for every decoder: the distribution is a one-hot."""


@dataclass(frozen=True)
class Sampler:
    """Temperature, then top-k, then top-p: one object for plain, draft, verify, residual and bonus.

    At temperature 0 the distribution is a one-hot at the highest logit (lowest index on ties), so the accept rule
    needs no special case. Top-k keeps exactly k symbols (lower index on ties).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.temperature, bool) or not isinstance(self.temperature, int | float):
            raise ValueError(f"temperature must be a number, got {self.temperature!r}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be finite and not negative, got {self.temperature}")
        if self.top_k is not None and (
            isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 0
        ):
            raise ValueError(f"top_k must be a whole number from 1 (0 or none: off), got {self.top_k!r}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1] (none: off), got {self.top_p}")

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    def __call__(self, logits: Tensor) -> Tensor:
        """Probabilities, float32 [..., V], rows summing to 1."""
        logits = logits.float()
        if self.greedy:
            return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
        logits = (logits - logits.amax(-1, keepdim=True)) / self.temperature
        k = min(self.top_k or logits.shape[-1], logits.shape[-1])
        top_p = 1.0 if self.top_p is None else self.top_p
        if k == logits.shape[-1] and top_p == 1:
            return logits.softmax(-1)
        ordered, index = logits.sort(dim=-1, descending=True, stable=True)
        ordered[..., k:] = -torch.inf
        if top_p < 1:
            probs = ordered.softmax(-1)
            ordered = ordered.masked_fill(probs.cumsum(-1) - probs >= top_p, -torch.inf)
            ordered[..., 0] = 0.0  # the best symbol always stays
        return torch.empty_like(ordered).scatter_(-1, index, ordered.softmax(-1))


def sample(mass: Tensor, v: Tensor) -> Tensor:
    """The token of inverse CDF sampling, int64 [...].

    The smallest index i with v·total < cumsum(mass)[i] and mass[i] > 0; the last index of positive mass where rounding
    leaves none.

    Args:
        mass: non-negative weights, float32 [..., V]; their own sum is the normaliser.
        v: uniforms in [0, 1), [...].
    """
    cdf = _cumulative(mass)
    positive = mass > 0
    below = (v[..., None] * cdf[..., -1:] < cdf) & positive
    last_positive = mass.shape[-1] - 1 - positive.flip(-1).int().argmax(-1)
    return torch.where(below.any(-1), below.int().argmax(-1), last_positive)


FEW_SYMBOLS = 256


def _cumulative(mass: Tensor) -> Tensor:
    """cumsum(mass); in a graph, as far as it is cheaper, by sums that the compiler fuses with what stands around."""
    num = mass.shape[-1]
    if torch.compiler.is_compiling() and num <= FEW_SYMBOLS:
        index = torch.arange(num, device=mass.device)
        return torch.where(index <= index[:, None], mass[..., None, :], 0.0).sum(-1)
    return mass.cumsum(-1)
