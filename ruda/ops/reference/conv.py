"""Convolution in one to three dimensions: forward and its two transposes.

The three functions are one trilinear form seen from its three sides, so derivatives of any order
are again these three. Nothing is conjugated. Forward and weight backward copy windows into columns
(im2col) and multiply; data backward multiplies and adds the columns back (col2im), or, for unit
stride, convolves with the flipped kernel, which was a quarter faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from ruda.ops.reference.windows import (
    Array,
    Padding,
    crop_spatial,
    pad_spatial,
    row_blocks,
    volume,
    window_count,
    windows_view,
)

Tile: TypeAlias = tuple[slice, slice, slice]

# Columns of one tile: large enough for BLAS to run at full speed, small enough for a shared cache.
_TILE_BYTES = 4 << 20


def conv_output_shape(
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """Predict the shape of a convolution; a spatial size of zero or less means no window fits.

    >>> conv_output_shape((8, 3, 32, 32), (16, 3, 3, 3), (2, 2), ((1, 1), (0, 1)), (1, 1))
    (8, 16, 16, 16)
    """
    axes = zip(x_shape[2:], w_shape[2:], stride, padding, dilation, strict=True)
    return (x_shape[0], w_shape[0], *(window_count(*axis) for axis in axes))


def conv_forward(
    x: Array,
    w: Array,
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Correlate ``x`` with the kernels ``w``.

    x: [N, C, *S], w: [O, C / groups, *K], padding: ((lo, hi), ...) per spatial axis; the result:
    [N, O, *windows]. Floating and complex dtypes, computed in their common dtype.
    """
    shape = conv_output_shape(x.shape, w.shape, stride, padding, dilation)
    out = np.empty(shape, np.result_type(x, w))
    kernels = matrices(w, groups)
    for tile, columns in _column_tiles(
        x, w.shape[2:], shape[2:], stride, padding, dilation, groups
    ):
        part = channels_first(out[tile])
        part[...] = np.matmul(kernels, columns).reshape(part.shape)
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
    """Transpose ``conv_forward`` in ``w``: g [N, O, *windows], x [N, C, *S] to ``w_shape``."""
    dtype = np.result_type(g, x)
    kernel, counts = w_shape[2:], g.shape[2:]
    dw = np.zeros((groups, w_shape[0] // groups, volume(w_shape[1:])), dtype)
    for tile, columns in _column_tiles(x, kernel, counts, stride, padding, dilation, groups):
        gradient = matrices(channels_first(g[tile]), groups)
        dw += np.matmul(gradient, columns.swapaxes(1, 2))
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
    """Transpose ``conv_forward`` in ``x``: g [N, O, *windows], w [O, C / groups, *K] to
    ``x_shape``.

    This is also the transposed convolution of ``g``.
    """
    if all(s == 1 for s in stride):
        extents = [d * (k - 1) for d, k in zip(dilation, w.shape[2:], strict=True)]
        mirrored = [(e - lo, e - hi) for e, (lo, hi) in zip(extents, padding, strict=True)]
        if all(lo >= 0 and hi >= 0 for lo, hi in mirrored):
            return conv_forward(g, flipped(w, groups), stride, mirrored, dilation, groups)
    return _scatter_columns(g, w, x_shape, stride, padding, dilation, groups)


def flipped(w: Array, groups: int) -> Array:
    """Turn kernels [O, C / groups, *K] into those that carry outputs back to inputs."""
    grouped = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    turned = np.flip(grouped.swapaxes(1, 2), axis=tuple(range(3, grouped.ndim)))
    return turned.reshape(groups * w.shape[1], w.shape[0] // groups, *w.shape[2:])


def _scatter_columns(
    g: Array,
    w: Array,
    x_shape: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Multiply tiles of g into columns and add each kernel offset where its windows read."""
    kernel = w.shape[2:]
    sizes = [n + lo + hi for n, (lo, hi) in zip(x_shape[2:], padding, strict=True)]
    dx = np.zeros((*x_shape[:2], *sizes), np.result_type(g, w))
    kernels = matrices(w, groups).swapaxes(1, 2)
    for tile in tiles(g.shape, volume(kernel) * x_shape[1] * dx.itemsize):
        part = channels_first(g[tile])
        columns = np.matmul(kernels, matrices(part, groups))
        columns = columns.reshape(x_shape[1], *kernel, *part.shape[1:])
        first_row = tile[2].start * stride[0]
        target = channels_first(dx[tile[0]])[:, :, first_row:]
        for offset in product(*map(range, kernel)):
            reach = tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, s, n in zip(offset, dilation, stride, part.shape[2:], strict=True)
            )
            target[(slice(None), slice(None), *reach)] += columns[(slice(None), *offset)]
    return np.ascontiguousarray(crop_spatial(dx, padding))


def _column_tiles(
    x: Array,
    kernel: Sequence[int],
    counts: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> Iterator[tuple[Tile, Array]]:
    """Yield tiles of the output with their windows as columns [groups, C / groups * K, positions].

    The column buffer is reused: a tile must be consumed before the next one is asked for.
    """
    channels = x.shape[1]
    depth = channels * volume(kernel)
    windows = windows_view(pad_spatial(x, padding), kernel, stride, dilation, counts)
    whole = (slice(None),) * (1 + len(kernel))
    buffer = np.empty(0, x.dtype)
    for tile in tiles((x.shape[0], channels, *counts), depth * x.itemsize):
        part = np.moveaxis(windows[(tile[0], *whole, tile[2])], 0, 1 + len(kernel))
        if volume(kernel) > 1:
            if buffer.size < part.size:
                buffer = np.empty(part.size, x.dtype)
            columns = buffer[: part.size].reshape(part.shape)
            np.copyto(columns, part)
            part = columns
        yield tile, part.reshape(groups, depth // groups, volume(part.shape[1 + len(kernel) :]))


def tiles(
    shape: Sequence[int], bytes_per_position: int, tile_bytes: int = _TILE_BYTES
) -> Iterator[Tile]:
    """Cut an output [N, C, *counts] into tiles of whole images, or of rows of one image."""
    positions = volume(shape[2:])
    if shape[0] == 0 or positions == 0:
        return
    images = max(1, tile_bytes // max(1, bytes_per_position * positions))
    row_bytes = bytes_per_position * (positions // shape[2])
    for start in range(0, shape[0], images):
        batch = slice(start, min(start + images, shape[0]))
        target = tile_bytes if images == 1 else row_bytes * shape[2]
        for rows in row_blocks(shape[2], row_bytes, target):
            yield batch, slice(None), rows


def matrices(x: Array, groups: int) -> Array:
    """Fold [groups * r, ...] into contiguous [groups, r, columns]: BLAS takes no odd strides."""
    rows = x.shape[0] // groups
    return np.ascontiguousarray(x).reshape(groups, rows, volume(x.shape[1:]))


def channels_first(x: Array) -> Array:
    """View [n, c, *s] as [c, n, *s]: one matrix product then serves all images of a tile."""
    return x.swapaxes(0, 1)
