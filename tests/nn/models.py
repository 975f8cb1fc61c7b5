"""Small models in ruda and, with the same names of parameters, in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

import ruda
import ruda.nn.functional as F
from ruda import nn

VOCABULARY, CONTEXT, WIDTH = 11, 6, 16


def mlp(nn: Any, dtype: Any) -> Any:
    """Two layers with a smooth and a broken activation between them."""
    return nn.Sequential(
        nn.Linear(5, 16, dtype=dtype),
        nn.Tanh(),
        nn.Linear(16, 8, dtype=dtype),
        nn.ReLU(),
        nn.Linear(8, 3, dtype=dtype),
    )


def conv_net(nn: Any, dtype: Any) -> Any:
    """A convolution with batch norm, pooled, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, dtype=dtype),
        nn.BatchNorm2d(6, dtype=dtype),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, bias=False, dtype=dtype),
        nn.BatchNorm2d(8, dtype=dtype),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3, dtype=dtype),
    )


class Block(nn.Module):
    """Attention and a two-layer network, each beside a shortcut."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(WIDTH, dtype=dtype)
        self.attn = nn.MultiHeadAttention(WIDTH, 4, dtype=dtype)
        self.ln2 = nn.LayerNorm(WIDTH, dtype=dtype)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, dtype=dtype)
        self.down = nn.Linear(2 * WIDTH, WIDTH, dtype=dtype)

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x)), "tanh"))


class GPT(nn.Module):
    """Two blocks of width 16, with the table of tokens tied to the last layer."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH, dtype=dtype)
        self.position = nn.Embedding(CONTEXT, WIDTH, dtype=dtype)
        self.blocks = nn.ModuleList([Block(dtype), Block(dtype)])
        self.norm = nn.LayerNorm(WIDTH, dtype=dtype)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=dtype)
        self.head.weight = self.token.weight

    def forward(self, tokens: ruda.Tensor) -> ruda.Tensor:
        x = self.token(tokens) + self.position(ruda.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def torch_gpt(torch: Any, dtype: Any) -> Any:
    """``GPT`` in PyTorch, on its own attention."""
    tnn = torch.nn

    class TorchBlock(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1 = tnn.LayerNorm(WIDTH, dtype=dtype)
            self.attn = tnn.MultiheadAttention(WIDTH, 4, batch_first=True, dtype=dtype)
            self.ln2 = tnn.LayerNorm(WIDTH, dtype=dtype)
            self.up = tnn.Linear(WIDTH, 2 * WIDTH, dtype=dtype)
            self.down = tnn.Linear(2 * WIDTH, WIDTH, dtype=dtype)

        def forward(self, x: Any) -> Any:
            hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            y = self.ln1(x)
            x = x + self.attn(y, y, y, attn_mask=hidden, need_weights=False)[0]
            inner = tnn.functional.gelu(self.up(self.ln2(x)), approximate="tanh")
            return x + self.down(inner)

    class TorchGPT(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = tnn.Embedding(VOCABULARY, WIDTH, dtype=dtype)
            self.position = tnn.Embedding(CONTEXT, WIDTH, dtype=dtype)
            self.blocks = tnn.ModuleList([TorchBlock(), TorchBlock()])
            self.norm = tnn.LayerNorm(WIDTH, dtype=dtype)
            self.head = tnn.Linear(WIDTH, VOCABULARY, bias=False, dtype=dtype)
            self.head.weight = self.token.weight

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return TorchGPT()


def pair(name: str, torch: Any, dtype: str) -> tuple[Any, Any]:
    """The model ``name`` in ruda and in PyTorch, with the parameters of the latter in both."""
    kind = getattr(torch, dtype)
    if name == "gpt":
        own, other = GPT(dtype), torch_gpt(torch, kind)
    else:
        build = {"mlp": mlp, "conv": conv_net}[name]
        own, other = build(nn, dtype), build(torch.nn, kind)
    own.load_state_dict(other.state_dict())
    return own, other


def batch(name: str, dtype: str, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of one step."""
    rng = np.random.default_rng(step)
    if name == "gpt":
        tokens = rng.integers(0, VOCABULARY, (4, CONTEXT + 1))
        return tokens[:, :-1].copy(), tokens[:, 1:].copy()
    shape = (8, 5) if name == "mlp" else (6, 2, 8, 8)
    return rng.standard_normal(shape).astype(dtype), rng.integers(0, 3, shape[0])
