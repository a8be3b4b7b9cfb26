"""Sequential multi-token prediction (DeepSeek-V3, arXiv 2412.19437 §2.2).

Depth k reads the hidden state of depth k-1 at position i (k = 1: of the trunk) and the embedding of token i+k, and
predicts token i+k+1. Embedding, final norm and head are the target's.

Four-token example, inputs 5 6 7 8, next token 9:
    main     rows (5) (6) (7) (8)              predict 6 7 8 9
    depth 1  rows (h5, 6) (h6, 7) (h7, 8)      predict 7 8 9
    depth 2  rows (h'5, 7) (h'6, 8)            predict 8 9

Drafts past the last depth chain its module: it is fed its own output as hidden state, one position on. ``forward`` can
unroll that as decoding does, for training (as HASS, arXiv 2408.15766, and EAGLE-3, arXiv 2503.01840, do).

Shapes: B rows, T tokens, D width, V symbols, S keys.
"""

import torch
from torch import Tensor, nn

from specmtp.nn.cache import Geometry, causal_geometry, chained_geometry
from specmtp.nn.config import GPTConfig
from specmtp.nn.gpt import GPT
from specmtp.nn.layers import Block, Kept, LayerCache, RMSNorm, init_weights


class MTPModule(nn.Module):
    """One depth: block(proj(norm(h) ‖ norm(emb)))."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.hidden_norm = RMSNorm(config.d_model, config.norm_eps)
        self.embed_norm = RMSNorm(config.d_model, config.norm_eps)
        self.proj = nn.Linear(2 * config.d_model, config.d_model, bias=False)
        self.block = Block(config)

    def forward(
        self,
        h_BTD: Tensor,
        embedded_BTD: Tensor,
        geometry: Geometry,
        cache: LayerCache | Kept | None = None,
        last: bool = False,
    ) -> Tensor:
        """The hidden state of this depth before the final norm, [B, T, D], or its last row alone, [B, 1, D]."""
        joined_BTD = self.proj(torch.cat([self.hidden_norm(h_BTD), self.embed_norm(embedded_BTD)], -1))
        out_BTD: Tensor = self.block(joined_BTD, geometry, cache)
        return out_BTD[:, -1:] if last else out_BTD


class MTP(nn.Module):
    """The modules of depths 1..depth: one each, or one for all where ``shared``."""

    def __init__(self, config: GPTConfig, depth: int, shared: bool = False) -> None:
        """
        Raises:
            ValueError: depth is negative.
        """
        super().__init__()
        if depth < 0:
            raise ValueError(f"mtp_depth must not be negative, got {depth}")
        self.depth, self.shared = depth, shared
        self.modules_by_depth = nn.ModuleList(MTPModule(config) for _ in range(min(depth, 1) if shared else depth))
        self.apply(init_weights)

    def at(self, depth: int) -> MTPModule:
        """The module of a depth, counted from 1."""
        assert 1 <= depth <= self.depth
        module = self.modules_by_depth[0 if self.shared else depth - 1]
        assert isinstance(module, MTPModule)
        return module


class MultiTokenGPT(nn.Module):
    """A GPT with its MTP modules (none at depth 0): what a training run trains and a checkpoint holds."""

    def __init__(self, config: GPTConfig, mtp_depth: int = 0, mtp_shared: bool = False) -> None:
        super().__init__()
        self.gpt = GPT(config)
        self.mtp = MTP(config, mtp_depth, mtp_shared)

    def num_parameters(self) -> dict[str, int]:
        """Parameters of the GPT and of all MTP modules together."""
        return {name: sum(p.numel() for p in part.parameters()) for name, part in self.named_children()}

    def forward(self, ids_BT: Tensor, num_drafts: int = 0) -> list[Tensor]:
        """Logits of the main model [B, T, V], then of each draft k [B, T-k, V] as far as T-k > 0.

        Args:
            ids_BT: the tokens.
            num_drafts: how many drafts; those past the last depth are chained. At least as many as depths.
        """
        num_tokens, depth, device = ids_BT.shape[1], self.mtp.depth, ids_BT.device
        h_BTD = self.gpt.hidden(ids_BT)
        logits, kept = [self.gpt.logits(h_BTD)], Kept()
        for k in range(1, min(max(num_drafts, depth), num_tokens - 1) + 1):
            rows = num_tokens - k
            if k <= depth:
                module, geometry = self.mtp.at(k), causal_geometry(rows, self.gpt.config, device)
            else:
                geometry = chained_geometry(rows, num_tokens - depth, k - depth, self.gpt.config, device)
            embedded_BTD = self.gpt.embed_tokens(ids_BT[:, k:])
            h_BTD = module(h_BTD[:, :rows], embedded_BTD, geometry, kept if depth <= k and num_drafts > depth else None)
            logits.append(self.gpt.logits(h_BTD))
        return logits
