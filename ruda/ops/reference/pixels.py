"""Reading images between their pixels: a few taps (place, weight) per axis, and their products.

Positions are in pixels, [N, L] per spatial axis of x [N, C, *S]; results are [N, C, L].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from ruda.ops.reference.resample import cubic_weights
from ruda.ops.reference.windows import Array

Tap: TypeAlias = tuple[Array, Array]

# How far outside a position may lie: every filter reads zeros there, and it fits an integer.
_MARGIN = 4


def grid_sample(x: Array, grid: Array, mode: str, padding: str, corners: bool) -> Array:
    """Read x [N, C, *S] at grid [N, *sizes, axes], pixels scaled to -1 … 1, last axis first."""
    sizes = x.shape[2:]
    points = grid.reshape(x.shape[0], math.prod(grid.shape[1:-1]), len(sizes))
    taps = []
    for axis, n in enumerate(sizes):
        p = points[..., len(sizes) - 1 - axis]
        pixel = (p + 1) / 2 * (n - 1) if corners else ((p + 1) * n - 1) / 2
        taps.append(_taps(pixel, n, mode, padding, corners))
    return gathered(x, taps).reshape(*x.shape[:2], *grid.shape[1:-1])


def gathered(x: Array, taps: Sequence[Sequence[Tap]]) -> Array:
    """Sum of the pixels at every combination of taps of the axes, times their weights."""
    rows = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    out = np.zeros((*x.shape[:2], taps[0][0][0].shape[1]), x.dtype)
    for chosen in product(*taps):
        flat = np.zeros_like(chosen[0][0])
        weight = np.ones_like(chosen[0][1])
        for size, (place, share) in zip(x.shape[2:], chosen, strict=True):
            flat = flat * size + place
            weight = weight * share
        out += np.take_along_axis(rows, flat[:, None], 2) * weight[:, None].astype(x.dtype)
    return out


def linear_taps(p: Array, size: int) -> list[Tap]:
    """The two pixels around each position; outside there are zeros."""
    p = _bounded(p, size)
    low = np.floor(p)
    return [_inside(low, 1 - (p - low), size), _inside(low + 1, p - low, size)]


def _taps(p: Array, size: int, mode: str, padding: str, corners: bool) -> list[Tap]:
    if mode == "bicubic":
        p = np.where(np.isfinite(p), p, 0) if padding == "reflection" else _bounded(p, size)
        low = np.floor(p)
        around = [_padded(low + k, size, padding, corners) for k in (-1, 0, 1, 2)]
        weights = cubic_weights(p - low)
        return [_inside(place, w, size) for place, w in zip(around, weights, strict=True)]
    p = _padded(p, size, padding, corners)
    if mode == "nearest":
        return [_inside(np.round(p), np.ones_like(p), size)]
    return linear_taps(p, size)


def _inside(place: Array, weight: Array, size: int) -> Tap:
    within = (place >= 0) & (place < size)
    return np.clip(place, 0, size - 1).astype(np.int64), np.where(within, weight, 0)


def _bounded(p: Array, size: int) -> Array:
    return np.where(np.isnan(p), -_MARGIN, np.clip(p, -_MARGIN, size - 1 + _MARGIN))


def _padded(p: Array, size: int, padding: str, corners: bool) -> Array:
    """Positions outside brought in by ``border`` or ``reflection``, or left alone for ``zeros``."""
    if padding == "zeros":
        return _bounded(p, size)
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        folded = np.remainder(p - low, 2 * span) if span else np.zeros_like(p)
        p = low + (span - np.abs(span - folded))
    return np.where(np.isnan(p), 0, np.clip(p, 0, size - 1))
