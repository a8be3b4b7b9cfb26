"""The GPT: one class for target and draft.

Shapes: B rows, T tokens, D width, V symbols.
"""

from torch import Tensor, nn

from specmtp.nn.cache import Geometry, KVCache, causal_geometry
from specmtp.nn.config import GPTConfig
from specmtp.nn.layers import Block, RMSNorm, init_weights


class GPT(nn.Module):
    """A decoder-only transformer, parameters named as in Hugging Face's LLaMA.

    Without a cache a forward stands at positions 0..T-1. With a cache it stands where ``geometry`` says and writes its
    keys and values there.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=config.head_bias)
        self.apply(init_weights)

    def hidden(self, ids_BT: Tensor, cache: KVCache | None = None, geometry: Geometry | None = None) -> Tensor:
        """The last block's output before the final norm, [B, T, D]."""
        if geometry is None:
            assert cache is None, "a forward with a cache needs cache.geometry(start_B, T)"
            geometry = causal_geometry(ids_BT.shape[1], self.config, ids_BT.device)
        h_BTD = self.embed_tokens(ids_BT)
        for i, block in enumerate(self.layers):
            h_BTD = block(h_BTD, geometry, cache.layer(i) if cache else None)
        return h_BTD

    def last_hidden(self, ids_BT: Tensor, cache: KVCache, geometry: Geometry) -> Tensor:
        """The last token's row of ``hidden``, [B, 1, D]."""
        return self.hidden(ids_BT, cache, geometry)[:, -1:]

    def logits(self, h_BTD: Tensor) -> Tensor:
        """Final norm and head: [B, T, V]."""
        return self.lm_head(self.norm(h_BTD))

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Next-token logits, [B, T, V]."""
        return self.logits(self.hidden(ids_BT))
