"""Resampling along one axis as a sparse matrix, held as the elements and weights of each output.

Every method is linear: output ``i`` is a weighted sum of a few inputs. The transpose is a table of
the same form (for each input the outputs it went to), so backward gathers too, in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from ruda.ops.reference.windows import Array

Table: TypeAlias = tuple[Array, Array]

# Above so many terms for each output, a product with the full matrix is faster than gathering.
_MANY_TERMS = 8


def resample(
    x: Array, axis: int, size: int, method: str, step: float, corners: bool, antialias: bool
) -> Array:
    """Bring ``axis`` of x to ``size`` elements; ``step`` is the distance of outputs, in inputs."""
    return _apply(x, axis, x.shape[axis], size, (method, step, corners, antialias), False)


def resample_backward(
    g: Array, axis: int, size: int, method: str, step: float, corners: bool, antialias: bool
) -> Array:
    """Transpose ``resample``: ``axis`` of g back to ``size`` elements."""
    return _apply(g, axis, size, g.shape[axis], (method, step, corners, antialias), True)


def _apply(
    x: Array, axis: int, size: int, count: int, how: tuple[Any, ...], transposed: bool
) -> Array:
    indices, weights = table(size, count, *how, transposed=transposed)
    if how[0].startswith("nearest") and not transposed:
        return x.take(indices[:, 0], axis)
    if indices.shape[1] > _MANY_TERMS:
        full = _matrix(size, count, how, transposed).astype(x.dtype)
        return np.moveaxis(np.matmul(np.moveaxis(x, axis, -1), full.T), -1, axis)
    shape = (len(indices),) + (1,) * (x.ndim - axis - 1)
    out = np.zeros((*x.shape[:axis], len(indices), *x.shape[axis + 1 :]), x.dtype)
    for term in range(indices.shape[1]):
        out += x.take(indices[:, term], axis) * weights[:, term].reshape(shape).astype(x.dtype)
    return out


@lru_cache(maxsize=256)
def table(
    size: int,
    count: int,
    method: str,
    step: float,
    corners: bool,
    antialias: bool,
    *,
    transposed: bool = False,
) -> Table:
    """Indices and weights, [count, terms], of each output; transposed [size, terms]."""
    if method.startswith("nearest"):
        near = _nearest(size, count, step, 1 if method == "nearest-exact" else 0)
        found = np.minimum(near, size - 1)[:, None], np.ones((count, 1))
    else:
        found = _filtered(size, count, method, step, corners, antialias)
    return _transpose(*found, size) if transposed else found


def _nearest(size: int, count: int, step: float, half: int) -> Array:
    """``floor((i + half / 2) * step)``, in integers where ``step`` is the ratio of the sizes."""
    doubled = 2 * np.arange(count) + half
    if step == size / count:
        return doubled * size // (2 * count)
    return np.floor(doubled * (step / 2)).astype(np.int64)


@lru_cache(maxsize=64)
def _matrix(size: int, count: int, how: tuple[Any, ...], transposed: bool) -> Array:
    indices, weights = table(size, count, *how)
    full = np.zeros((count, size))
    np.add.at(full, (np.arange(count)[:, None], indices), weights)
    return full.T.copy() if transposed else full


def _filtered(
    size: int, count: int, method: str, step: float, corners: bool, antialias: bool
) -> Table:
    kernel, support = _kernel(method, antialias)
    scale = max(step, 1.0) if antialias else 1.0
    places = np.arange(count) * step
    if not corners:
        places = places + (step - 1) / 2
    if method == "linear" and not antialias:
        places = np.clip(places, 0, size - 1)
    reach = support * scale
    terms = 2 * math.ceil(reach) + antialias
    first = np.floor(places - reach).astype(np.int64) + 1
    indices = first[:, None] + np.arange(terms)
    weights = kernel((indices - places[:, None]) / scale)
    if antialias:
        # What a wide filter finds outside is left out; a narrow one repeats the border.
        weights[(indices < 0) | (indices >= size)] = 0
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(indices, 0, size - 1), weights


def _transpose(indices: Array, weights: Array, size: int) -> Table:
    """For each input the outputs that it went to; rows shorter than the longest end in zeros."""
    order = np.argsort(indices.reshape(-1), kind="stable")
    sources = indices.reshape(-1)[order]
    starts = np.searchsorted(sources, np.arange(size + 1))
    lengths = np.diff(starts)
    columns = np.arange(max(1, lengths.max(initial=0)))
    places = np.minimum(starts[:-1, None] + columns, order.size - 1)
    used = columns < lengths[:, None]
    outputs = order[places] // indices.shape[1]
    return np.where(used, outputs, 0), np.where(used, weights.reshape(-1)[order][places], 0.0)


def _kernel(method: str, antialias: bool) -> tuple[Callable[[Array], Array], int]:
    """The filter and how far it reaches on either side."""
    if method == "linear":
        return lambda x: np.maximum(1 - np.abs(x), 0), 1
    if method == "lanczos":
        return lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0), 3
    # Keys' one parameter: -1/2 is exact for squares, -3/4 is what images are resized with.
    a = -0.5 if antialias else -0.75
    return lambda x: _cubic(np.abs(x), a), 2


def _cubic(x: Array, a: float) -> Array:
    """Keys' cubic convolution; "Cubic Convolution Interpolation", 1981, equation 15."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def cubic_weights(t: Array) -> list[Array]:
    """The four weights at ``t`` in [0, 1) past the second of four neighbours."""
    return [_cubic(np.abs(t - place), -0.75) for place in (-1, 0, 1, 2)]
