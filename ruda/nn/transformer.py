"""Transformers: encoder and decoder layers and their stacks, under PyTorch's names of parameters.

Batches come first, a mask is True where a query may attend, and a cache makes decoding cheap;
Vaswani et al., "Attention is all you need" (2017).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from ruda.core.errors import ArgumentError, ShapeError
from ruda.nn import init
from ruda.nn.attention import Cache, MultiHeadAttention
from ruda.nn.cache import KVCache
from ruda.nn.containers import ModuleList
from ruda.nn.dropout import Dropout
from ruda.nn.linear import Linear
from ruda.nn.module import Module
from ruda.nn.norm import LayerNorm
from ruda.ops.activation import gelu, relu, silu
from ruda.ops.compare import logical_and
from ruda.ops.movement import expand_dims
from ruda.tensor.tensor import RudaTensor

_ACTIVATIONS: dict[str, Callable[..., Any]] = {"relu": relu, "gelu": gelu, "silu": silu}


def _activation(given: Any) -> Callable[..., Any]:
    if callable(given):
        return given
    if given not in _ACTIVATIONS:
        expected = f"{', '.join(_ACTIVATIONS)} or a function"
        raise ArgumentError("Transformer", "unknown activation", repr(given), expected)
    return _ACTIVATIONS[given]


def _shown(mask: RudaTensor | None, key_mask: RudaTensor | None) -> RudaTensor | None:
    """``mask`` that broadcasts to [B, H, T, S] where ``key_mask [B, S]`` holds too."""
    if key_mask is None:
        return mask
    if key_mask.ndim != 2:
        raise ShapeError("Transformer", "key_mask does not fit", key_mask.shape, "[B, S]")
    keys = expand_dims(key_mask, (1, 2))
    return keys if mask is None else logical_and(mask, keys)


class _Layer(Module):
    """The two-layer network of a layer, and how its parts stand beside their shortcuts."""

    def _set_network(self, width: int, hidden: int, dropout: float, bias: bool, where: Any) -> None:
        self.linear1 = Linear(width, hidden, bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(hidden, width, bias, **where)

    def _network(self, x: RudaTensor) -> RudaTensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _beside(self, x: Any, norm: Module, drop: Module, part: Callable[..., Any]) -> Any:
        if self.norm_first:
            return x + drop(part(norm(x)))
        return norm(x + drop(part(x)))

    def extra_repr(self) -> str:
        """Where the norms stand."""
        return "norm first" if self.norm_first else ""


class TransformerEncoderLayer(_Layer):
    """Self-attention and a two-layer network over ``[B, T, d_model]``, each beside a shortcut.

    With ``norm_first`` the norms stand before the parts, else behind the sums. ``activation`` is
    ``"relu"``, ``"gelu"``, ``"silu"`` or a function. ``attention`` are further arguments of
    ``MultiHeadAttention``: ``num_kv_heads``, ``window``, ``rotary``, ``alibi``. Causal only where
    the call says so, as in PyTorch.

    >>> layer = ruda.nn.TransformerEncoderLayer(8, 2, 16)
    >>> layer(ruda.ones((2, 5, 8))).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        *,
        device: Any = None,
        dtype: Any = None,
        **attention: Any,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.norm_first = norm_first
        self.activation = _activation(activation)
        self.self_attn = MultiHeadAttention(
            d_model, nhead, bias=bias, dropout=dropout, is_causal=False, **attention, **where
        )
        self._set_network(d_model, dim_feedforward, dropout, bias, where)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def forward(
        self,
        src: RudaTensor,
        mask: RudaTensor | None = None,
        key_mask: RudaTensor | None = None,
        is_causal: bool = False,
        cache: Cache | None = None,
    ) -> RudaTensor:
        """``src [B, T, d_model]`` to the same shape.

        ``mask`` broadcasts to ``[B, nhead, T, T]``, ``key_mask`` is ``[B, T]``; both are True where
        attention may look. A ``cache`` holds the tokens before and makes the layer causal.
        """
        shown = _shown(mask, key_mask)

        def attend(x: RudaTensor) -> Any:
            return self.self_attn(x, mask=shown, is_causal=is_causal, cache=cache)

        src = self._beside(src, self.norm1, self.dropout1, attend)
        return self._beside(src, self.norm2, self.dropout2, self._network)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to ``memory`` and a two-layer network, each beside a shortcut.

    Arguments are those of ``TransformerEncoderLayer``; ``attention`` goes to the self-attention.

    >>> layer = ruda.nn.TransformerDecoderLayer(8, 2, 16)
    >>> layer(ruda.ones((2, 3, 8)), ruda.ones((2, 5, 8)), is_causal=True).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        *,
        device: Any = None,
        dtype: Any = None,
        **attention: Any,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.norm_first = norm_first
        self.activation = _activation(activation)
        common: dict[str, Any] = {"bias": bias, "dropout": dropout, "is_causal": False}
        self.self_attn = MultiHeadAttention(d_model, nhead, **common, **attention, **where)
        self.multihead_attn = MultiHeadAttention(d_model, nhead, **common, **where)
        self._set_network(d_model, dim_feedforward, dropout, bias, where)
        for number in (1, 2, 3):
            setattr(self, f"norm{number}", LayerNorm(d_model, layer_norm_eps, bias=bias, **where))
            setattr(self, f"dropout{number}", Dropout(dropout))

    def forward(
        self,
        tgt: RudaTensor,
        memory: RudaTensor,
        mask: RudaTensor | None = None,
        memory_mask: RudaTensor | None = None,
        key_mask: RudaTensor | None = None,
        memory_key_mask: RudaTensor | None = None,
        is_causal: bool = False,
        cache: Cache | None = None,
    ) -> RudaTensor:
        """``tgt [B, T, d_model]`` looks at itself and at ``memory [B, S, d_model]``.

        Masks are True where attention may look: ``mask`` and ``memory_mask`` broadcast to
        ``[B, nhead, T, T]`` and ``[B, nhead, T, S]``, ``key_mask`` and ``memory_key_mask`` are
        ``[B, T]`` and ``[B, S]``.
        """
        own, other = _shown(mask, key_mask), _shown(memory_mask, memory_key_mask)

        def attend(x: RudaTensor) -> Any:
            return self.self_attn(x, mask=own, is_causal=is_causal, cache=cache)

        def look(x: RudaTensor) -> Any:
            return self.multihead_attn(x, memory, mask=other)

        tgt = self._beside(tgt, self.norm1, self.dropout1, attend)
        tgt = self._beside(tgt, self.norm2, self.dropout2, look)
        return self._beside(tgt, self.norm3, self.dropout3, self._network)


def _copies(layer: Module, count: int) -> ModuleList:
    """``layer`` and copies of it whose parameters are drawn anew."""
    layers = [layer, *(copy.deepcopy(layer) for _ in range(count - 1))]
    for other in layers[1:]:
        for module in other.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    return ModuleList(layers)


class _Stack(Module):
    """Layers one after the other, and perhaps a norm behind the last."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        if num_layers < 1:
            raise ArgumentError(type(self).__name__, "no layers", num_layers, "at least 1")
        self.layers = _copies(layer, num_layers)
        self.norm = norm

    def new_caches(self, batch: int, capacity: int) -> list[KVCache]:
        """A cache of the self-attention for each layer."""
        return [layer.self_attn.new_cache(batch, capacity) for layer in self.layers]

    def _run(self, x: RudaTensor, caches: Sequence[Cache] | None, *args: Any) -> RudaTensor:
        held = [None] * len(self.layers) if caches is None else caches
        if len(held) != len(self.layers):
            got, expected = f"{len(held)} caches", f"one for each of {len(self.layers)} layers"
            raise ArgumentError(type(self).__name__, "caches do not fit", got, expected)
        for layer, cache in zip(self.layers, held, strict=True):
            x = layer(x, *args, cache=cache)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """``num_layers`` encoder layers: the given one and copies of it, drawn anew; then ``norm``.

    >>> layer = ruda.nn.TransformerEncoderLayer(8, 2, 16)
    >>> ruda.nn.TransformerEncoder(layer, 2)(ruda.ones((2, 5, 8))).shape
    (2, 5, 8)
    """

    def forward(
        self,
        src: RudaTensor,
        mask: RudaTensor | None = None,
        key_mask: RudaTensor | None = None,
        is_causal: bool = False,
        caches: Sequence[Cache] | None = None,
    ) -> RudaTensor:
        """As ``TransformerEncoderLayer.forward``, with a cache for each layer."""
        return self._run(src, caches, mask, key_mask, is_causal)


class TransformerDecoder(_Stack):
    """``num_layers`` decoder layers: the given one and copies of it, drawn anew; then ``norm``."""

    def forward(
        self,
        tgt: RudaTensor,
        memory: RudaTensor,
        mask: RudaTensor | None = None,
        memory_mask: RudaTensor | None = None,
        key_mask: RudaTensor | None = None,
        memory_key_mask: RudaTensor | None = None,
        is_causal: bool = False,
        caches: Sequence[Cache] | None = None,
    ) -> RudaTensor:
        """As ``TransformerDecoderLayer.forward``, with a cache for each layer."""
        masks = (mask, memory_mask, key_mask, memory_key_mask)
        return self._run(tgt, caches, memory, *masks, is_causal)


class Transformer(Module):
    """An encoder, and a decoder that looks at what it makes; each ends in a norm.

    All matrices start with Glorot's uniform.

    >>> model = ruda.nn.Transformer(8, 2, 1, 1, 16)
    >>> model(ruda.ones((2, 5, 8)), ruda.ones((2, 3, 8))).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        shape = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        self.encoder = TransformerEncoder(
            TransformerEncoderLayer(*shape, norm_first, bias, **where),
            num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, **where),
        )
        self.decoder = TransformerDecoder(
            TransformerDecoderLayer(*shape, norm_first, bias, **where),
            num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, **where),
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: RudaTensor,
        tgt: RudaTensor,
        src_mask: RudaTensor | None = None,
        tgt_mask: RudaTensor | None = None,
        memory_mask: RudaTensor | None = None,
        src_key_mask: RudaTensor | None = None,
        tgt_key_mask: RudaTensor | None = None,
        tgt_is_causal: bool = False,
    ) -> RudaTensor:
        """``src [B, S, d_model]`` and ``tgt [B, T, d_model]`` to ``[B, T, d_model]``.

        Masks are True where attention may look; keys hidden by ``src_key_mask [B, S]`` are hidden
        from the decoder too.
        """
        memory = self.encoder(src, src_mask, src_key_mask)
        masks = (tgt_mask, memory_mask, tgt_key_mask, src_key_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal)
