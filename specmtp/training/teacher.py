"""A frozen target that a drafter is trained towards.

Shapes: B rows, T inputs, W = T + 1 tokens a window, N rows of own text, V symbols.
"""

import torch
from torch import Tensor

from specmtp.checkpoint import checkpoint_file, load
from specmtp.data.seeding import mix
from specmtp.data.vocabulary import Vocabulary
from specmtp.decoding.drafters import NoDrafter
from specmtp.decoding.loop import Decoder

OWN_ROWS, OWN_TOKENS = 256, 1024
"""The target's own text: as many samples, each begun by a newline (the first symbol where there is none)."""


class Teacher:
    """The target of a checkpoint. It is no module of the run, so neither its checkpoints nor its optimiser hold it."""

    def __init__(self, path: str, vocabulary: Vocabulary) -> None:
        """
        Raises:
            ValueError: no such checkpoint, no target, or one of another vocabulary.
        """
        checkpoint = load(checkpoint_file(path))
        if checkpoint.role != "target":
            raise ValueError(f"model.target {path} holds a {checkpoint.role}, a target is wanted")
        if checkpoint.vocabulary != vocabulary:
            raise ValueError(f"model.target {path} was trained on another vocabulary than this text's")
        self.net, self.mtp, self.sha256 = checkpoint.net.gpt, checkpoint.net.mtp, checkpoint.sha256
        self._newline = max(vocabulary.symbols.find("\n"), 0)
        self._own_NW: Tensor | None = None

    @torch.no_grad()
    def logits(self, ids_BT: Tensor) -> Tensor:
        """Next-token logits, [B, T, V]."""
        return self.net.to(ids_BT.device)(ids_BT)

    @torch.inference_mode()
    def write(self, seed: int) -> None:
        """Writes its own text, which ``own_windows`` takes pieces of."""
        decoder = Decoder(self.net, NoDrafter(self.net.config.vocab_size))
        self._own_NW = torch.tensor(decoder.generate([[self._newline]] * OWN_ROWS, OWN_TOKENS, seed).tokens)

    def own_windows(self, rows: int, width: int, *key: int) -> Tensor:
        """Windows of its own text at places that the key decides, [rows, width]."""
        assert self._own_NW is not None
        generator = torch.Generator().manual_seed(mix(*key))
        row_B = torch.randint(OWN_ROWS, (rows,), generator=generator)
        start_B = torch.randint(OWN_TOKENS - width + 1, (rows,), generator=generator)
        return self._own_NW[row_B[:, None], start_B[:, None] + torch.arange(width)]
