"""Networks in the form that decoding likes: few and wide matrix products, weights transposed and contiguous.

The same function up to rounding, for inference with a cache: the scales of the norms are folded into the products that
follow, q, k and v are one product, gate and up another.

Shapes: B rows, T tokens, N = B·T, D width, H query heads, K key-value heads, R = H / K, E head width, S cache slots,
Q = R·T queries of a key-value head, F feed-forward width, V symbols.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specmtp.nn.cache import Geometry, KVCache
from specmtp.nn.config import GPTConfig
from specmtp.nn.gpt import GPT
from specmtp.nn.layers import Block, LayerCache, rotate
from specmtp.nn.mtp import MTPModule, MultiTokenGPT


class FusedGPT(nn.Module):
    """A GPT for decoding; like ``GPT`` to drafters and rounds. Without a cache the network it was made from answers."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.config, self.unfused = gpt.config, gpt
        self.embed_tokens, self.lm_head = gpt.embed_tokens, gpt.lm_head
        self.layers = nn.ModuleList(FusedBlock(block) for block in gpt.layers)  # type: ignore[arg-type]
        self.head_DV = _transposed(gpt.lm_head.weight * gpt.norm.weight)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Next-token logits without a cache, [B, T, V]."""
        return self.unfused(ids_BT)

    def hidden(self, ids_BT: Tensor, cache: KVCache, geometry: Geometry) -> Tensor:
        """The last block's output before the final norm, [B, T, D]."""
        return self._hidden(ids_BT, cache, geometry, last=False)

    def last_hidden(self, ids_BT: Tensor, cache: KVCache, geometry: Geometry) -> Tensor:
        """The last token's row of ``hidden``, [B, 1, D]; of the others the last block makes keys and values alone."""
        return self._hidden(ids_BT, cache, geometry, last=True)

    def _hidden(self, ids_BT: Tensor, cache: KVCache, geometry: Geometry, last: bool) -> Tensor:
        h_BTD, geometry = self.embed_tokens(ids_BT), biased(geometry)
        for i, block in enumerate(self.layers):
            h_BTD = block(h_BTD, geometry, cache.layer(i), last and i == len(self.layers) - 1)
        return h_BTD

    def logits(self, h_BTD: Tensor) -> Tensor:
        """Final norm and head: [B, T, V]."""
        logits = product(_normed(h_BTD, self.config), self.head_DV)
        return logits if self.lm_head.bias is None else logits + self.lm_head.bias


class FusedBlock(nn.Module):
    """A ``Block`` in two products before and two behind attention and feed-forward."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        attention, mlp = block.self_attn, block.mlp
        self.config = attention.config
        projections = torch.cat([p.weight for p in (attention.q_proj, attention.k_proj, attention.v_proj)])
        self.qkv_DO = _transposed(projections * block.input_layernorm.weight)
        self.out_OD = _transposed(attention.o_proj.weight)
        gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        self.gate_up_DF = _transposed(gate_up * block.post_attention_layernorm.weight)
        self.down_FD = _transposed(mlp.down_proj.weight)

    def forward(self, x_BTD: Tensor, geometry: Geometry, cache: LayerCache, last: bool = False) -> Tensor:
        """All rows, or the last one alone, while all write their keys and values."""
        qkv_BTO = product(_normed(x_BTD, self.config), self.qkv_DO)
        x_BTD = x_BTD[:, -1:] if last else x_BTD
        x_BTD = x_BTD + product(self._attend(qkv_BTO, geometry, cache, last), self.out_OD)
        gate_BTF, up_BTF = product(_normed(x_BTD, self.config), self.gate_up_DF).chunk(2, -1)
        return x_BTD + product(F.silu(gate_BTF) * up_BTF, self.down_FD)

    def _attend(self, qkv_BTO: Tensor, geometry: Geometry, cache: LayerCache, last: bool) -> Tensor:
        """Writes keys and values into the ring and attends over it; products so small that sums are cheaper."""
        B, T, _ = qkv_BTO.shape
        H, K, E = self.config.num_heads, self.config.num_kv_heads, self.config.head_dim
        qk_BTHE, v_BTKE = qkv_BTO.view(B, T, H + 2 * K, E).split([H + K, K], 2)
        q_BTHE, k_BTKE = rotate(qk_BTHE, geometry).split([H, K], 2)
        assert geometry.slot_BT is not None and geometry.mask is not None
        row, head = (torch.arange(n, device=qkv_BTO.device) for n in (B, K))
        place_BKT = row[:, None, None], head[:, None], geometry.slot_BT[:, None]
        key_BKES, value_BKSE = cache[0].view(B, K, E, -1), cache[1]
        column_E = torch.arange(E, device=qkv_BTO.device)
        row, head, slot = (x[..., None] for x in place_BKT)
        key_BKES.index_put_((row, head, column_E, slot), k_BTKE.transpose(1, 2).to(key_BKES.dtype))
        value_BKSE.index_put_(place_BKT, v_BTKE.transpose(1, 2).to(value_BKSE.dtype))
        mask = geometry.mask
        if last:
            q_BTHE, mask, T = q_BTHE[:, -1:], mask[:, :, -(H // K) :], 1
        q_BKQE = q_BTHE.reshape(B, T, K, -1, E).transpose(1, 2).reshape(B, K, -1, E) * E**-0.5
        score_BKQS = (q_BKQE[..., None] * key_BKES[:, :, None]).float().sum(-2)
        score_BKQS = score_BKQS + mask
        weight_BKQS = (score_BKQS - score_BKQS.amax(-1, keepdim=True)).exp()
        y_BKQE = (weight_BKQS[..., None] * value_BKSE[:, :, None]).sum(-2) / weight_BKQS.sum(-1, keepdim=True)
        return y_BKQE.view(B, K, T, -1, E).transpose(1, 2).reshape(B, T, H * E).to(qkv_BTO.dtype)


class FusedMTPModule(nn.Module):
    """An ``MTPModule`` for decoding."""

    def __init__(self, module: MTPModule, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        scale = torch.cat([module.hidden_norm.weight, module.embed_norm.weight])
        self.proj_DD = _transposed(module.proj.weight * scale)
        self.block = FusedBlock(module.block)

    def forward(
        self, h_BTD: Tensor, embedded_BTD: Tensor, geometry: Geometry, cache: LayerCache, last: bool = False
    ) -> Tensor:
        """The hidden state of this depth before the final norm, [B, T, D], or its last row alone, [B, 1, D]."""
        geometry = biased(geometry)
        joined = torch.cat([_normed(h_BTD, self.config), _normed(embedded_BTD, self.config)], -1)
        return self.block(product(joined, self.proj_DD), geometry, cache, last)


class FusedMTP(nn.Module):
    """The modules of all depths; see ``MTP``."""

    def __init__(self, net: MultiTokenGPT) -> None:
        super().__init__()
        self.depth, self.shared = net.mtp.depth, net.mtp.shared
        modules = [FusedMTPModule(m, net.gpt.config) for m in net.mtp.modules_by_depth]  # type: ignore[arg-type]
        self.modules_by_depth = nn.ModuleList(modules)

    def at(self, depth: int) -> nn.Module:
        """The module of a depth, counted from 1."""
        return self.modules_by_depth[0 if self.shared else depth - 1]


class FusedMultiTokenGPT(nn.Module):
    """A ``MultiTokenGPT`` for decoding."""

    def __init__(self, net: MultiTokenGPT) -> None:
        super().__init__()
        self.gpt, self.mtp = FusedGPT(net.gpt), FusedMTP(net)


SMALL_ROWS, SMALL_PRODUCT = 2, 24_000
"""Up to so many rows, and rows times weights, a product is cheaper as a sum, which a compiler fuses with what stands
around it, than as a call of the matrix library."""
TILE_ROWS, TILED_ROWS = 6, 16
"""The compiler's template of products on a CPU is slow above so many rows: up to the second number they are cut into
pieces (beyond it, the matrix library is faster)."""


def product(x_BTD: Tensor, weight_DO: Tensor) -> Tensor:
    """X @ weight."""
    rows = x_BTD.numel() // x_BTD.shape[-1]
    if torch.compiler.is_compiling() and rows <= SMALL_ROWS and rows * weight_DO.numel() <= SMALL_PRODUCT:
        return (x_BTD[..., None] * weight_DO).sum(-2)
    if torch.compiler.is_compiling() and TILE_ROWS < rows <= TILED_ROWS and x_BTD.device.type == "cpu":
        pieces = x_BTD.flatten(0, -2).tensor_split(-(-rows // TILE_ROWS))
        return torch.cat([piece @ weight_DO for piece in pieces]).view(*x_BTD.shape[:-1], -1)
    return x_BTD @ weight_DO


UNSEEN = -1e30


def biased(geometry: Geometry) -> Geometry:
    """The geometry with its mask as what is added to scores: 0, or little enough; what sees nothing stays finite."""
    assert geometry.mask is not None
    cos_BTE, sin_BTE = kept(geometry.cos_BTE), kept(geometry.sin_BTE)
    return replace(geometry, cos_BTE=cos_BTE, sin_BTE=sin_BTE, mask=geometry.mask.float().log().clamp(min=UNSEEN))


def kept(x_BTE: Tensor) -> Tensor:
    """The same values, in memory: a compiler would rather compute a cosine anew for every layer and head.

    (What is written by index is kept.)
    """
    if not torch.compiler.is_compiling():
        return x_BTE
    index_T = torch.arange(x_BTE.shape[1], device=x_BTE.device)
    return torch.zeros_like(x_BTE).index_put_((torch.arange(len(x_BTE), device=x_BTE.device)[:, None], index_T), x_BTE)


def _transposed(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().t().contiguous(), requires_grad=False)


def _normed(x_BTD: Tensor, config: GPTConfig) -> Tensor:
    """RMSNorm without its scale, which stands in the product behind it."""
    x32_BTD = x_BTD.float()
    return (x32_BTD * torch.rsqrt(x32_BTD.square().mean(-1, keepdim=True) + config.norm_eps)).to(x_BTD.dtype)
