"""Sliding-window arithmetic shared by convolution and pooling.

Per spatial axis: window ``i`` covers positions ``i * stride + k * dilation - padding_lo`` for
``k < kernel``; padding is a pair ``(lo, hi)`` and may differ on the two sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

Array: TypeAlias = np.ndarray[Any, Any]
Padding: TypeAlias = Sequence[tuple[int, int]]
Index: TypeAlias = tuple[Any, ...]  # (..., slice, slice): what NumPy's own types cannot spell


def window_count(
    size: int,
    kernel: int,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    ceil_mode: bool = False,
) -> int:
    """Count the windows along one axis; zero or less means that not even one fits.

    With ``ceil_mode`` a partial window is added where elements are left over, but only if it starts
    inside the input or its low padding.

    >>> window_count(5, 2, stride=2), window_count(5, 2, stride=2, ceil_mode=True)
    (2, 3)
    """
    room = size + sum(padding) - dilation * (kernel - 1) - 1
    whole = room // stride + 1
    has_partial = ceil_mode and room % stride > 0 and whole * stride < size + padding[0]
    return whole + has_partial


def pad_spatial(x: Array, padding: Padding) -> Array:
    """Surround the last ``len(padding)`` axes with zeros; ``x`` itself without padding."""
    if not any(lo or hi for lo, hi in padding):
        return x
    first = x.ndim - len(padding)
    sizes = zip(x.shape[first:], padding, strict=True)
    padded = np.zeros((*x.shape[:first], *(n + lo + hi for n, (lo, hi) in sizes)), x.dtype)
    crop_spatial(padded, padding)[...] = x
    return padded


def crop_spatial(x: Array, padding: Padding) -> Array:
    """View the part of ``x`` that ``pad_spatial`` filled: its exact transpose."""
    sizes = x.shape[x.ndim - len(padding) :]
    inner = (slice(lo, n - hi) for n, (lo, hi) in zip(sizes, padding, strict=True))
    index: Index = (..., *inner)
    return x[index]


def windows_view(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    counts: Sequence[int],
) -> Array:
    """View every window of a padded input at once, without copying.

    x: [N, C, *S]; the result: [N, C, *kernel, *counts], read-only. ``counts`` must fit.
    """
    batch_strides, steps = x.strides[:2], x.strides[2:]
    inside = tuple(step * d for step, d in zip(steps, dilation, strict=True))
    across = tuple(step * s for step, s in zip(steps, stride, strict=True))
    shape = (*x.shape[:2], *kernel, *counts)
    return as_strided(x, shape, (*batch_strides, *inside, *across), writeable=False)


def offset_slices(
    sizes: Sequence[int],
    counts: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
) -> Iterator[tuple[int, Index, Index]]:
    """Yield, for each kernel offset, the windows it serves and the unpadded input it reads there.

    Offsets come in row-major order as ``(offset, output index, input index)``, each index an
    ellipsis and one slice per axis. Windows that find only padding at that offset are left out,
    so no padded copy of the input is needed.
    """
    axes = [
        [_axis_slices(size, count, s, p, k * d) for k in range(n)]
        for size, count, n, s, p, d in zip(
            sizes, counts, kernel, stride, padding, dilation, strict=True
        )
    ]
    for offset, pairs in enumerate(product(*axes)):
        if all(out.stop > out.start for out, _ in pairs):
            yield offset, (..., *(out for out, _ in pairs)), (..., *(inp for _, inp in pairs))


def _axis_slices(
    size: int, count: int, stride: int, padding: tuple[int, int], distance: int
) -> tuple[slice, slice]:
    start = distance - padding[0]
    first = max(0, -(start // stride))
    stop = min(count, (size - 1 - start) // stride + 1)
    read = slice(first * stride + start, max(0, (stop - 1) * stride + start + 1), stride)
    return slice(first, stop), read


def row_blocks(total: int, bytes_per_row: int, target: int) -> Iterator[slice]:
    """Cut ``range(total)`` into slices of about ``target`` bytes each, at least one row long."""
    step = max(1, target // max(1, bytes_per_row))
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))


def volume(sizes: Sequence[int]) -> int:
    """Multiply sizes into a number of elements."""
    return math.prod(sizes)
