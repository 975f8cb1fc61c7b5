"""Scaled dot-product attention, one block of queries of one head at a time.

Rules are applied in this order: scores times scale, softcap, bias, then everything that hides keys
(mask, causality, window). The backward recomputes probabilities from the saved log-sum-exp, as in
Dao et al., "FlashAttention" (2022), so no [Sq, Sk] matrix is ever kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ruda.ops.reference.windows import Array, row_blocks

# Scores of one block of queries: they are walked over several times and should stay in the cache.
_BLOCK_BYTES = 1 << 18

Window = tuple[int | None, int | None]
Dropout = tuple[Array, float]


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    bias: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    window: Window | None = None,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """Attend queries to keys; returns ``out`` [B, Hq, Sq, Dv] and ``lse`` [B, Hq, Sq].

    q: [B, Hq, Sq, D], k: [B, Hkv, Sk, D], v: [B, Hkv, Sk, Dv], one dtype, float32 or float64; each
    key head serves Hq / Hkv query heads. mask (True may attend) and bias broadcast to
    [B, Hq, Sq, Sk]. Causality and ``window=(left, right)``, both inclusive and None for unbounded,
    count positions such that the last query stands at the last key. A row that sees no key gives
    zeros and lse = -inf. ``dropout`` is what to keep, [B, Hq, Sq, Sk], and the factor of what is
    kept; it acts on the probabilities, not on their sum.
    """
    rules = _Rules.of(q, k, mask, bias, is_causal, scale, softcap, window)
    out = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    lse = np.full(q.shape[:3], -np.inf, q.dtype)
    for b, h, rows, keys in rules.blocks():
        kv = h // rules.group
        p, _ = rules.scores(q[b, h, rows], k[b, kv, keys], b, h, rows, keys)
        top = p.max(axis=-1, keepdims=True)
        seen = top > -np.inf
        seen |= np.isnan(top)
        p -= np.where(seen, top, 0)
        np.exp(p, out=p)
        total = p.sum(axis=-1, keepdims=True)
        _drop(p, dropout, b, h, rows, keys)
        block = p @ v[b, kv, keys]
        block /= np.where(seen, total, 1)
        out[b, h, rows] = np.where(seen, block, 0)
        np.add(top, np.log(np.where(seen, total, 1)), out=lse[b, h, rows, None])
    return out, lse


def attention_backward(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    g: Array,
    mask: Array | None = None,
    bias: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    window: Window | None = None,
    g_lse: Array | None = None,
    dropout: Dropout | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    """Differentiate ``attention``: gradients of q, k, v and bias (None without one).

    g: as ``out``; g_lse: as ``lse``, where the log-sum-exp itself was used.
    """
    rules = _Rules.of(q, k, mask, bias, is_causal, scale, softcap, window)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    db = None if rules.bias is None else np.zeros(rules.bias.shape, q.dtype)
    # The row term of softmax's backward: sum_j p_j dp_j = g . out
    delta = np.vecdot(g, out)
    if g_lse is not None:
        delta -= g_lse
    for b, h, rows, keys in rules.blocks():
        kv = h // rules.group
        p, slope = rules.scores(q[b, h, rows], k[b, kv, keys], b, h, rows, keys)
        level = lse[b, h, rows, None]
        p -= np.where(level == -np.inf, 0, level)
        np.exp(p, out=p)
        ds = g[b, h, rows] @ v[b, kv, keys].T
        _drop(ds, dropout, b, h, rows, keys)
        used = p if dropout is None else p.copy()
        _drop(used, dropout, b, h, rows, keys)
        dv[b, kv, keys] += used.T @ g[b, h, rows]
        ds -= delta[b, h, rows, None]
        ds *= p
        if db is not None:
            _add_broadcast(db, ds, b, h, rows, keys)
        if slope is not None:
            ds *= slope
        ds *= rules.scale
        dq[b, h, rows] = ds @ k[b, kv, keys]
        dk[b, kv, keys] += ds.T @ q[b, h, rows]
    return dq, dk, dv, None if db is None or bias is None else db.reshape(bias.shape)


def _drop(p: Array, dropout: Dropout | None, b: int, h: int, rows: slice, keys: slice) -> None:
    """Scale what is kept and zero the rest, in place."""
    if dropout is not None:
        keep, factor = dropout
        p *= keep[b, h, rows, keys]
        p *= p.dtype.type(factor)


@dataclass(frozen=True)
class _Rules:
    """What decides a score, and which keys a block of queries needs to look at."""

    shape: tuple[int, int, int, int]  # [B, Hq, Sq, Sk]
    group: int
    mask: Array | None
    bias: Array | None
    scale: float
    softcap: float | None
    left: int | None
    right: int | None
    itemsize: int

    @classmethod
    def of(
        cls,
        q: Array,
        k: Array,
        mask: Array | None,
        bias: Array | None,
        is_causal: bool,
        scale: float | None,
        softcap: float | None,
        window: Window | None,
    ) -> _Rules:
        left, right = window or (None, None)
        if is_causal:
            right = 0 if right is None else min(right, 0)
        return cls(
            shape=(*q.shape[:3], k.shape[2]),
            group=q.shape[1] // max(1, k.shape[1]),
            mask=None if mask is None else mask.reshape((1,) * (4 - mask.ndim) + mask.shape),
            bias=None if bias is None else bias.reshape((1,) * (4 - bias.ndim) + bias.shape),
            scale=1 / math.sqrt(q.shape[3]) if scale is None else scale,
            softcap=softcap,
            left=left,
            right=right,
            itemsize=q.itemsize,
        )

    def blocks(self) -> Iterator[tuple[int, int, slice, slice]]:
        """Yield batch, head, rows and the keys in reach; rows that reach no key are left out."""
        batch, heads, queries, keys = self.shape
        pairs = [(b, h) for b in range(batch) for h in range(heads)]
        blocks = list(row_blocks(queries, keys * self.itemsize, _BLOCK_BYTES))
        for b, h in pairs:
            for rows in blocks:
                reach = self._reach(rows)
                if reach.stop > reach.start:
                    yield b, h, rows, reach

    def _reach(self, rows: slice) -> slice:
        queries, keys = self.shape[2:]
        first, last = rows.start + keys - queries, rows.stop - 1 + keys - queries
        start = 0 if self.left is None else max(0, first - self.left)
        stop = keys if self.right is None else min(keys, last + self.right + 1)
        return slice(start, stop)

    def scores(
        self, q: Array, k: Array, b: int, h: int, rows: slice, keys: slice
    ) -> tuple[Array, Array | None]:
        """Score a block [rows, keys], -inf where hidden, with the slope of the softcap if any."""
        s = (q * q.dtype.type(self.scale)) @ k.T
        slope = None
        if self.softcap is not None:
            s /= self.softcap
            np.tanh(s, out=s)
            slope = 1 - s * s
            s *= self.softcap
        if self.bias is not None:
            s += self.bias[_broadcast_index(self.bias, b, h, rows, keys)]
        if self.mask is not None:
            shown = self.mask[_broadcast_index(self.mask, b, h, rows, keys)]
            np.copyto(s, -np.inf, where=~shown)
        if self.left is not None or self.right is not None:
            np.copyto(s, -np.inf, where=self._out_of_reach(rows, keys))
        return s, slope

    def _out_of_reach(self, rows: slice, keys: slice) -> Array:
        shift = self.shape[3] - self.shape[2]
        position = np.arange(rows.start + shift, rows.stop + shift)[:, None]
        key = np.arange(keys.start, keys.stop)
        hidden = np.zeros((position.size, key.size), bool)
        if self.right is not None:
            hidden |= key > position + self.right
        if self.left is not None:
            hidden |= key < position - self.left
        return hidden


def _broadcast_index(
    x: Array, b: int, h: int, rows: slice, keys: slice
) -> tuple[int, int, slice, slice]:
    """Index a [B | 1, H | 1, Sq | 1, Sk | 1] array at a block, leaving lengths of 1 whole."""
    whole = slice(None)
    return (
        b if x.shape[0] > 1 else 0,
        h if x.shape[1] > 1 else 0,
        rows if x.shape[2] > 1 else whole,
        keys if x.shape[3] > 1 else whole,
    )


def _add_broadcast(total: Array, ds: Array, b: int, h: int, rows: slice, keys: slice) -> None:
    """Add a block to a total that broadcasts to [B, Hq, Sq, Sk], summing over lengths of 1."""
    target = total[_broadcast_index(total, b, h, rows, keys)]
    axes = tuple(axis for axis in (0, 1) if target.shape[axis] != ds.shape[axis])
    target += ds.sum(axis=axes, keepdims=True) if axes else ds
