"""Attention with several heads: of a sequence to itself, to another, or to what a cache holds."""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import float32
from ruda.core.errors import ArgumentError, ShapeError
from ruda.nn import init
from ruda.nn.cache import DynamicKVCache, KVCache
from ruda.nn.linear import Linear
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.nn.positions import RotaryEmbedding
from ruda.ops.attention import attention
from ruda.ops.cast import astype
from ruda.ops.compare import logical_and
from ruda.ops.conversion import asarray
from ruda.ops.create import arange, empty
from ruda.ops.linear import linear
from ruda.ops.movement import permute_dims, reshape
from ruda.ops.positions import alibi_bias, alibi_slopes
from ruda.tensor.tensor import RudaTensor

Cache = KVCache | DynamicKVCache
Window = tuple[int | None, int | None]


class MultiHeadAttention(Module):
    """Attention over ``[B, T, embed_dim]`` with ``num_heads`` heads.

    Of a sequence to itself it is causal by default. Queries, keys and values are one product with
    ``in_proj_weight``, whose rows are those of all query heads, then of all key heads, then of all
    value heads; ``out_proj`` joins the heads. With ``num_kv_heads`` given, each key and value head
    serves ``num_heads / num_kv_heads`` query heads (Ainslie et al., "GQA", 2023); without it names
    and shapes of the parameters are those of PyTorch's ``MultiheadAttention``, also with ``kdim``
    and ``vdim``, the widths of another sequence's keys and values. ``head_dim`` is ``embed_dim /
    num_heads`` unless given. ``dropout`` acts on the attention weights while training. A sequence
    attending to itself may be told of positions: ``window`` is that of ``functional.attention``,
    ``rotary`` turns queries and keys, ``alibi`` lets scores fade with distance. Vaswani et al.,
    "Attention is all you need" (2017).

    >>> layer = ruda.nn.MultiHeadAttention(8, 4, num_kv_heads=2)
    >>> layer(ruda.ones((2, 5, 8))).shape, layer.in_proj_weight.shape
    ((2, 5, 8), (16, 8))
    """

    # Slopes far below one decide how far a head sees.
    exact_buffers = frozenset({"slopes"})
    in_proj_weight: RudaTensor | None
    in_proj_bias: RudaTensor | None
    q_proj_weight: RudaTensor | None
    k_proj_weight: RudaTensor | None
    v_proj_weight: RudaTensor | None
    slopes: RudaTensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        is_causal: bool = True,
        *,
        head_dim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        window: Window | None = None,
        rotary: RotaryEmbedding | None = None,
        alibi: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check(embed_dim, num_heads, kv_heads, head_dim, dropout)
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_kv_heads = kv_heads
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout = dropout
        self.is_causal = is_causal
        self.window = window
        self.rotary = rotary
        where = {"device": device, "dtype": dtype}
        slopes = asarray(alibi_slopes(num_heads), dtype=float32, device=device) if alibi else None
        self.register_buffer("slopes", slopes, persistent=False)
        self._set_weights(bias, where)
        self.out_proj = Linear(num_heads * self.head_dim, embed_dim, bias, **where)
        self.reset_parameters()

    def _set_weights(self, bias: bool, where: dict[str, Any]) -> None:
        own, shared = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        one = self.kdim == self.vdim == self.embed_dim
        shapes = {
            "in_proj_weight": (own + 2 * shared, self.embed_dim) if one else None,
            "q_proj_weight": None if one else (own, self.embed_dim),
            "k_proj_weight": None if one else (shared, self.kdim),
            "v_proj_weight": None if one else (shared, self.vdim),
            "in_proj_bias": (own + 2 * shared,) if bias else None,
        }
        for name, shape in shapes.items():
            weight = None if shape is None else Parameter(empty(shape, **where))
            self.register_parameter(name, weight)

    def reset_parameters(self, generator: Any = None) -> None:
        """Draw the weights anew: Glorot's uniform for the inputs, biases of zero."""
        for weight in self._weights():
            init.xavier_uniform_(weight, generator=generator)
        self.out_proj.reset_parameters(generator)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    def _weights(self) -> list[Any]:
        """The one weight of the inputs, or its three parts."""
        if self.in_proj_weight is not None:
            return [self.in_proj_weight]
        return [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """Room for the keys and values of ``capacity`` tokens, in the dtype of the weights."""
        weight = self.out_proj.weight
        return KVCache(
            batch,
            capacity,
            self.num_kv_heads,
            self.head_dim,
            device=weight.device,
            dtype=weight.dtype,
        )

    def forward(
        self,
        query: RudaTensor,
        key: RudaTensor | None = None,
        value: RudaTensor | None = None,
        *,
        mask: RudaTensor | None = None,
        bias: RudaTensor | None = None,
        is_causal: bool | None = None,
        positions: RudaTensor | None = None,
        cache: Cache | None = None,
    ) -> RudaTensor:
        """``query [B, T, embed_dim]`` attends to itself or to ``key [B, S, kdim]``: ``[B, T, E]``.

        ``value`` is ``key`` unless given. ``mask`` is boolean, True where a query (axis -2) may
        attend to a key (axis -1), ``bias`` is added to the scores; both broadcast to
        ``[B, num_heads, T, S]`` and add to causality, which belongs to a sequence attending to
        itself and is as the layer was made unless ``is_causal`` is given. ``positions`` are what
        ``rotary`` turns by. With a ``cache`` the query is the tokens that come next: they attend
        to all before them too, and are causal.
        """
        self._check_inputs(query, key, value, positions, cache)
        if key is not None:
            q, k, v = self._project(query, key, key if value is None else value)
            rules: dict[str, Any] = {"mask": mask, "bias": bias, "is_causal": bool(is_causal)}
        else:
            q, k, v = self._project(query, query, query)
            causal = self.is_causal if is_causal is None else is_causal
            q, k, v, rules = self._placed(q, k, v, mask, bias, causal, positions, cache)
        out = attention(q, k, v, **rules, dropout_p=self.dropout if self.training else 0.0)
        joined = reshape(permute_dims(out, (0, 2, 1, 3)), (*query.shape[:2], -1))
        return self.out_proj(joined)

    def _check_inputs(self, query: Any, key: Any, value: Any, positions: Any, cache: Any) -> None:
        name = "MultiHeadAttention"
        if query.ndim != 3 or query.shape[-1] != self.embed_dim:
            expected = f"[B, T, {self.embed_dim}]"
            raise ShapeError(name, "the input does not fit", query.shape, expected)
        if key is None and value is not None:
            raise ArgumentError(name, "a value without a key", value.spec)
        for part, width in ((key, self.kdim), (value, self.vdim)):
            if part is not None and (part.ndim != 3 or part.shape[-1] != width):
                expected = f"[B, S, {width}]"
                raise ShapeError(name, "key or value does not fit", part.shape, expected)
        if key is None:
            return
        told = (self.window, self.rotary, self.slopes, positions, cache)
        if any(part is not None for part in told):
            what = "window, rotary, alibi, positions and cache belong to one sequence"
            raise ArgumentError(name, what, f"a key {key.shape}", "a query alone")

    def _project(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """Queries, keys and values, each [B, heads, length, head_dim]."""
        own, shared = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        starts, weights, bias = (0, own, own + shared), self._weights(), self.in_proj_bias
        cuts = [slice(a, a + n) for a, n in zip(starts, (own, shared, shared), strict=True)]
        if query is key is value and len(weights) == 1:
            joined = linear(query, weights[0], bias)
            parts = [joined[..., cut] for cut in cuts]
        else:
            if len(weights) == 1:
                weights = [weights[0][cut] for cut in cuts]
            biases = [None if bias is None else bias[cut] for cut in cuts]
            inputs = (query, key, value)
            parts = [linear(*three) for three in zip(inputs, weights, biases, strict=True)]
        q, k, v = (self._heads(part) for part in parts)
        return q, k, v

    def _heads(self, x: RudaTensor) -> RudaTensor:
        split = reshape(x, (*x.shape[:2], -1, self.head_dim))
        return permute_dims(split, (0, 2, 1, 3))

    def _placed(
        self, q: Any, k: Any, v: Any, mask: Any, bias: Any, causal: bool, positions: Any, cache: Any
    ) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Queries, keys and values told of their positions, and what hides keys from queries."""
        count, window = q.shape[2], self.window
        places: Any = None
        if cache is not None:
            # Before the cache moves on.
            places = cache.positions(count)
        elif self.rotary is not None or self.slopes is not None:
            places = arange(count, device=q.device)
        if self.rotary is not None:
            turn = self.rotary.angles(places if positions is None else positions)
            q, k = self.rotary.turned(q, turn), self.rotary.turned(k, turn)
        if cache is not None:
            k, v = cache.append(k, v)
            causal = True
        if self.slopes is not None:
            keys = arange(k.shape[2], device=q.device)
            fading = astype(alibi_bias(self.slopes, places, keys), q.dtype, copy=False)
            bias = fading if bias is None else bias + fading
        if isinstance(cache, KVCache):
            # The last query does not stand at the last slot, so the mask says what window would.
            seen = cache.visible(places, None if window is None else window[0])
            mask = seen if mask is None else logical_and(mask, seen)
            causal, window = False, None
        return q, k, v, {"mask": mask, "bias": bias, "is_causal": causal, "window": window}

    def extra_repr(self) -> str:
        """Sizes, and what differs from the defaults."""
        facts = [f"{self.embed_dim}, {self.num_heads} heads"]
        if self.num_kv_heads != self.num_heads:
            facts.append(f"{self.num_kv_heads} of keys and values")
        facts += ["causal"] * self.is_causal + [f"dropout={self.dropout}"] * bool(self.dropout)
        facts += [f"window={self.window}"] * (self.window is not None)
        return ", ".join(facts + ["alibi"] * (self.slopes is not None))


def _check(embed_dim: int, heads: int, kv_heads: int, head_dim: Any, dropout: float) -> None:
    name = "MultiHeadAttention"
    if heads < 1 or (head_dim is None and embed_dim % heads):
        got = f"embed_dim {embed_dim} and {heads} heads"
        raise ArgumentError(name, "the width does not divide into heads", got)
    if kv_heads < 1 or heads % kv_heads:
        got = f"{heads} heads and {kv_heads} of keys and values"
        raise ArgumentError(name, "heads do not share evenly", got)
    if not 0 <= dropout < 1:
        raise ArgumentError(name, "dropout is no probability", dropout, "0 <= dropout < 1")
