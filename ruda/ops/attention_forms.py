"""Other forms of attention: PyTorch's spelling, and packed sequences of different lengths."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.dtypes import bool_
from ruda.core.errors import AttentionDTypeError, AttentionShapeError
from ruda.core.shapes import Shape
from ruda.ops.attention import attention
from ruda.ops.compare import equal, greater_equal, less_equal, logical_and
from ruda.ops.create import arange
from ruda.ops.gather import take
from ruda.ops.movement import expand_dims, permute_dims, reshape
from ruda.ops.reduce import sum
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


@composite
@given_tensors
def scaled_dot_product_attention(
    query: RudaTensor,
    key: RudaTensor,
    value: RudaTensor,
    attn_mask: RudaTensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    generator: Any = None,
) -> RudaTensor:
    """``attention`` in PyTorch's spelling: query ``[..., L, E]``, key and value ``[..., S, E]``.

    ``attn_mask`` is bool (True may attend) or additive, and broadcasts to ``[..., L, S]``.
    ``is_causal`` stands the first query at the first key, unlike ``attention``, which stands the
    last at the last; the two differ where L and S do. Heads, the axis before L, may group only
    with ``enable_gqa``. Errors as ``attention``.

    >>> x = ruda.ones((2, 3, 4))
    >>> scaled_dot_product_attention(x, x, x).shape
    (2, 3, 4)
    """
    name, lead = "scaled_dot_product_attention", query.shape[:-2]
    _check_ranks(name, query, key, value)
    if not enable_gqa and not lead == key.shape[:-2] == value.shape[:-2]:
        got = f"{query.shape}, {key.shape} and {value.shape}"
        hint = "enable_gqa=True for heads that share keys"
        raise AttentionShapeError(name, "leading axes differ", got, hint=hint)
    q, k, v = (_four(x) for x in (query, key, value))
    masks: dict[str, Any] = {}
    if attn_mask is not None:
        full = _aligned(attn_mask, lead, q.shape[:2])
        masks = {"mask" if attn_mask.dtype is bool_ else "bias": full}
    window = (None, q.shape[2] - k.shape[2]) if is_causal else None
    out = attention(
        q, k, v, **masks, window=window, scale=scale, dropout_p=dropout_p, generator=generator
    )
    return reshape(out, (*query.shape[:-1], value.shape[-1]))


def _check_ranks(name: str, *tensors: RudaTensor) -> None:
    if any(x.ndim < 2 or x.ndim != tensors[0].ndim for x in tensors):
        got = ", ".join(str(x.shape) for x in tensors)
        raise AttentionShapeError(name, "ranks do not fit", got, "one rank of at least 2")


def _four(x: RudaTensor) -> RudaTensor:
    """[..., H, L, E] with all leading axes but the heads folded into one."""
    heads = x.shape[-3] if x.ndim > 2 else 1
    return reshape(x, (math.prod(x.shape[:-3]), heads, *x.shape[-2:]))


def _aligned(mask: RudaTensor, lead: Shape, folded: Shape) -> RudaTensor:
    """A mask that broadcasts to [*lead, L, S] in a shape that broadcasts to [*folded, L, S]."""
    if mask.ndim <= 3 and len(lead) > 1:
        return mask
    shape = (1,) * (len(lead) + 2 - mask.ndim) + mask.shape
    if shape[: len(lead)] == (1,) * len(lead):
        return reshape(mask, (1, 1, *shape[len(lead) :]))
    full = mask.broadcast_to((*lead, *shape[len(lead) :]))
    return reshape(full, (*folded, *shape[len(lead) :]))


@composite
def attention_varlen(
    q: RudaTensor,
    k: RudaTensor,
    v: RudaTensor,
    cu_seqlens_q: RudaTensor,
    cu_seqlens_k: RudaTensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    dropout_p: float = 0.0,
    strategy: str = "auto",
    generator: Any = None,
) -> RudaTensor:
    """``attention`` within each of several sequences packed one after the other.

    q ``[Tq, Hq, D]``, k ``[Tk, Hkv, D]``, v ``[Tk, Hkv, Dv]``; sequence i holds the rows from
    ``cu_seqlens[i]`` to ``cu_seqlens[i + 1]``, integers ``[n + 1]`` that start at 0. The result is
    ``[Tq, Hq, Dv]``. Causality and windows stand the last query of a sequence at its last key.
    Rows behind the last sequence give zeros. Errors as ``attention``.
    """
    name = "attention_varlen"
    if not q.ndim == k.ndim == v.ndim == 3:
        got = f"{q.shape}, {k.shape} and {v.shape}"
        raise AttentionShapeError(name, "three axes are needed", got, "[T, H, D]")
    for ends in (cu_seqlens_q, cu_seqlens_k):
        if ends.ndim != 1 or ends.shape != cu_seqlens_q.shape or ends.shape[0] < 2:
            expected = "[n + 1] for both"
            raise AttentionShapeError(name, "cu_seqlens do not fit", ends.shape, expected)
        if not ends.dtype.is_integer:
            raise AttentionDTypeError(name, "cu_seqlens are not integers", ends.dtype, "integers")
    shown = _shown(q, k, cu_seqlens_q, cu_seqlens_k, is_causal, window)
    batch = (expand_dims(permute_dims(x, (1, 0, 2)), 0) for x in (q, k, v))
    out = attention(
        *batch,
        mask=shown,
        scale=scale,
        softcap=softcap,
        dropout_p=dropout_p,
        strategy=strategy,
        generator=generator,
    )
    return permute_dims(out[0], (1, 0, 2))


def _shown(
    q: RudaTensor,
    k: RudaTensor,
    q_ends: RudaTensor,
    k_ends: RudaTensor,
    is_causal: bool,
    window: tuple[int | None, int | None] | None,
) -> RudaTensor:
    """Which keys each packed query may see, [Tq, Tk]."""
    q_sequence, q_left = _places(q.shape[0], q_ends)
    k_sequence, k_left = _places(k.shape[0], k_ends)
    count = q_ends.shape[0] - 1
    own = expand_dims(q_sequence, 1)
    shown = logical_and(equal(own, k_sequence), own < count)
    left, right = window or (None, None)
    if is_causal:
        right = 0 if right is None or right > 0 else right
    # Counted from the end of its sequence, a query stands at the key with the same count.
    ahead = expand_dims(q_left, 1) - k_left
    if right is not None:
        shown = logical_and(shown, less_equal(ahead, right))
    return shown if left is None else logical_and(shown, greater_equal(ahead, -left))


def _places(total: int, ends: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
    """For each packed row its sequence, and how many rows of it are left behind it."""
    row = arange(total, dtype="int64", device=ends.device)
    sequence = sum(greater_equal(expand_dims(row, 1), ends[1:]), axis=1)
    last = ends.shape[0] - 2
    stop = take(ends[1:], sequence.clip(None, last), axis=0)
    return sequence, stop - row
