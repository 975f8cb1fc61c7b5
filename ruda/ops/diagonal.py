"""Matrices by their diagonals: the identity, triangles, diagonals read and written; and grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.devices import client as client_of
from ruda.core.dtypes import ALL
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import Shape, index, normalize_axis, normalize_shape
from ruda.ops import rules
from ruda.ops.create import float_dtype, ones
from ruda.ops.movement import broadcast_to, reshape
from ruda.ops.strides import diagonal_embedded, diagonal_view
from ruda.ops.table import row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_eye = row(
    "create",
    "eye",
    "k",
    "shape dtype device",
    shape=lambda op, specs, shape, *_: shape,
    dtype=lambda op, specs, shape, dtype, device: (None, dtype),
    numpy=lambda k, shape, dtype, device: np.eye(shape[0], shape[1], k, dtype.numpy),
    exact=True,
    doc="A matrix with ones on diagonal ``k`` and zeros elsewhere.",
)


def _triangle(name: str, numpy: Any, doc: str) -> Any:
    """A row that keeps one side of a diagonal of the last two axes."""

    def shape(op: Any, specs: Any, k: int) -> Shape:
        if specs[0].ndim < 2:
            raise ShapeError(name, "needs matrices", specs[0].shape, "x [..., m, n]")
        return specs[0].shape

    call = row(
        "index",
        name,
        "x",
        "k",
        shape=shape,
        dtype=rules.unchanged,
        numpy=numpy,
        vjp=(lambda g, k: call(g, k),),
        accepts=ALL,
        exact=True,
        doc=doc,
    )
    return call


_tril = _triangle("tril", np.tril, "``x`` with zeros above diagonal ``k`` of its matrices.")
_triu = _triangle("triu", np.triu, "``x`` with zeros below diagonal ``k`` of its matrices.")


def _square(n_rows: Any, n_cols: Any, op: str) -> Shape:
    return normalize_shape((n_rows, n_rows if n_cols is None else n_cols), op)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> RudaTensor:
    """A matrix of ``n_rows`` and ``n_cols`` (as many) with ones on diagonal ``k``, else zeros.

    >>> eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    client = client_of(device)
    shape = _square(n_rows, n_cols, "eye")
    return _eye(index(k, "eye", "k"), shape, float_dtype(dtype, device, "eye"), client.device)


def tri(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> RudaTensor:
    """Ones on and below diagonal ``k``, zeros above it."""
    shape = _square(n_rows, n_cols, "tri")
    one = ones((), dtype=float_dtype(dtype, device, "tri"), device=device)
    return tril(broadcast_to(one, shape), k=k)


def tril(x: RudaTensor, /, *, k: int = 0) -> RudaTensor:
    """``x [..., m, n]`` with zeros above diagonal ``k`` of each matrix.

    >>> tril(ruda.ones((2, 2))).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    return _tril(x, index(k, "tril", "k"))


def triu(x: RudaTensor, /, *, k: int = 0) -> RudaTensor:
    """``x [..., m, n]`` with zeros below diagonal ``k`` of each matrix.

    >>> triu(ruda.ones((2, 2), dtype="int32")).tolist()
    [[1, 1], [0, 1]]
    """
    return _triu(x, index(k, "triu", "k"))


@given_tensors
def diagonal(x: RudaTensor, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> RudaTensor:
    """The elements at ``[i, i + offset]`` of ``axis1`` and ``axis2``, as a new last axis; a view.

    A negative ``offset`` lies below the main diagonal. Raises ``AxisError`` for axes out of range.

    >>> diagonal(ruda.asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    first, second = (normalize_axis(a, x.spec.ndim, "diagonal") for a in (axis1, axis2))
    if first == second:
        raise ArgumentError("diagonal", "needs two different axes", (axis1, axis2))
    return diagonal_view(x, index(offset, "diagonal", "offset"), first, second)


@given_tensors
def diag(x: RudaTensor, /, *, k: int = 0) -> RudaTensor:
    """A matrix with the vector ``x`` on diagonal ``k``, or diagonal ``k`` of the matrix ``x``.

    >>> diag(ruda.asarray([1, 2])).tolist()
    [[1, 0], [0, 2]]
    """
    offset = index(k, "diag", "k")
    if x.spec.ndim == 2:
        return diagonal(x, offset=offset)
    if x.spec.ndim != 1:
        raise ShapeError("diag", "neither a vector nor a matrix", x.spec.shape, "1 or 2 axes")
    n = x.spec.shape[0] + abs(offset)
    return diagonal_embedded(x, (n, n), offset, 0, 1)


@given_tensors
def meshgrid(*arrays: RudaTensor, indexing: str = "xy") -> list[RudaTensor]:
    """Coordinates of a grid from one vector per axis; views.

    ``indexing="ij"`` gives shape ``(n0, n1, ...)``, ``"xy"`` swaps the first two. Raises
    ``ShapeError`` for an array that is no vector, ``DTypeError`` for dtypes that differ.

    >>> [g.shape for g in meshgrid(ruda.zeros(2), ruda.zeros(3))]
    [(3, 2), (3, 2)]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError("meshgrid", "unknown indexing", repr(indexing), '"xy" or "ij"')
    if any(a.spec.ndim != 1 for a in arrays):
        got = " and ".join(str(a.spec.shape) for a in arrays)
        raise ShapeError("meshgrid", "not a vector", got, "arrays of one axis")
    if len({a.spec.dtype for a in arrays}) > 1:
        got = " and ".join(str(a.spec.dtype) for a in arrays)
        raise DTypeError("meshgrid", "dtypes differ", got, "one dtype", "astype")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = [0] * len(order)
    for place, a in zip(order, arrays, strict=True):
        shape[place] = a.spec.shape[0]
    return [
        broadcast_to(reshape(a, tuple(-1 if i == place else 1 for i in range(len(order)))), shape)
        for place, a in zip(order, arrays, strict=True)
    ]
