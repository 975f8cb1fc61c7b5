"""Norms, powers, traces and cross products: what needs no decomposition of its own.

What works on matrices works on the last two axes and batches over the others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.dtypes import NUMERIC
from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import Shape, broadcast_shapes, index
from ruda.ops import rules
from ruda.ops.arith import absolute
from ruda.ops.complexes import conj
from ruda.ops.diagonal import diagonal as _diagonal
from ruda.ops.linalg_solve import inv
from ruda.ops.linalg_values import svdvals
from ruda.ops.matmul import axis_from_right, matmul
from ruda.ops.matrices import identity_like
from ruda.ops.movement import moveaxis
from ruda.ops.reduce import max as _max
from ruda.ops.reduce import min as _min
from ruda.ops.reduce import sum as _sum
from ruda.ops.rules import Specs
from ruda.ops.statistics import vector_norm
from ruda.ops.table import composite, row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_SINGULAR = {"nuc": _sum, 2: _max, -2: _min}
_SUMMED = {1: (-2, _max), -1: (-2, _min), math.inf: (-1, _max), -math.inf: (-1, _min)}


@composite
@given_tensors
def matrix_norm(x: RudaTensor, /, *, keepdims: bool = False, ord: Any = "fro") -> RudaTensor:
    """Norm of the matrices ``x [..., m, n]``: ``[...]``, real.

    ``ord`` is ``"fro"`` (root of the sum of squares), ``"nuc"`` (sum of the singular values), 2 or
    -2 (largest or least of them), 1 or -1 (largest or least sum of absolute values of a column),
    ``inf`` or ``-inf`` (of a row).

    >>> matrix_norm(ruda.asarray([[3.0, 0.0], [0.0, -4.0]]), ord=1).item()
    4.0
    """
    if x.ndim < 2:
        raise ShapeError("matrix_norm", "needs matrices", x.shape, "x [..., m, n]")
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in _SINGULAR:
        out = _SINGULAR[ord](svdvals(x), axis=-1)
    elif ord in _SUMMED:
        axis, extreme = _SUMMED[ord]
        out = extreme(_sum(absolute(x), axis=axis), axis=-1)
    else:
        expected = '"fro", "nuc", 1, -1, 2, -2, inf or -inf'
        raise ArgumentError("matrix_norm", "unknown norm", repr(ord), expected)
    return out.reshape((*out.shape, 1, 1)) if keepdims else out


@composite
def matrix_power(x: RudaTensor, n: int, /) -> RudaTensor:
    """``x [..., m, m]`` multiplied by itself ``n`` times; the inverse's power for negative ``n``.

    >>> matrix_power(ruda.asarray([[1, 1], [0, 1]]), 3).tolist()
    [[1, 3], [0, 1]]
    """
    left = index(n, "matrix_power", "n")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError("matrix_power", "needs square matrices", x.shape, "x [..., m, m]")
    square, left, out = inv(x) if left < 0 else x, abs(left), None
    while left:
        if left & 1:
            out = square if out is None else matmul(out, square)
        left >>= 1
        if left:
            square = matmul(square, square)
    return identity_like(x) if out is None else out


@given_tensors
def diagonal(x: RudaTensor, /, *, offset: int = 0) -> RudaTensor:
    """The elements ``x[..., i, i + offset]`` of the matrices ``x``; a view.

    >>> diagonal(ruda.asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    if x.ndim < 2:
        raise ShapeError("diagonal", "needs matrices", x.shape, "x [..., m, n]")
    return _diagonal(x, offset=offset, axis1=-2, axis2=-1)


@composite
@given_tensors
def trace(x: RudaTensor, /, *, offset: int = 0, dtype: Any = None) -> RudaTensor:
    """Sum of the diagonal ``offset`` of the matrices ``x [..., m, n]``, in the dtype of ``sum``.

    >>> trace(ruda.asarray([[1, 2], [3, 4]])).item()
    5
    """
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def _crossed(op: Any, specs: Specs) -> Shape:
    x, y = specs[0].shape, specs[1].shape
    if x[-1:] != (3,) or y[-1:] != (3,):
        expected = "3 elements along the axis of both"
        raise ShapeError(op.name, "not vectors of space", f"{x} and {y}", expected)
    return broadcast_shapes(op.name, x, y)


_cross = row(
    "library",
    "cross",
    "x y",
    shape=_crossed,
    dtype=rules.promote,
    numpy=np.cross,
    vjp=(lambda g, y: _cross(conj(y), g), lambda g, x: _cross(g, conj(x))),
    accepts=NUMERIC,
    doc="Cross product along the last axis.",
)


@given_tensors
def cross(x: RudaTensor, y: RudaTensor, /, *, axis: int = -1) -> RudaTensor:
    """Cross product of the vectors of 3 elements along ``axis``; the other axes broadcast.

    >>> cross(ruda.asarray([1, 0, 0]), ruda.asarray([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    place = axis_from_right("cross", x, y, axis)
    if place == -1:
        return _cross(x, y)
    return moveaxis(_cross(moveaxis(x, place, -1), moveaxis(y, place, -1)), -1, place)
