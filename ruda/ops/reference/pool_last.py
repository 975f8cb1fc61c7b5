"""Maximum pooling with channels last, which remembers the winners by their place in the window.

x is [N, *S, C]. Codes are row-major places in the kernel, 255 for a window of padding alone; ties
give the lower place and NaN wins, as in ``pool``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ruda.ops.reference import pool
from ruda.ops.reference.windows import Array, Padding, volume

NONE = 255


def max_pool_last(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    ceil_mode: bool = False,
) -> tuple[Array, Array]:
    """Take the maximum of each window and say which place of the window it has."""
    values, indices = pool.max_pool(_first(x), kernel, stride, padding, dilation, ceil_mode)
    counts, places = indices.shape[2:], np.zeros(indices.shape, np.int64)
    rest = np.maximum(indices, 0)
    for axis in reversed(range(len(kernel))):
        rest, at = np.divmod(rest, x.shape[1 + axis])
        place = (at - _starts(counts, axis, stride, padding)) // dilation[axis]
        places += place * volume(kernel[axis + 1 :])
    codes = np.where(indices < 0, NONE, places).astype(np.uint8)
    return _last(values), _last(codes)


def _starts(counts: Sequence[int], axis: int, stride: Sequence[int], padding: Padding) -> Array:
    """Where the windows begin along ``axis``, against windows [*counts]."""
    starts = np.arange(counts[axis]) * stride[axis] - padding[axis][0]
    return starts.reshape(-1, *(1,) * (len(counts) - axis - 1))


def _first(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def _last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def _indices(
    codes: Array,
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
) -> Array:
    """From codes [N, *windows, C] to positions in planes [N, C, *windows], -1 for none."""
    codes = _first(codes)
    rest, found = codes.astype(np.int64), np.zeros(codes.shape, np.int64)
    for axis in reversed(range(len(kernel))):
        rest, place = np.divmod(rest, kernel[axis])
        start = _starts(codes.shape[2:], axis, stride, padding)
        found += (start + place * dilation[axis]) * volume(sizes[axis + 1 :])
    return np.where(codes == NONE, -1, found)


def max_pool_last_backward(
    g: Array,
    codes: Array,
    x_shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
) -> Array:
    """Add each gradient to the element that won: g, codes [N, *windows, C] to ``x_shape``."""
    sizes, first = x_shape[1:-1], (x_shape[0], x_shape[-1], *x_shape[1:-1])
    indices = _indices(codes, sizes, kernel, stride, padding, dilation)
    return _last(pool.max_pool_backward(_first(g), indices, first, len(kernel)))


def max_pool_last_pick(
    x: Array,
    codes: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
) -> Array:
    """Read the elements that won, the transpose of ``max_pool_last_backward``."""
    indices = _indices(codes, x.shape[1:-1], kernel, stride, padding, dilation)
    return _last(pool.max_pool_pick(_first(x), indices, len(kernel)))
