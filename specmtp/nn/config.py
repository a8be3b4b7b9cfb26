"""The shape of a GPT."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GPTConfig:
    """A LLaMA-style GPT: RMSNorm before, rotary positions, grouped-query attention, SwiGLU, untied head."""

    vocab_size: int = 65
    """Symbols; set from the corpus in training."""
    num_layers: int = 4
    """Transformer blocks."""
    d_model: int = 128
    """Width of the residual stream."""
    num_heads: int = 4
    """Query heads."""
    num_kv_heads: int = 2
    """Key and value heads; each serves num_heads / num_kv_heads query heads."""
    attention_window: int = 64
    """Positions a query sees, itself included, in training and decoding alike."""
    dropout: float = 0.1
    """Dropout on the two residual branches of a block."""
    attention_dropout: float = 0.0
    """Dropout on the attention weights; leaves the fast attention kernel."""
    head_bias: bool = False
    """A bias in the output head."""
    rope_base: float = 10000.0
    """Base of the rotary angles."""
    norm_eps: float = 1e-6
    """Epsilon of the RMSNorms."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "num_layers", "d_model", "num_heads", "num_kv_heads", "attention_window"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model must be a multiple of num_heads, got {self.d_model} and {self.num_heads}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"d_model / num_heads must be even for rotary positions, got {self.head_dim}")
        for name in ("rope_base", "norm_eps"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads

    @property
    def ffn_dim(self) -> int:
        """Width of the SwiGLU branch: 8/3 of d_model, rounded up to a multiple of 8."""
        return -(-8 * self.d_model // 24) * 8
