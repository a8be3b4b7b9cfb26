import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from specmtp.decoding.compiled import CompiledDecoder
from specmtp.decoding.drafters import Drafter, DraftModel, NoDrafter
from specmtp.decoding.loop import Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.sampling import Sampler
from specmtp.nn.cache import Geometry, KVCache
from specmtp.nn.config import GPTConfig
from specmtp.nn.fused import FusedGPT, FusedMultiTokenGPT
from specmtp.nn.gpt import GPT
from specmtp.nn.mtp import MultiTokenGPT

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 2)))

SMALL = GPTConfig(vocab_size=13, num_layers=2, d_model=32, num_heads=4, num_kv_heads=2, attention_window=8, dropout=0.0)
SMALL_DRAFT = GPTConfig(
    vocab_size=13, num_layers=1, d_model=16, num_heads=2, num_kv_heads=1, attention_window=6, dropout=0.0
)


def sharpened(net: nn.Module, factor: float = 4.0) -> nn.Module:
    """Random weights scaled up, so that distributions are far from uniform and greedy text is not constant."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 2:
                parameter.mul_(factor)
    return net.eval().requires_grad_(False)


def small_target(depth: int = 1, shared: bool = False, seed: int = 0, config: GPTConfig = SMALL) -> MultiTokenGPT:
    torch.manual_seed(seed)
    return sharpened(MultiTokenGPT(config, depth, shared))


def small_draft(seed: int = 1, config: GPTConfig = SMALL_DRAFT) -> GPT:
    torch.manual_seed(seed)
    return sharpened(GPT(config))


def make_drafter(kind: str, net: Any, draft: Any) -> Drafter:
    """A drafter over the small networks: plain, or three drafts a round."""
    makers = {"plain": lambda: NoDrafter(13), "draft": lambda: DraftModel(draft, 3), "mtp": lambda: MTPDrafter(net, 3)}
    return makers[kind]()


def eager_and_graph(
    kind: str, make: type[CompiledDecoder] = CompiledDecoder, batch: int = 1
) -> tuple[Decoder, CompiledDecoder]:
    """An eager decoder and one of graphs with the same weights."""
    net, draft = small_target(depth=2), small_draft()
    fused: Any = FusedMultiTokenGPT(net)
    graph = make(fused.gpt, make_drafter(kind, fused, FusedGPT(draft)), Sampler(), batch=batch)
    return Decoder(net.gpt, make_drafter(kind, net, draft), Sampler()), graph


class TableGPT(nn.Module):
    """A target or draft whose next-token distribution is a row of a table, by the last token."""

    def __init__(self, table: list[list[float]]) -> None:
        super().__init__()
        size = len(table[0])
        self.config = GPTConfig(
            vocab_size=size, num_layers=1, d_model=2, num_heads=1, num_kv_heads=1, attention_window=4
        )
        self.lm_head = nn.Linear(1, size)
        self.log_p = torch.tensor(table).log()

    def hidden(self, ids_BT: Tensor, cache: KVCache | None = None, geometry: Geometry | None = None) -> Tensor:
        return ids_BT[..., None].float()

    def last_hidden(self, ids_BT: Tensor, cache: KVCache, geometry: Geometry) -> Tensor:
        return self.hidden(ids_BT)[:, -1:]

    def logits(self, h_BTD: Tensor) -> Tensor:
        return self.log_p[h_BTD[..., 0].long()]

    def forward(self, ids_BT: Tensor) -> Tensor:
        return self.logits(self.hidden(ids_BT))


@pytest.fixture
def shakespeare() -> Path:
    folder = os.environ.get("SPECMTP_DATA")
    file = Path(folder or ".") / "tinyshakespeare.txt"
    if not folder or not file.exists():
        pytest.skip("needs tinyshakespeare.txt in the folder SPECMTP_DATA names")
    return file
