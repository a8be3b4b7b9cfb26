"""The randomness of decoding: independent uniforms, drawn ahead and passed in.

Row i of a call draws from its own generator seeded (seed, i), in chunks of a fixed number of rounds: its tokens depend
neither on the batch nor on its neighbours, and the global RNG is untouched.

Shapes: B rows, G drafts a round (gamma).
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specmtp.data.seeding import mix

CHUNK_ROUNDS = 32


@dataclass(frozen=True)
class Noise:
    """Uniforms in [0, 1) of one round."""

    draft_v_BG: Tensor
    """Draws the drafts."""
    accept_u_BG: Tensor
    """Accepts or rejects them."""
    emit_v_B: Tensor
    """Draws the token after the last accepted draft."""

    @classmethod
    def split(cls, uniform: Tensor) -> "Noise":
        """The noise of a round from [B, 2·G + 1] uniforms."""
        gamma = uniform.shape[-1] // 2
        return cls(uniform[:, :gamma], uniform[:, gamma : 2 * gamma], uniform[:, -1])


def uniform_chunks(seed: int | None, batch: int, gamma: int, device: torch.device | str = "cpu") -> Iterator[Tensor]:
    """The uniforms [CHUNK_ROUNDS, B, 2·G + 1] of so many rounds at once, without end; unseeded: new every time."""
    seed = secrets.randbits(63) if seed is None else seed
    generators = [torch.Generator(device=device).manual_seed(mix(seed, row)) for row in range(batch)]
    while True:
        rows = [torch.rand(CHUNK_ROUNDS, 2 * gamma + 1, generator=g, device=device) for g in generators]
        yield torch.stack(rows, 1)


def noise_stream(seed: int | None, batch: int, gamma: int, device: torch.device | str = "cpu") -> Iterator[Noise]:
    """The noise of one round after another, without end."""
    for uniform_RBU in uniform_chunks(seed, batch, gamma, device):
        yield from map(Noise.split, uniform_RBU.unbind())
