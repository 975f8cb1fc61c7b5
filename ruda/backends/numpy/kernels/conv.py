"""Convolution on the pool: tiles of windows as columns (im2col), each times the kernels by BLAS.

The meaning is the reference's. Weight gradients are summed per tile and then over the tiles in
their order, so they do not depend on who worked on which tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import empty
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import BLAS, POOL
from ruda.ops.reference.conv import channels_first, flipped, matrices, tiles
from ruda.ops.reference.windows import pad_spatial, volume, windows_view

# Columns of one tile: they are written once and read once, so they should stay in the cache.
_TILE_BYTES = 1 << 21


class _Columns:
    """The windows of an input, as columns [groups, C / groups * K, positions] of each tile."""

    def __init__(self, x: Any, kernel: Any, counts: Any, settings: Any) -> None:
        stride, padding, dilation, self.groups = settings
        self.kernel = kernel
        self.depth = x.shape[1] * volume(kernel)
        bytes_per_position = self.depth * x.itemsize
        self.tiles = list(tiles((*x.shape[:2], *counts), bytes_per_position, _TILE_BYTES))
        self.windows = windows_view(pad_spatial(x, padding), kernel, stride, dilation, counts)

    def __call__(self, i: int) -> Any:
        images, _, rows = self.tiles[i]
        whole = (slice(None),) * (1 + len(self.kernel))
        part = np.moveaxis(self.windows[(images, *whole, rows)], 0, 1 + len(self.kernel))
        columns = part
        if volume(self.kernel) > 1:
            columns = empty(part.shape, part.dtype)
            np.copyto(columns, part)
        positions = volume(part.shape[1 + len(self.kernel) :])
        return columns.reshape(self.groups, self.depth // self.groups, positions)


def _forward(x: Any, w: Any, shape: Any, settings: Any) -> Any:
    out, kernels = empty(shape, x.dtype), matrices(w, settings[-1])
    columns = _Columns(x, w.shape[2:], shape[2:], settings)

    def task(i: int) -> None:
        part = channels_first(out[columns.tiles[i]])
        part[...] = np.matmul(kernels, columns(i)).reshape(part.shape)

    with BLAS:
        POOL.run(task, len(columns.tiles))
    return out


def _weight_backward(g: Any, x: Any, shape: Any, settings: Any) -> Any:
    groups = settings[-1]
    columns = _Columns(x, shape[2:], g.shape[2:], settings)
    sizes = (len(columns.tiles), groups, shape[0] // groups, volume(shape[1:]))
    partial = empty(sizes, g.dtype)

    def task(i: int) -> None:
        gradient = matrices(channels_first(g[columns.tiles[i]]), groups)
        np.matmul(gradient, columns(i).swapaxes(1, 2), out=partial[i])

    with BLAS:
        POOL.run(task, len(columns.tiles))
    return partial.sum(axis=0).reshape(shape)


def bind(plan: Any) -> Callable[..., Any] | None:
    """Channels first, by columns; a gradient of the input only where it is itself a convolution."""
    *attrs, layout, strategy = plan.attrs
    if layout != "nchw" or strategy not in ("auto", "implicit_gemm"):
        return None
    return _BINDERS[plan.op.name](plan, attrs)


def _bind_forward(plan: Any, settings: Any) -> Callable[..., Any]:
    shape = plan.out.shape
    return lambda hx, hw: handle_of(_forward(hx.array, hw.array, shape, settings))


def _bind_weight(plan: Any, attrs: Any) -> Callable[..., Any]:
    shape, *settings = attrs
    return lambda hg, hx: handle_of(_weight_backward(hg.array, hx.array, shape, settings))


def _bind_data(plan: Any, attrs: Any) -> Callable[..., Any] | None:
    shape, stride, padding, dilation, groups = attrs
    extents = [d * (k - 1) for d, k in zip(dilation, plan.specs[1].shape[2:], strict=True)]
    mirrored = [(e - lo, e - hi) for e, (lo, hi) in zip(extents, padding, strict=True)]
    if any(s != 1 for s in stride) or any(min(pair) < 0 for pair in mirrored):
        return None
    settings = (stride, mirrored, dilation, groups)
    return lambda hg, hw: handle_of(_forward(hg.array, flipped(hw.array, groups), shape, settings))


_BINDERS: dict[str, Callable[[Any, Any], Callable[..., Any] | None]] = {
    "conv": _bind_forward,
    "conv_weight_backward": _bind_weight,
    "conv_data_backward": _bind_data,
}
