"""Pooling over one to three trailing axes: max with indices, average, and adaptive forms.

Leading axes are free: x is [..., *S] and ``len(kernel)`` says how many axes are pooled. Indices are
int64 positions in the row-major flattened, unpadded input plane; -1 stands for a window that holds
padding only (its maximum is the lowest value of the dtype). Ties and NaNs give the lower index, and
NaN propagates. Every gradient is summed in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ruda.ops.reference.windows import (
    Array,
    Index,
    Padding,
    offset_slices,
    row_blocks,
    volume,
    window_count,
)

# Planes handled at once: input, maxima and codes of a block then stay in the cache.
_BLOCK_BYTES = 1 << 19


def pool_output_shape(
    x_shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    ceil_mode: bool = False,
) -> tuple[int, ...]:
    """Predict the shape of a pooling; a pooled size of zero or less means no window fits.

    >>> pool_output_shape((2, 3, 5, 5), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), True)
    (2, 3, 3, 3)
    """
    first = len(x_shape) - len(kernel)
    axes = zip(x_shape[first:], kernel, stride, padding, dilation, strict=True)
    return (*x_shape[:first], *(window_count(*axis, ceil_mode) for axis in axes))


def max_pool(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    ceil_mode: bool = False,
) -> tuple[Array, Array]:
    """Take the maximum of each window and say where it stands.

    x: [..., *S], a real dtype; the results: values and int64 indices, [..., *windows].
    """
    sizes = x.shape[x.ndim - len(kernel) :]
    shape = pool_output_shape(x.shape, kernel, stride, padding, dilation, ceil_mode)
    counts = shape[x.ndim - len(kernel) :]
    planes = x.reshape(volume(x.shape[: x.ndim - len(kernel)]), *sizes)
    values = np.full((planes.shape[0], *counts), _lowest(x.dtype), x.dtype)
    indices = np.empty(values.shape, np.int64)
    offsets = list(offset_slices(sizes, counts, kernel, stride, padding, dilation))
    origin, steps = _flat_positions(sizes, counts, kernel, stride, padding, dilation)
    for block in row_blocks(planes.shape[0], volume(sizes) * x.itemsize, _BLOCK_BYTES):
        part, best = planes[block], values[block]
        for _, out, inp in offsets:
            np.maximum(best[out], part[inp], out=best[out])
        code = _winner_codes(part, best, offsets, len(steps))
        found = np.concatenate(([0], steps[::-1]))[code]
        found += origin
        indices[block] = np.where(code, found, -1) if not code.all() else found
    return values.reshape(shape), indices.reshape(shape)


def _winner_codes(
    part: Array, best: Array, offsets: list[tuple[int, Index, Index]], kernel_size: int
) -> Array:
    """Code the lowest offset that attains each maximum as ``kernel_size - offset``; 0 for none.

    A maximum of small integers is three times faster here than a masked copy of indices.
    """
    code = np.zeros(best.shape, np.min_scalar_type(kernel_size))
    has_nan = best.dtype.kind == "f" and bool(np.isnan(best).any())
    for offset, out, inp in offsets:
        candidate = part[inp]
        wins = candidate == best[out]
        if has_nan:
            wins |= np.isnan(candidate)
        rank = np.multiply(wins, code.dtype.type(kernel_size - offset))
        np.maximum(code[out], rank, out=code[out])
    return code


def _flat_positions(
    sizes: Sequence[int],
    counts: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
) -> tuple[Array, Array]:
    """Flat position of each window's first element [*counts], and of each offset relative to it."""
    origin = np.zeros((1,) * len(sizes), np.int64)
    steps = np.zeros(1, np.int64)
    for axis in range(len(sizes)):
        weight = volume(sizes[axis + 1 :])
        starts = (np.arange(counts[axis]) * stride[axis] - padding[axis][0]) * weight
        origin = origin + starts.reshape(-1, *(1,) * (len(sizes) - axis - 1))
        steps = np.add.outer(steps, np.arange(kernel[axis]) * dilation[axis] * weight).reshape(-1)
    return origin, steps


def _lowest(dtype: np.dtype) -> float | int | bool:
    if dtype.kind == "f":
        return -np.inf
    return False if dtype.kind == "b" else int(np.iinfo(dtype).min)


def max_pool_backward(g: Array, indices: Array, x_shape: Sequence[int], ndim: int) -> Array:
    """Add each gradient to the element that won: g, indices [..., *windows] to ``x_shape``.

    ``ndim`` counts the pooled axes. Serves adaptive max pooling and unpooling too.
    """
    plane = volume(x_shape[len(x_shape) - ndim :])
    dx = np.zeros(x_shape, g.dtype)
    positions, valid = _absolute(indices, plane, ndim)
    if valid is None:
        np.add.at(dx.reshape(-1), positions, g.reshape(-1))
    else:
        np.add.at(dx.reshape(-1), positions[valid], g.reshape(-1)[valid])
    return dx


def max_pool_pick(x: Array, indices: Array, ndim: int) -> Array:
    """Read the elements that won, the transpose of ``max_pool_backward``; zero where none did."""
    plane = volume(x.shape[x.ndim - ndim :])
    positions, valid = _absolute(indices, plane, ndim)
    if valid is None:
        return x.reshape(-1)[positions].reshape(indices.shape)
    picked = np.zeros(indices.size, x.dtype)
    picked[valid] = x.reshape(-1)[positions[valid]]
    return picked.reshape(indices.shape)


def _absolute(indices: Array, plane: int, ndim: int) -> tuple[Array, Array | None]:
    """Turn indices within planes into flat positions, with a mask if some windows have none."""
    starts = np.arange(volume(indices.shape[: indices.ndim - ndim])) * plane
    positions = indices + starts.reshape(*indices.shape[: indices.ndim - ndim], *(1,) * ndim)
    valid = indices.reshape(-1) >= 0
    return positions.reshape(-1), None if valid.all() else valid


def avg_pool(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Array:
    """Average each window: x [..., *S] to [..., *windows], floating or complex.

    The divisor is the window's overlap with the padded input, with the input alone
    (``count_include_pad=False``), or ``divisor``. A partial last window of ``ceil_mode`` therefore
    counts what lies inside the padding, never what lies beyond.
    """
    total = x
    for axis, window in _pooled_axes(x.shape, kernel, stride, padding, ceil_mode):
        total = _window_sum(total, axis, *window)
    return total / _divisors(
        x.shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor
    )


def avg_pool_backward(
    g: Array,
    x_shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Array:
    """Transpose ``avg_pool``: g [..., *windows] to ``x_shape``."""
    dx = g / _divisors(x_shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
    for axis, window in reversed(_pooled_axes(x_shape, kernel, stride, padding, ceil_mode)):
        dx = _window_spread(dx, axis, *window)
    return dx


_AxisWindow = tuple[int, int, int, int, tuple[int, int]]


def _pooled_axes(
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    ceil_mode: bool,
) -> list[tuple[int, _AxisWindow]]:
    """List the pooled axes with (size, count, kernel, stride, padding), outermost first.

    A window sum is separable, and summing outer axes first keeps most additions contiguous.
    """
    first = len(shape) - len(kernel)
    windows = []
    for i, (size, k, s, p) in enumerate(zip(shape[first:], kernel, stride, padding, strict=True)):
        windows.append((first + i, (size, window_count(size, k, s, p, 1, ceil_mode), k, s, p)))
    return windows


def _axis_offsets(
    ndim: int, axis: int, size: int, count: int, k: int, s: int, p: tuple[int, int]
) -> list[tuple[Index, Index]]:
    after = (slice(None),) * (ndim - axis - 1)
    offsets = offset_slices([size], [count], [k], [s], [p], [1])
    return [((*out, *after), (*inp, *after)) for _, out, inp in offsets]


def _window_sum(
    x: Array, axis: int, size: int, count: int, k: int, s: int, p: tuple[int, int]
) -> Array:
    total = np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
    for out, inp in _axis_offsets(x.ndim, axis, size, count, k, s, p):
        total[out] += x[inp]
    return total


def _window_spread(
    g: Array, axis: int, size: int, count: int, k: int, s: int, p: tuple[int, int]
) -> Array:
    dx = np.zeros((*g.shape[:axis], size, *g.shape[axis + 1 :]), g.dtype)
    for out, inp in _axis_offsets(g.ndim, axis, size, count, k, s, p):
        dx[inp] += g[out]
    return dx


def _divisors(
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Array:
    """Give the divisor of every window, [*windows], as a weak number or in float32."""
    axes = _pooled_axes(shape, kernel, stride, padding, ceil_mode)
    result = np.ones((1,) * len(kernel), np.float32)
    if divisor is not None:
        return result * divisor
    for i, (_, (size, count, k, s, (lo, hi))) in enumerate(axes):
        start = np.arange(count) * s - lo
        stop = np.minimum(start + k, size + hi)
        if not count_include_pad:
            start, stop = np.maximum(start, 0), np.minimum(stop, size)
        result = result * (stop - start).reshape(-1, *(1,) * (len(axes) - i - 1))
    return result.astype(np.float32)


def adaptive_bounds(size: int, count: int) -> list[tuple[int, int]]:
    """Give the half-open windows that divide ``size`` elements into ``count`` outputs.

    Window ``i`` is [floor(i * size / count), ceil((i + 1) * size / count)); neighbours may overlap.

    >>> adaptive_bounds(5, 3)
    [(0, 2), (1, 4), (3, 5)]
    """
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def adaptive_avg_pool(x: Array, output_size: Sequence[int]) -> Array:
    """Average x [..., *S] over adaptive windows to [..., *output_size]."""
    for axis, count in enumerate(output_size, x.ndim - len(output_size)):
        rows = np.moveaxis(x, axis, 0)
        pooled = np.empty((count, *rows.shape[1:]), x.dtype)
        for i, (start, stop) in enumerate(adaptive_bounds(len(rows), count)):
            pooled[i] = rows[start:stop].mean(axis=0)
        x = np.moveaxis(pooled, 0, axis)
    return np.ascontiguousarray(x)


def adaptive_avg_pool_backward(g: Array, x_shape: Sequence[int], ndim: int) -> Array:
    """Transpose ``adaptive_avg_pool``: g [..., *output_size] to ``x_shape``."""
    for axis in range(g.ndim - ndim, g.ndim):
        rows = np.moveaxis(g, axis, 0)
        spread = np.zeros((x_shape[axis], *rows.shape[1:]), g.dtype)
        for i, (start, stop) in enumerate(adaptive_bounds(x_shape[axis], len(rows))):
            spread[start:stop] += rows[i] / (stop - start)
        g = np.moveaxis(spread, 0, axis)
    return np.ascontiguousarray(g)


def adaptive_max_pool(x: Array, output_size: Sequence[int]) -> tuple[Array, Array]:
    """Take the maximum of x [..., *S] over adaptive windows: values and indices as ``max_pool``.

    Works axis by axis from the innermost outwards, which keeps the lower index on ties.
    """
    first = x.ndim - len(output_size)
    indices = np.arange(volume(x.shape[first:])).reshape(x.shape[first:])
    indices = np.broadcast_to(indices, x.shape)
    for axis in reversed(range(first, x.ndim)):
        where = _axis_winners(x, axis, adaptive_bounds(x.shape[axis], output_size[axis - first]))
        x = np.take_along_axis(x, where, axis)
        indices = np.take_along_axis(indices, where, axis)
    return np.ascontiguousarray(x), np.ascontiguousarray(indices)


def _axis_winners(x: Array, axis: int, bounds: list[tuple[int, int]]) -> Array:
    winners = np.empty((len(bounds), *x.shape[:axis], *x.shape[axis + 1 :]), np.int64)
    for i, (start, stop) in enumerate(bounds):
        window = x[(*(slice(None),) * axis, slice(start, stop))]
        winners[i] = window.argmax(axis) + start
    return np.moveaxis(winners, 0, axis)
