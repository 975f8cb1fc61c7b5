"""Cross-entropy of float32 logits along the last axis, without class weights.

A target is looked at before it is used; one that is no class ends the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import empty
from ruda.backends.numpy.kernels.compiler import Kernel, kernel
from ruda.backends.numpy.kernels.maths import exp
from ruda.backends.numpy.kernels.rows import row_tiles
from ruda.backends.numpy.kernels.sums import top, total
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL
from ruda.core.spec import is_absent
from ruda.ops.cross_entropy_rows import check_classes

_F = np.float32


@kernel("b1(f4[:, ::1], i8[::1], i8, f4, f4, f4[::1], f4[::1], f4[::1])")
def cross_entropy(x, target, ignore, smoothing, z_loss, loss, lse, scratch):
    n = _F(x.shape[1])
    for r in range(x.shape[0]):
        row, high = x[r], top(x[r].view(np.int32))
        for j in range(row.size):
            scratch[j] = exp(row[j] - high)
        norm = np.log(total(scratch))
        level = norm + high
        lse[r], loss[r] = level, _F(0)
        if target[r] == ignore:
            continue
        if target[r] < 0 or target[r] >= row.size:
            return False
        picked = row[target[r]] - high
        value = (_F(1) - smoothing) * (norm - picked)
        if smoothing:
            for j in range(row.size):
                scratch[j] = row[j] - high
            value += smoothing * (norm - total(scratch) / n)
        loss[r] = value + z_loss * level * level
    return True


@kernel("void(f4[::1], f4[:, ::1], i8[::1], f4[::1], i8, f4, f4, f4[:, ::1])")
def cross_entropy_backward(g, x, target, lse, ignore, smoothing, z_loss, out):
    n = _F(x.shape[1])
    for r in range(x.shape[0]):
        row, dx, level, dy = x[r], out[r], lse[r], g[r]
        if target[r] == ignore:
            dx[:] = _F(0)
            continue
        slope = dy * (_F(1) + _F(2) * z_loss * level)
        spread = dy * smoothing / n
        for j in range(row.size):
            dx[j] = exp(row[j] - level) * slope - spread
        dx[target[r]] -= dy * (_F(1) - smoothing)


KERNELS: dict[str, Kernel] = {
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
}


def bind(plan: Any) -> Callable[..., Any] | None:
    backward = plan.op.name == "cross_entropy_backward"
    logits, target, weight = plan.specs[backward], plan.specs[backward + 1], plan.specs[-1]
    if target.dtype.name == "uint64":
        # Its largest values would turn into negative ones, such as what is to be ignored.
        return None
    if not is_absent(weight) or not logits.contiguous or plan.attrs[0] != logits.ndim - 1:
        return None
    function = KERNELS[plan.op.name].ready()
    return (_bind_backward if backward else _bind_forward)(plan, function)


def _bind_forward(plan: Any, function: Any) -> Callable[..., Any]:
    shape, dtype, parts = plan.specs[0].shape, np.dtype(np.float32), row_tiles(plan.specs[0].shape)
    n, rows, (_, ignore, smoothing, z_loss) = shape[-1], math.prod(shape[:-1]), plan.attrs

    def run(hx: Any, ht: Any, _: Any) -> Any:
        target = np.ascontiguousarray(ht.array, np.int64).reshape(rows)
        x, loss, lse = hx.array.reshape(rows, n), np.empty(rows, dtype), np.empty(rows, dtype)

        def part(i: int) -> None:
            p, outs = parts[i], (loss, lse)
            known = function(
                x[p],
                target[p],
                ignore,
                smoothing,
                z_loss,
                *[v[p] for v in outs],
                np.empty(n, dtype),
            )
            if not known:
                check_classes("cross_entropy", ht.array, n, ignore)

        POOL.run(part, len(parts))
        return handle_of(loss.reshape(shape[:-1])), handle_of(lse.reshape(shape[:-1]))

    return run


def _bind_backward(plan: Any, function: Any) -> Callable[..., Any]:
    shape, dtype, parts = plan.out.shape, plan.out.dtype.numpy, row_tiles(plan.out.shape)
    n, rows, (_, ignore, smoothing, z_loss) = shape[-1], math.prod(shape[:-1]), plan.attrs

    def run(hg: Any, hx: Any, ht: Any, hl: Any, _: Any) -> Any:
        target = np.ascontiguousarray(ht.array, np.int64).reshape(rows)
        g, lse = (np.ascontiguousarray(h.array).reshape(rows) for h in (hg, hl))
        x, out = hx.array.reshape(rows, n), empty(shape, dtype)
        dx = out.reshape(rows, n)

        def part(i: int) -> None:
            p = parts[i]
            function(g[p], x[p], target[p], lse[p], ignore, smoothing, z_loss, dx[p])

        POOL.run(part, len(parts))
        return handle_of(out)

    return run
