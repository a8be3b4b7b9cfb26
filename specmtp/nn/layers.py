"""The layers of a LLaMA-style block.

Shapes: B rows, T tokens, D width of the residual stream, H query heads, K key-value heads, R = H / K, E head width,
S cache slots, F feed-forward width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specmtp.nn.cache import Geometry
from specmtp.nn.config import GPTConfig

LayerCache = tuple[Tensor, Tensor]
"""Keys and values of one layer, [B, K, S, E] each."""


class Kept:
    """Keys and values of earlier forwards of one layer, for training: added to, never written over."""

    def __init__(self) -> None:
        self.forwards: list[LayerCache] = []

    def with_new(self, k_BKTE: Tensor, v_BKTE: Tensor) -> LayerCache:
        """All that is kept and the new ones behind: of the first forward everything, of later ones so many rows."""
        self.forwards.append((k_BKTE, v_BKTE))
        rows = k_BKTE.shape[2]
        first, *later = self.forwards
        keys, values = (torch.cat([first[i], *(f[i][:, :, :rows] for f in later)], 2) for i in (0, 1))
        return keys, values


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight, computed in float32 (Zhang & Sennrich 2019, arXiv 1910.07467)."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x_BTD: Tensor) -> Tensor:
        # written out: F.rms_norm costs three times as much in an eager one-token step on a CPU
        x32_BTD = x_BTD.float()
        scale_BT1 = torch.rsqrt(x32_BTD.square().mean(-1, keepdim=True) + self.eps)
        return (x32_BTD * scale_BT1 * self.weight).to(x_BTD.dtype)


def rotate(x_BTHE: Tensor, geometry: Geometry) -> Tensor:
    """Heads turned by their rotary angles; the two halves of E are the pairs."""
    a, b = x_BTHE.float().chunk(2, -1)
    cos, sin = geometry.cos_BTE[:, :, None], geometry.sin_BTE[:, :, None]
    return (x_BTHE * cos + torch.cat([-b, a], -1) * sin).to(x_BTHE.dtype)


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245) with rotary positions."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        d, e = config.d_model, config.head_dim
        self.q_proj = nn.Linear(d, config.num_heads * e, bias=False)
        self.k_proj = nn.Linear(d, config.num_kv_heads * e, bias=False)
        self.v_proj = nn.Linear(d, config.num_kv_heads * e, bias=False)
        self.o_proj = nn.Linear(config.num_heads * e, d, bias=False)

    def forward(self, x_BTD: Tensor, geometry: Geometry, cache: LayerCache | Kept | None) -> Tensor:
        B, T, _ = x_BTD.shape
        H, K, E = self.config.num_heads, self.config.num_kv_heads, self.config.head_dim
        q_BTHE = rotate(self.q_proj(x_BTD).view(B, T, H, E), geometry)
        k_BKTE = rotate(self.k_proj(x_BTD).view(B, T, K, E), geometry).transpose(1, 2)
        v_BKTE = self.v_proj(x_BTD).view(B, T, K, E).transpose(1, 2)
        if not isinstance(cache, tuple):
            if cache is not None:
                k_BKTE, v_BKTE = cache.with_new(k_BKTE, v_BKTE)
            y_BHTE = F.scaled_dot_product_attention(
                q_BTHE.transpose(1, 2),
                k_BKTE.repeat_interleave(H // K, 1),
                v_BKTE.repeat_interleave(H // K, 1),
                attn_mask=geometry.mask,
                dropout_p=self.config.attention_dropout if self.training else 0.0,
                is_causal=geometry.mask is None,
            )
            y_BTD = y_BHTE.transpose(1, 2).reshape(B, T, H * E)
        else:
            assert geometry.slot_BT is not None
            slot = geometry.slot_BT[:, None, :, None].expand(B, K, T, E)
            for ring_BKSE, new_BKTE in zip(cache, (k_BKTE, v_BKTE), strict=True):
                ring_BKSE.scatter_(2, slot, new_BKTE.to(ring_BKSE.dtype))
            # the R query heads of a key-value head stand as R more queries: keys and values are not repeated
            q_BKQE = q_BTHE.view(B, T, K, -1, E).transpose(1, 2).reshape(B, K, -1, E)
            y_BKQE = F.scaled_dot_product_attention(q_BKQE.to(cache[0].dtype), *cache, attn_mask=geometry.mask)
            y_BTD = y_BKQE.view(B, K, T, -1, E).transpose(1, 2).reshape(B, T, H * E).to(x_BTD.dtype)
        return self.o_proj(y_BTD)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)) (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.up_proj = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.down_proj = nn.Linear(config.ffn_dim, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD))


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.d_model, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = SwiGLU(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BTD: Tensor, geometry: Geometry, cache: LayerCache | Kept | None = None) -> Tensor:
        x_BTD = x_BTD + self.dropout(self.self_attn(self.input_layernorm(x_BTD), geometry, cache))
        return x_BTD + self.dropout(self.mlp(self.post_attention_layernorm(x_BTD)))


def init_weights(module: nn.Module) -> None:
    """Normal(0, 0.02) for matrices and tables, zero for biases: the first loss is near ln V."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
