"""Attention as a composition of operators: what the fused rows mean, and how they differentiate.

Scores are written out, [B, Hq, Sq, Sk]. Shapes are as ``ruda.ops.attention`` states them.
"""

from __future__ import annotations

from typing import Any

from ruda.ops.arith import multiply
from ruda.ops.cast import astype
from ruda.ops.compare import equal, greater_equal, less_equal, logical_and, not_equal
from ruda.ops.create import arange, full, zeros
from ruda.ops.dropout import keep_mask, kept_scale
from ruda.ops.explog import exp, log
from ruda.ops.hyper import tanh
from ruda.ops.matmul import matmul
from ruda.ops.movement import expand_dims, matrix_transpose, reshape, squeeze
from ruda.ops.reduce import max, sum, unbroadcast
from ruda.ops.rowwise import wide
from ruda.ops.select import where
from ruda.tensor.tensor import RudaTensor

INFINITY = float("inf")


def attention(
    q: RudaTensor,
    k: RudaTensor,
    v: RudaTensor,
    mask: Any,
    bias: Any,
    dropout_p: Any,
    seed: Any,
    draw: Any,
    is_causal: bool,
    scale: float,
    softcap: Any,
    window: Any,
    strategy: str,
) -> Any:
    """Softmax of the scores times the values, and the log-sum-exp of the scores."""
    shape = (*q.shape[:3], v.shape[3])
    dtype = wide(q).dtype
    if k.shape[2] == 0:
        out = zeros(shape, dtype=q.dtype, device=q.device)
        return out, full(shape[:3], -INFINITY, dtype=dtype, device=q.device)
    s, _ = _scores(q, k, mask, bias, is_causal, scale, softcap, window)
    top = max(s, axis=-1, keepdims=True)
    seen = not_equal(top, -INFINITY)
    e = exp(s - where(seen, top, 0))
    total = where(seen, sum(e, axis=-1, keepdims=True), 1)
    p = _dropped(e / total, dropout_p, seed, draw)
    out = _ungrouped(matmul(_grouped(p, k.shape[1]), expand_dims(wide(v), 2)))
    return astype(out, q.dtype, copy=False), squeeze(top + log(total), -1)


def attention_backward(
    dy: Any,
    dlse: Any,
    q: RudaTensor,
    k: RudaTensor,
    v: RudaTensor,
    out: RudaTensor,
    lse: RudaTensor,
    mask: Any,
    bias: Any,
    dropout_p: Any,
    seed: Any,
    draw: Any,
    is_causal: bool,
    scale: float,
    softcap: Any,
    window: Any,
    strategy: str,
) -> Any:
    """Gradients of q, k, v and the bias, from probabilities computed anew."""
    heads = k.shape[1]
    s, slope = _scores(q, k, mask, bias, is_causal, scale, softcap, window)
    level = expand_dims(where(equal(lse, -INFINITY), 0, wide(lse)), -1)
    p = exp(s - level)
    g = zeros(out.shape, dtype=s.dtype, device=q.device) if dy is None else wide(dy)
    delta = sum(g * wide(out), axis=-1, keepdims=True)
    if dlse is not None:
        delta = delta - expand_dims(wide(dlse), -1)
    dp = _ungrouped(matmul(_grouped(g, heads), expand_dims(matrix_transpose(wide(v)), 2)))
    ds = p * (_dropped(dp, dropout_p, seed, draw) - delta)
    used = _dropped(p, dropout_p, seed, draw)
    dv = _over_group(used, g, heads)
    db = zeros(0, dtype=s.dtype, device=q.device) if bias is None else unbroadcast(ds, bias.shape)
    ds = (ds if slope is None else ds * slope) * scale
    dq = _ungrouped(matmul(_grouped(ds, heads), expand_dims(wide(k), 2)))
    dk = _over_group(ds, wide(q), heads)
    return (*(astype(d, q.dtype, copy=False) for d in (dq, dk, dv)), db)


def _grouped(x: RudaTensor, heads: int) -> RudaTensor:
    """[B, Hq, S, n] as [B, Hkv, group, S, n]."""
    b, hq, s, n = x.shape
    return reshape(x, (b, heads, hq // heads, s, n))


def _ungrouped(x: RudaTensor) -> RudaTensor:
    b, heads, group, s, n = x.shape
    return reshape(x, (b, heads * group, s, n))


def _over_group(p: RudaTensor, x: RudaTensor, heads: int) -> RudaTensor:
    """``pᵀ x`` summed over the query heads that share a key head: [B, Hkv, Sk, n]."""
    product = matmul(matrix_transpose(_grouped(p, heads)), _grouped(x, heads))
    return sum(product, axis=2)


def _dropped(p: RudaTensor, rate: Any, seed: Any, draw: Any) -> RudaTensor:
    if rate is None:
        return p
    keep = keep_mask(rate, seed, draw, p.shape, p.device)
    return where(keep, p * kept_scale(rate), 0)


def _scores(
    q: RudaTensor,
    k: RudaTensor,
    mask: Any,
    bias: Any,
    is_causal: bool,
    scale: float,
    softcap: Any,
    window: Any,
) -> tuple[RudaTensor, Any]:
    """Scores [B, Hq, Sq, Sk], -inf where hidden, with the slope of the softcap if any."""
    queries = _grouped(multiply(wide(q), scale), k.shape[1])
    s = _ungrouped(matmul(queries, expand_dims(matrix_transpose(wide(k)), 2)))
    slope = None
    if softcap is not None:
        t = tanh(s / softcap)
        s, slope = t * softcap, 1 - t * t
    if bias is not None:
        s = s + wide(bias)
    shown = _reach(q, k, is_causal, window)
    if mask is not None:
        shown = mask if shown is None else logical_and(mask, shown)
    return (s if shown is None else where(shown, s, -INFINITY)), slope


def _reach(q: RudaTensor, k: RudaTensor, is_causal: bool, window: Any) -> Any:
    """Which keys each query may see by position, [Sq, Sk]; None for all."""
    left, right = window or (None, None)
    if is_causal:
        right = 0 if right is None or right > 0 else right
    if left is None and right is None:
        return None
    queries, keys = q.shape[2], k.shape[2]
    place = expand_dims(arange(keys - queries, keys, dtype="int64", device=q.device), 1)
    key = arange(keys, dtype="int64", device=q.device)
    shown = None if right is None else less_equal(key, place + right)
    if left is not None:
        behind = greater_equal(key, place - left)
        shown = behind if shown is None else logical_and(shown, behind)
    return shown
