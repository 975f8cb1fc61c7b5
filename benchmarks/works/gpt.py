"""The GPT of `examples/gpt.py` without the other imports of that; the head is the embedding."""

from __future__ import annotations

import ruda
import ruda.nn.functional as F
from ruda import nn


class Attention(nn.Module):
    """Causal self-attention over `x: (batch, time, width)`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        batch, time, width = x.shape
        split = self.qkv(x).reshape((batch, time, 3, self.heads, width // self.heads))
        q, k, v = ruda.unstack(split.permute_dims((2, 0, 3, 1, 4)))
        mixed = F.attention(q, k, v, is_causal=True)
        return self.out(mixed.permute_dims((0, 2, 1, 3)).reshape((batch, time, width)))


class Block(nn.Module):
    """One layer: attention, then a two-layer network, each beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        wide, gelu = 4 * width, nn.GELU(approximate="tanh")
        self.mlp = nn.Sequential(nn.Linear(width, wide), gelu, nn.Linear(wide, width))

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """From `tokens: (batch, time)` to `logits: (batch, time, vocabulary)`."""

    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens: ruda.Tensor) -> ruda.Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))
