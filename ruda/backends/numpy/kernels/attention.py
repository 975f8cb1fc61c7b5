"""Attention in float32 without mask, bias, softcap and dropout; causality and windows are kernels.

A task is as many whole heads as keep their scores in the cache, or one head in blocks of queries.
It multiplies by BLAS on one thread and turns scores into probabilities in one pass. The backward
recomputes them from the log-sum-exp: Dao et al., "FlashAttention" (2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.numpy.buffers import empty
from ruda.backends.numpy.kernels.compiler import Kernel, kernel
from ruda.backends.numpy.kernels.maths import exp
from ruda.backends.numpy.kernels.sums import dot, top, total
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import BLAS, POOL
from ruda.core.spec import is_absent

_F = np.float32
_ZERO, _LEAST = _F(0), _F(-np.inf)
# Scores of one task; the backward has two arrays of them.
SCORES = 1 << 17


@kernel("void(f4[:, :, ::1], i4[:, :, ::1], f4, i8, i8, f4[:, ::1])")
def probabilities(s, bits, scale, left, right, lse):
    """Scores to probabilities, in place; row r sees the keys from r + left to r + right."""
    keys = s.shape[2]
    for h in range(s.shape[0]):
        for r in range(s.shape[1]):
            row = s[h, r]
            low, high = max(0, r + left), min(keys, r + right + 1)
            if high <= low:
                row[:] = _ZERO
                lse[h, r] = _LEAST
                continue
            seen = row[low:high]
            for j in range(seen.size):
                seen[j] *= scale
            level = top(bits[h, r, low:high])
            if level == _LEAST:
                row[:] = _ZERO
                lse[h, r] = _LEAST
                continue
            for j in range(seen.size):
                seen[j] = exp(seen[j] - level)
            mass = total(seen)
            inverse = _F(1) / mass
            for j in range(seen.size):
                seen[j] *= inverse
            row[:low] = _ZERO
            row[high:] = _ZERO
            lse[h, r] = level + np.log(mass)


@kernel("void(f4[:, :, ::1], f4[:, :, ::1], f4, i8, i8, f4[:, ::1], f4[:, ::1])")
def slopes(s, ds, scale, left, right, lse, delta):
    """Scores to probabilities and ``ds`` from their gradient to that of the raw scores."""
    keys = s.shape[2]
    for h in range(s.shape[0]):
        for r in range(s.shape[1]):
            row, change, level, mean = s[h, r], ds[h, r], lse[h, r], delta[h, r]
            low, high = max(0, r + left), min(keys, r + right + 1)
            if high <= low or level == _LEAST:
                row[:] = _ZERO
                change[:] = _ZERO
                continue
            seen, part = row[low:high], change[low:high]
            for j in range(seen.size):
                p = exp(seen[j] * scale - level)
                seen[j] = p
                part[j] = p * (part[j] - mean) * scale
            row[:low] = _ZERO
            row[high:] = _ZERO
            change[:low] = _ZERO
            change[high:] = _ZERO


@kernel("void(f4[:, ::1], f4[:, ::1], f4[::1])")
def row_dots(x, y, out):
    for r in range(out.size):
        out[r] = dot(x[r], y[r])


KERNELS: dict[str, Kernel] = {
    "probabilities": probabilities,
    "slopes": slopes,
    "row_dots": row_dots,
}


class _Task(NamedTuple):
    """Batches and key heads that one thread does at once, and the blocks of queries of each."""

    batch: slice
    heads: slice
    blocks: list[slice]


class Shape(NamedTuple):
    """[B, Hkv, G, Sq, Sk] of the scores, the scale, and what a query sees around its own place."""

    batch: int
    heads: int
    group: int
    queries: int
    keys: int
    scale: Any
    left: int
    right: int

    @classmethod
    def of(cls, q: Any, k: Any, attrs: Any) -> Shape:
        is_causal, scale, _, window, _ = attrs
        left, right = window or (None, None)
        if is_causal:
            right = 0 if right is None else min(right, 0)
        queries, keys = q.shape[2], k.shape[2]
        shift, far = keys - queries, queries + keys
        first = -far if left is None else shift - left
        last = far if right is None else shift + right
        sizes = (q.shape[0], k.shape[1], q.shape[1] // k.shape[1], queries, keys)
        return cls(*sizes, np.float32(scale), max(first, -far), min(last, far))

    def tasks(self) -> Iterator[_Task]:
        one = self.group * self.queries * self.keys
        step = max(SCORES // max(self.group * self.keys, 1), 1)
        blocks = [slice(i, min(i + step, self.queries)) for i in range(0, self.queries, step)]
        batches = max(SCORES // (one * self.heads), 1)
        heads = self.heads if batches > 1 else max(min(SCORES // one, self.heads), 1)
        for b in range(0, self.batch, batches):
            for h in range(0, self.heads, heads):
                yield _Task(slice(b, b + batches), slice(h, h + heads), blocks)


def bind(plan: Any) -> Callable[..., Any] | None:
    backward = plan.op.name == "attention_backward"
    start = 2 if backward else 0
    q, k, v = plan.specs[start : start + 3]
    extra = plan.specs[7:] if backward else plan.specs[3:]
    plain = all(is_absent(s) for s in extra) and plan.attrs[2] is None
    if not plain or not all(s.size for s in (q, k, v)) or (backward and is_absent(plan.specs[0])):
        return None
    for each in KERNELS.values():
        each.ready()
    return (_bind_backward if backward else _bind_forward)(plan, Shape.of(q, k, plan.attrs))


def _grouped(x: Any, heads: int) -> Any:
    """[B, H, S, D] as [B, heads, H / heads, S, D], a view."""
    b, h, s, d = x.shape
    steps = x.strides
    strides = (steps[0], steps[1] * (h // heads), *steps[1:])
    return np.lib.stride_tricks.as_strided(x, (b, heads, h // heads, s, d), strides)


def _rows(x: Any) -> Any:
    """[..., r, n] as [heads, r, n]."""
    return x.reshape(-1, *x.shape[-2:])


def _bind_forward(plan: Any, shape: Shape) -> Callable[..., Any]:
    out_shape, tasks, scores = plan.out[0].shape, list(shape.tasks()), probabilities.ready()
    dtype = plan.out[0].dtype.numpy

    def run(hq: Any, hk: Any, hv: Any, *_: Any) -> Any:
        q, k, v = (_grouped(h.array, shape.heads) for h in (hq, hk, hv))
        out, lse = empty(out_shape, dtype), np.empty(out_shape[:3], dtype)
        y, level = _grouped(out, shape.heads), lse.reshape(q.shape[:4])

        def task(i: int) -> None:
            batch, heads, blocks = tasks[i]
            for rows in blocks:
                s = np.matmul(q[batch, heads, :, rows], k[batch, heads].swapaxes(-1, -2))
                flat, own = _rows(s), np.empty(s.shape[:-1], dtype)
                reach = shape.left + rows.start, shape.right + rows.start
                scores(flat, flat.view(np.int32), shape.scale, *reach, own.reshape(flat.shape[:2]))
                np.matmul(s, v[batch, heads], out=y[batch, heads, :, rows])
                level[batch, heads, :, rows] = own

        with BLAS:
            POOL.run(task, len(tasks))
        return handle_of(out), handle_of(lse)

    return run


def _bind_backward(plan: Any, shape: Shape) -> Callable[..., Any]:
    tasks, dtype, change = list(shape.tasks()), plan.out[0].dtype.numpy, slopes.ready()
    specs = plan.out

    def run(hg: Any, hl: Any, hq: Any, hk: Any, hv: Any, ho: Any, hlse: Any, *_: Any) -> Any:
        g, q, k, v = (_grouped(h.array, shape.heads) for h in (hg, hq, hk, hv))
        outs = [empty(s.shape, dtype) for s in specs[:3]]
        dq, dk, dv = (_grouped(x, shape.heads) for x in outs)
        lse = hlse.array.reshape(q.shape[:4])
        delta = _delta(hg.array, ho.array, hl).reshape(lse.shape)

        def task(i: int) -> None:
            batch, heads, blocks = tasks[i]
            own_k, own_v = k[batch, heads], v[batch, heads]
            for rows in blocks:
                place = batch, heads, slice(None), rows
                s, ds = q[place] @ own_k.swapaxes(-1, -2), g[place] @ own_v.swapaxes(-1, -2)
                reach = shape.left + rows.start, shape.right + rows.start
                known = [np.ascontiguousarray(x[place]) for x in (lse, delta)]
                flat = _rows(s)
                levels = [x.reshape(flat.shape[:2]) for x in known]
                change(flat, _rows(ds), shape.scale, *reach, *levels)
                np.matmul(ds, own_k, out=dq[place])
                pairs = ((dk, ds, q), (dv, s, g))
                for target, left, right in pairs:
                    _add_heads(target[batch, heads], left, right[place], rows.start == 0)

        with BLAS:
            POOL.run(task, len(tasks))
        return *(handle_of(x) for x in outs), handle_of(np.zeros(0, dtype))

    return run


def _add_heads(target: Any, left: Any, right: Any, first: bool) -> None:
    """``leftᵀ right`` summed over the query heads of a key head, into or onto ``target``."""
    if first and left.shape[2] == 1:
        np.matmul(left.swapaxes(-1, -2), right, out=target)
        return
    part = np.matmul(left.swapaxes(-1, -2), right).sum(axis=2, keepdims=True)
    if first:
        target[...] = part
    else:
        target += part


def _delta(g: Any, out: Any, dlse: Any) -> Any:
    """The row term of softmax's backward: ``sum_j p_j dp_j``, which is g . out."""
    rows, n = out.size // out.shape[-1], out.shape[-1]
    delta = np.empty(rows, out.dtype)
    x, y = (np.ascontiguousarray(a).reshape(rows, n) for a in (g, out))
    row_dots.ready()(x, y, delta)
    return delta if dlse is None else delta - dlse.array.reshape(-1)
