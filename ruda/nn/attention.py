"""Self-attention with several heads, which may share keys and values."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError, ShapeError
from ruda.nn import init
from ruda.nn.linear import Linear
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.ops.attention import attention
from ruda.ops.create import empty
from ruda.ops.linear import linear
from ruda.ops.movement import permute_dims, reshape
from ruda.tensor.tensor import RudaTensor


class MultiHeadAttention(Module):
    """Self-attention over ``[B, T, embed_dim]`` with ``num_heads`` heads; causal by default.

    Queries, keys and values are one product with ``in_proj_weight``, whose rows are those of all
    query heads, then of all key heads, then of all value heads; ``out_proj`` joins the heads.
    With ``num_kv_heads`` given, each key and value head serves ``num_heads / num_kv_heads`` query
    heads (Ainslie et al., "GQA", 2023); without it names and shapes of the parameters are those of
    PyTorch's ``MultiheadAttention``. ``dropout`` acts on the attention weights while training.
    Vaswani et al., "Attention is all you need" (2017).

    >>> layer = ruda.nn.MultiHeadAttention(8, 4, num_kv_heads=2)
    >>> layer(ruda.ones((2, 5, 8))).shape, layer.in_proj_weight.shape
    ((2, 5, 8), (16, 8))
    """

    in_proj_weight: RudaTensor
    in_proj_bias: RudaTensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        is_causal: bool = True,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check(embed_dim, num_heads, kv_heads, dropout)
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_kv_heads = kv_heads
        self.dropout = dropout
        self.is_causal = is_causal
        rows = (num_heads + 2 * kv_heads) * (embed_dim // num_heads)
        where = {"device": device, "dtype": dtype}
        self.in_proj_weight = Parameter(empty((rows, embed_dim), **where))
        self.register_parameter("in_proj_bias", Parameter(empty(rows, **where)) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, **where)
        self.reset_parameters()

    def reset_parameters(self, generator: Any = None) -> None:
        """Draw the weights anew: Glorot's uniform for the inputs, biases of zero."""
        init.xavier_uniform_(self.in_proj_weight, generator=generator)
        self.out_proj.reset_parameters(generator)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    def forward(self, input: RudaTensor, mask: RudaTensor | None = None) -> RudaTensor:
        """``input [B, T, embed_dim]`` attends to itself; the shape stays.

        ``mask`` is boolean, True where a query (axis -2) may attend to a key (axis -1), and
        broadcasts to ``[B, num_heads, T, T]``; it adds to causality.
        """
        if input.ndim != 3 or input.shape[-1] != self.embed_dim:
            expected = f"[B, T, {self.embed_dim}]"
            raise ShapeError("MultiHeadAttention", "the input does not fit", input.shape, expected)
        joined = linear(input, self.in_proj_weight, self.in_proj_bias)
        own, shared = self.num_heads, self.num_kv_heads
        heads = reshape(joined, (*input.shape[:2], own + 2 * shared, -1))
        heads = permute_dims(heads, (0, 2, 1, 3))
        out = attention(
            heads[:, :own],  # type: ignore[index]
            heads[:, own : own + shared],  # type: ignore[index]
            heads[:, own + shared :],  # type: ignore[index]
            mask=mask,
            is_causal=self.is_causal,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out_proj(reshape(permute_dims(out, (0, 2, 1, 3)), input.shape))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Sizes, and what differs from the defaults."""
        facts = [f"{self.embed_dim}, {self.num_heads} heads"]
        if self.num_kv_heads != self.num_heads:
            facts.append(f"{self.num_kv_heads} of keys and values")
        facts += ["causal"] * self.is_causal + [f"dropout={self.dropout}"] * bool(self.dropout)
        return ", ".join(facts)


def _check(embed_dim: int, heads: int, kv_heads: int, dropout: float) -> None:
    name = "MultiHeadAttention"
    if heads < 1 or embed_dim % heads:
        got = f"embed_dim {embed_dim} and {heads} heads"
        raise ArgumentError(name, "the width does not divide into heads", got)
    if kv_heads < 1 or heads % kv_heads:
        got = f"{heads} heads and {kv_heads} of keys and values"
        raise ArgumentError(name, "heads do not share evenly", got)
    if not 0 <= dropout < 1:
        raise ArgumentError(name, "dropout is no probability", dropout, "0 <= dropout < 1")
