"""Softmax and norms along the last axis of float32 rows.

Sums over rows (the gradients of parameters) are taken per tile of rows and then over the tiles in
their order, so they do not depend on who worked on which tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import empty
from ruda.backends.numpy.kernels.compiler import Kernel, kernel
from ruda.backends.numpy.kernels.maths import exp
from ruda.backends.numpy.kernels.sums import dot, spread, top, total
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL, TILE, tiles

_F = np.float32
_ONE = _F(1)


@kernel("void(f4[:, ::1], i4[:, ::1], f4[:, ::1])")
def softmax(x, bits, out):
    for r in range(x.shape[0]):
        row, y, high = x[r], out[r], top(bits[r])
        for j in range(row.size):
            y[j] = exp(row[j] - high)
        scale = _ONE / total(y)
        for j in range(row.size):
            y[j] *= scale


@kernel("void(f4[:, ::1], f4[:, ::1], f4[:, ::1])")
def softmax_backward(g, y, out):
    for r in range(g.shape[0]):
        dy, p, dx = g[r], y[r], out[r]
        mean = dot(dy, p)
        for j in range(dy.size):
            dx[j] = p[j] * (dy[j] - mean)


@kernel("void(f4[:, ::1], i4[:, ::1], f4[:, ::1])")
def log_softmax(x, bits, out):
    for r in range(x.shape[0]):
        row, y, high = x[r], out[r], top(bits[r])
        for j in range(row.size):
            y[j] = exp(row[j] - high)
        norm = np.log(total(y))
        for j in range(row.size):
            y[j] = (row[j] - high) - norm


@kernel("void(f4[:, ::1], f4[:, ::1], f4[:, ::1])")
def log_softmax_backward(g, y, out):
    for r in range(g.shape[0]):
        dy, level, dx = g[r], y[r], out[r]
        mass = total(dy)
        for j in range(dy.size):
            dx[j] = dy[j] - exp(level[j]) * mass


@kernel("void(f4[:, ::1], f4[::1], f4[::1], f4, f4[:, ::1], f4[::1], f4[::1])")
def layer_norm(x, weight, bias, eps, out, mean, rstd):
    n = _F(x.shape[1])
    for r in range(x.shape[0]):
        row, y = x[r], out[r]
        middle = total(row) / n
        scale = _ONE / np.sqrt(spread(row, middle) / n + eps)
        mean[r], rstd[r] = middle, scale
        for j in range(row.size):
            y[j] = (row[j] - middle) * scale * weight[j] + bias[j]


@kernel(
    "void(f4[:, ::1], f4[:, ::1], f4[::1], f4[::1], f4[::1], f4[:, ::1], f4[::1], f4[::1], f4[::1])"
)
def layer_norm_backward(g, x, weight, mean, rstd, out, dw, db, z):
    n = _F(x.shape[1])
    for r in range(x.shape[0]):
        dy, row, dx, middle, scale = g[r], x[r], out[r], mean[r], rstd[r]
        for j in range(row.size):
            z[j] = (row[j] - middle) * scale
            dw[j] += dy[j] * z[j]
            db[j] += dy[j]
            dx[j] = dy[j] * weight[j]
        along, level = dot(dx, z) / n, total(dx) / n
        for j in range(row.size):
            dx[j] = (dx[j] - level - z[j] * along) * scale


@kernel("void(f4[:, ::1], f4[::1], f4, f4[:, ::1], f4[::1])")
def rms_norm(x, weight, eps, out, rstd):
    n = _F(x.shape[1])
    for r in range(x.shape[0]):
        row, y = x[r], out[r]
        scale = _ONE / np.sqrt(dot(row, row) / n + eps)
        rstd[r] = scale
        for j in range(row.size):
            y[j] = row[j] * scale * weight[j]


@kernel("void(f4[:, ::1], f4[:, ::1], f4[::1], f4[::1], f4[:, ::1], f4[::1], f4[::1])")
def rms_norm_backward(g, x, weight, rstd, out, dw, z):
    n = _F(x.shape[1])
    for r in range(x.shape[0]):
        dy, row, dx, scale = g[r], x[r], out[r], rstd[r]
        for j in range(row.size):
            z[j] = row[j] * scale
            dw[j] += dy[j] * z[j]
            dx[j] = dy[j] * weight[j]
        along = dot(dx, z) / n
        for j in range(row.size):
            dx[j] = (dx[j] - z[j] * along) * scale


KERNELS: dict[str, Kernel] = {
    "softmax": softmax,
    "softmax_backward": softmax_backward,
    "log_softmax": log_softmax,
    "log_softmax_backward": log_softmax_backward,
    "layer_norm": layer_norm,
    "layer_norm_backward": layer_norm_backward,
    "rms_norm": rms_norm,
    "rms_norm_backward": rms_norm_backward,
}


def row_tiles(shape: tuple[int, ...]) -> list[slice]:
    """Slices of the rows of ``shape``, of about a tile of elements each."""
    return tiles(math.prod(shape[:-1]), max(TILE // shape[-1], 1))


def sum_tiles(shape: tuple[int, ...]) -> list[slice]:
    """As ``row_tiles`` in quarters, for gradients with sums over rows: each tile has its own."""
    return tiles(math.prod(shape[:-1]), max(TILE // 4 // shape[-1], 1))


def fits(plan: Any, full: int) -> bool:
    """Whether the first ``full`` operands are row-major and the axis is the last one."""
    specs, shape = plan.specs, plan.specs[full - 1].shape
    whole = all(s.contiguous and s.shape == shape for s in specs[:full])
    return whole and all(s.contiguous or s.weak for s in specs) and plan.attrs[0] == len(shape) - 1


def bind(plan: Any) -> Callable[..., Any] | None:
    name = plan.op.name
    if not fits(plan, 2 if name.endswith("backward") else 1):
        return None
    return _BINDERS.get(name, _bind_softmax)(plan, KERNELS[name].ready())


def _bind_softmax(plan: Any, function: Any) -> Callable[..., Any]:
    shape, dtype, parts = plan.out.shape, plan.out.dtype.numpy, row_tiles(plan.out.shape)
    backward = len(plan.specs) == 2

    def run(*handles: Any) -> Any:
        out = empty(shape, dtype)
        first = handles[0].array.reshape(-1, shape[-1])
        second = handles[1].array.reshape(first.shape) if backward else first.view(np.int32)
        y = out.reshape(first.shape)
        POOL.run(lambda i: function(first[parts[i]], second[parts[i]], y[parts[i]]), len(parts))
        return handle_of(out)

    return run


def _parameter(handle: Any, n: int, default: float) -> Any:
    return np.full(n, default, np.float32) if handle is None else handle.array


def _bind_norm(plan: Any, function: Any) -> Callable[..., Any]:
    shape, dtype, parts = plan.specs[0].shape, np.dtype(np.float32), row_tiles(plan.specs[0].shape)
    n, rows, eps = shape[-1], math.prod(shape[:-1]), np.float32(plan.attrs[1])

    def run(hx: Any, *parameters: Any) -> Any:
        x, out = hx.array.reshape(rows, n), empty(shape, dtype)
        y = out.reshape(rows, n)
        affine = [_parameter(h, n, 1.0 - i) for i, h in enumerate(parameters)]
        statistics = [np.empty(rows, dtype) for _ in parameters]

        def part(i: int) -> None:
            p = parts[i]
            function(x[p], *affine, eps, y[p], *[s[p] for s in statistics])

        POOL.run(part, len(parts))
        return handle_of(out), *(handle_of(s.reshape(shape[:-1])) for s in statistics)

    return run


def _bind_norm_backward(plan: Any, function: Any) -> Callable[..., Any]:
    shape, dtype, parts = plan.specs[1].shape, np.dtype(np.float32), sum_tiles(plan.specs[1].shape)
    n, rows, sums = shape[-1], math.prod(shape[:-1]), len(plan.out) - 1

    def run(hg: Any, hx: Any, hw: Any, *statistics: Any) -> Any:
        g, x, out = hg.array.reshape(rows, n), hx.array.reshape(rows, n), empty(shape, dtype)
        dx, weight = out.reshape(rows, n), _parameter(hw, n, 1.0)
        known = [h.array.reshape(rows) for h in statistics]
        partial = np.zeros((sums, len(parts), n), dtype)

        def part(i: int) -> None:
            p, z = parts[i], np.empty(n, dtype)
            function(g[p], x[p], weight, *[s[p] for s in known], dx[p], *partial[:, i], z)

        POOL.run(part, len(parts))
        return handle_of(out), *(handle_of(s) for s in partial.sum(axis=1))

    return run


_BINDERS: dict[str, Callable[[Any, Any], Callable[..., Any]]] = {
    "layer_norm": _bind_norm,
    "rms_norm": _bind_norm,
    "layer_norm_backward": _bind_norm_backward,
    "rms_norm_backward": _bind_norm_backward,
}
