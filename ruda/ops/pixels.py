"""Reading images between their pixels: neighbours gathered and weighted, in operators alone.

Positions are in pixels, one tensor ``[N, L]`` per spatial axis. What is read has channels first,
``[C, N, L]``, so that weights ``[N, L]`` broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from ruda.core.shapes import Shape
from ruda.ops.arith import absolute, multiply, remainder
from ruda.ops.cast import astype
from ruda.ops.compare import equal, greater_equal, less, logical_and
from ruda.ops.create import arange
from ruda.ops.index import INDEX
from ruda.ops.movement import moveaxis, reshape
from ruda.ops.round import floor, round
from ruda.ops.select import clip, where
from ruda.tensor.tensor import RudaTensor

Positions = Sequence[RudaTensor]

# How far outside a position may lie: every filter reads zeros there, and it fits an integer.
_MARGIN = 4


def read(x: RudaTensor, places: Positions) -> RudaTensor:
    """Pixels of ``x [N, C, *S]`` at whole ``places`` inside: ``[C, N, L]``."""
    sizes = x.shape[2:]
    rows = reshape(moveaxis(x, 1, 0), (x.shape[1], x.shape[0] * math.prod(sizes)))
    flat = reshape(arange(x.shape[0], dtype="int64", device=x.device), (-1, 1))
    for size, place in zip(sizes, places, strict=True):
        flat = flat * size + astype(place, "int64")
    return INDEX.get(rows, flat, (1,))


def _read_inside(x: RudaTensor, places: Positions) -> RudaTensor:
    """As ``read``, with zeros for places outside."""
    inside: Any = None
    for size, place in zip(x.shape[2:], places, strict=True):
        within = logical_and(greater_equal(place, 0), less(place, size))
        inside = within if inside is None else logical_and(inside, within)
    found = read(x, [clip(p, 0, n - 1) for n, p in zip(x.shape[2:], places, strict=True)])
    return where(inside, found, 0)


def bounded(positions: Positions, sizes: Shape) -> list[RudaTensor]:
    """Positions moved to within reach of the image; NaN goes outside."""
    reach = [clip(p, -_MARGIN, n - 1 + _MARGIN) for n, p in zip(sizes, positions, strict=True)]
    return [where(equal(p, p), p, -_MARGIN) for p in reach]


def padded(positions: Positions, sizes: Shape, padding: str, corners: bool) -> list[RudaTensor]:
    """Positions outside brought in by ``border`` or ``reflection``, or left alone for ``zeros``."""
    if padding == "zeros":
        return bounded(positions, sizes)
    if padding == "reflection":
        pairs = zip(positions, sizes, strict=True)
        positions = [_reflected(p, n, corners) for p, n in pairs]
    inside = [clip(p, 0, n - 1) for p, n in zip(positions, sizes, strict=True)]
    return [where(equal(p, p), p, 0) for p in inside]


def _reflected(p: RudaTensor, size: int, corners: bool) -> RudaTensor:
    """``p`` folded at the centres of the outer pixels, or at their outer edges."""
    low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    if span == 0:
        return p * 0
    return low + (span - absolute(span - remainder(p - low, 2 * span)))


def nearest(x: RudaTensor, positions: Positions) -> RudaTensor:
    """The pixel nearest to each position, halves going to the even one; zeros outside."""
    return _read_inside(x, [round(p) for p in positions])


def linear(x: RudaTensor, positions: Positions) -> RudaTensor:
    """The two pixels around each position along each axis, weighted by nearness; zeros outside."""
    lows = [floor(p) for p in positions]
    parts = [p - low for p, low in zip(positions, lows, strict=True)]
    total: Any = None
    for corner in product((0, 1), repeat=len(lows)):
        weight = _product([t if far else 1 - t for t, far in zip(parts, corner, strict=True)])
        found = _read_inside(x, [low + far for low, far in zip(lows, corner, strict=True)])
        total = found * weight if total is None else total + found * weight
    return total


def cubic(x: RudaTensor, positions: Positions, padding: str, corners: bool) -> RudaTensor:
    """Keys' cubic convolution of four pixels along each axis; each of them is padded by itself."""
    if padding == "reflection":
        reachable = [where(less(absolute(p), math.inf), p, 0) for p in positions]
    else:
        reachable = bounded(positions, x.shape[2:])
    lows = [floor(p) for p in reachable]
    weights = [_cubic_weights(p - low) for p, low in zip(reachable, lows, strict=True)]
    total: Any = None
    for places in product(range(4), repeat=len(lows)):
        weight = _product([w[k] for w, k in zip(weights, places, strict=True)])
        pixels = [low + (k - 1) for low, k in zip(lows, places, strict=True)]
        found = _read_inside(x, padded(pixels, x.shape[2:], padding, corners))
        total = found * weight if total is None else total + found * weight
    return total


def _cubic_weights(t: RudaTensor) -> list[RudaTensor]:
    a = -0.75

    def near(u: RudaTensor) -> RudaTensor:
        return ((a + 2) * u - (a + 3)) * u * u + 1

    def far(u: RudaTensor) -> RudaTensor:
        return ((a * u - 5 * a) * u + 8 * a) * u - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _product(factors: list[RudaTensor]) -> RudaTensor:
    out = factors[0]
    for factor in factors[1:]:
        out = multiply(out, factor)
    return out
