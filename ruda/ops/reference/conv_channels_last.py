"""Convolution of channels-last arrays: columns [positions, *K, C] times kernels, nothing moved.

The counterpart of ``reference/conv.py`` for x [N, *S, C], w [O, *K, C / groups] and results
[N, *windows, O]. Columns are tiles that stay in the cache, and the channels of a pixel, which lie
side by side, are copied together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ruda.ops.reference.windows import Array, Padding, row_blocks, volume, window_count

Tile: TypeAlias = tuple[slice, slice]

_TILE_BYTES = 4 << 20


def conv_forward(
    x: Array,
    w: Array,
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Correlate x [N, *S, C] with the kernels w [O, *K, C / groups]: [N, *windows, O]."""
    counts = _counts(x.shape, w.shape, stride, padding, dilation)
    out = np.empty((x.shape[0], *counts, w.shape[0]), np.result_type(x, w))
    kernels = _kernels(w, groups).swapaxes(1, 2)
    for tile, columns in _columns(x, w.shape, counts, stride, padding, dilation, groups):
        part = out[tile]
        part[...] = _joined(np.matmul(columns, kernels), part.shape)
    return out


def conv_weight_backward(
    g: Array,
    x: Array,
    w_shape: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Transpose ``conv_forward`` in ``w``: g [N, *windows, O], x [N, *S, C] to ``w_shape``."""
    size = volume(w_shape[1:])
    dw = np.zeros((groups, w_shape[0] // groups, size), np.result_type(g, x))
    for tile, columns in _columns(x, w_shape, g.shape[1:-1], stride, padding, dilation, groups):
        dw += np.matmul(_split(g[tile], groups).swapaxes(1, 2), columns)
    return dw.reshape(w_shape)


def conv_data_backward(
    g: Array,
    w: Array,
    x_shape: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Transpose ``conv_forward`` in ``x``: g [N, *windows, O], w [O, *K, C / groups]."""
    kernel, share = w.shape[1:-1], w.shape[-1]
    sizes = [n + lo + hi for n, (lo, hi) in zip(x_shape[1:-1], padding, strict=True)]
    dx = np.zeros((x_shape[0], *sizes, groups, share), np.result_type(g, w))
    kernels = _kernels(w, groups)
    for tile in _tiles(g.shape, volume(kernel) * x_shape[-1] * dx.itemsize):
        part = g[tile]
        columns = np.matmul(_split(part, groups), kernels)
        columns = np.moveaxis(columns, 0, 1).reshape(*part.shape[:-1], groups, *kernel, share)
        target = dx[tile[0], tile[1].start * stride[0] :]
        for offset in product(*map(range, kernel)):
            reach = tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, s, n in zip(offset, dilation, stride, part.shape[1:-1], strict=True)
            )
            target[(slice(None), *reach)] += columns[(..., slice(None), *offset, slice(None))]
    inner = (slice(lo, n - hi) for n, (lo, hi) in zip(sizes, padding, strict=True))
    return np.ascontiguousarray(dx[(slice(None), *inner)]).reshape(x_shape)


def _counts(
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
) -> tuple[int, ...]:
    axes = zip(x_shape[1:-1], w_shape[1:-1], stride, padding, dilation, strict=True)
    return tuple(window_count(*axis) for axis in axes)


def _kernels(w: Array, groups: int) -> Array:
    return np.ascontiguousarray(w).reshape(groups, w.shape[0] // groups, volume(w.shape[1:]))


def _columns(
    x: Array,
    w_shape: Sequence[int],
    counts: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> Iterator[tuple[Tile, Array]]:
    """Yield tiles of the output with their windows as columns [groups, positions, K * C / groups].

    The column buffer is reused: a tile must be consumed before the next one is asked for.
    """
    kernel = w_shape[1:-1]
    depth = volume(kernel) * x.shape[-1]
    windows = _windows(_padded(x, padding), kernel, stride, dilation, counts, groups)
    buffer = np.empty(0, x.dtype)
    for tile in _tiles((x.shape[0], *counts, x.shape[-1]), depth * x.itemsize):
        part = windows[(slice(None), *tile)]
        if buffer.size < part.size:
            buffer = np.empty(part.size, x.dtype)
        columns = buffer[: part.size].reshape(part.shape)
        np.copyto(columns, part)
        yield tile, columns.reshape(groups, volume(part.shape[1 : 2 + len(counts)]), -1)


def _padded(x: Array, padding: Padding) -> Array:
    if not any(lo or hi for lo, hi in padding):
        return x
    return np.pad(x, ((0, 0), *padding, (0, 0)))


def _windows(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    counts: Sequence[int],
    groups: int,
) -> Array:
    """View every window of a padded input: [groups, N, *counts, *kernel, C / groups], read-only."""
    steps, channel = x.strides[1:-1], x.strides[-1]
    share = x.shape[-1] // groups
    across = tuple(step * s for step, s in zip(steps, stride, strict=True))
    inside = tuple(step * d for step, d in zip(steps, dilation, strict=True))
    shape = (groups, x.shape[0], *counts, *kernel, share)
    strides = (share * channel, x.strides[0], *across, *inside, channel)
    return as_strided(x, shape, strides, writeable=False)


def _split(x: Array, groups: int) -> Array:
    """Rows [..., channels] as [groups, positions, channels / groups]."""
    places = volume(x.shape[:-1])
    return np.moveaxis(x.reshape(places, groups, x.shape[-1] // groups), 1, 0)


def _joined(x: Array, shape: Sequence[int]) -> Array:
    """The inverse of ``_split``, in ``shape [..., channels]``."""
    return np.moveaxis(x, 0, 1).reshape(shape)


def _tiles(shape: Sequence[int], bytes_per_position: int) -> Iterator[Tile]:
    """Cut [N, *counts, C] into tiles of whole images, or of rows of one image."""
    positions = volume(shape[1:-1])
    if shape[0] == 0 or positions == 0:
        return
    images = max(1, _TILE_BYTES // max(1, bytes_per_position * positions))
    row_bytes = bytes_per_position * (positions // shape[1])
    for start in range(0, shape[0], images):
        target = _TILE_BYTES if images == 1 else row_bytes * shape[1]
        for rows in row_blocks(shape[1], row_bytes, target):
            yield slice(start, min(start + images, shape[0])), rows
