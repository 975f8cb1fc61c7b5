"""Ordering along an axis: sorting, selecting the first k, searching.

NaN orders above every number, so that it comes last ascending and first descending, and wins
``topk`` as it wins ``max``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ruda.core import dtypes
from ruda.core.dtypes import BOOL, REAL
from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import Shape, index, normalize_axis
from ruda.ops import rules
from ruda.ops.index import take_along, take_along_adjoint
from ruda.ops.reference import sort as reference
from ruda.ops.rules import Specs
from ruda.ops.table import composite, row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _positions(op: Any, specs: Specs, *_: Any) -> Any:
    return specs[0].dtype, dtypes.int64


_argsort = row(
    "library",
    "argsort",
    "x",
    "axis descending stable",
    shape=rules.same,
    dtype=_positions,
    numpy=reference.argsort,
    accepts=BOOL + REAL,
    doc="Positions along ``axis`` that sort ``x``.",
)

# Equal values cannot be told apart, so the forward need not be stable and sorts values alone; the
# gradient goes back by the positions of a stable sort.
_sort = row(
    "library",
    "sort",
    "x",
    "axis descending",
    shape=rules.same,
    dtype=rules.promote,
    numpy=reference.sort,
    vjp=(
        lambda g, x, axis, descending: take_along_adjoint(
            g, _argsort(x, axis, descending, True), x.shape, (axis,)
        ),
    ),
    accepts=BOOL + REAL,
    doc="``x`` sorted along ``axis``.",
)


def _axis(x: RudaTensor, axis: Any, op: str) -> int:
    if not x.ndim:
        raise ShapeError(op, "a 0-d tensor has no order", x.shape, "at least one axis")
    return normalize_axis(axis, x.ndim, op)


@given_tensors
def sort(
    x: RudaTensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> RudaTensor:
    """``x`` sorted along ``axis``, NaN after every number (before, when descending).

    The gradient of equal elements goes back as if the sort were stable.

    >>> sort(ruda.asarray([3, 1, 2]), descending=True).tolist()
    [3, 2, 1]
    """
    return _sort(x, _axis(x, axis, "sort"), bool(descending))


@given_tensors
def argsort(
    x: RudaTensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> RudaTensor:
    """Positions along ``axis``, int64, that sort ``x``; NaN as in ``sort``.

    Equal elements keep their order if ``stable``, ascending and descending alike.

    >>> argsort(ruda.asarray([1, 3, 1]), descending=True).tolist()
    [1, 0, 2]
    """
    return _argsort(x, _axis(x, axis, "argsort"), bool(descending), bool(stable))


class Top(NamedTuple):
    """The first elements in order, ``values``, and where they are, int64 ``indices``."""

    values: RudaTensor
    indices: RudaTensor


def _shortened(op: Any, specs: Specs, k: int, axis: int, largest: bool) -> Any:
    shape = tuple(k if i == axis else n for i, n in enumerate(specs[0].shape))
    return shape, shape


_topk = row(
    "library",
    "topk",
    "x",
    "k axis largest",
    "values indices",
    shape=_shortened,
    dtype=lambda op, specs, *_: (specs[0].dtype, (specs[0].dtype, dtypes.int64)),
    numpy=reference.topk,
    vjp=lambda g, indices, x_spec, axis: (
        take_along_adjoint(g[0], indices, x_spec.shape, (axis,)),
    ),
    accepts=BOOL + REAL,
    doc="The ``k`` largest (or smallest) elements along ``axis`` in order, and where they are.",
)


@given_tensors
def topk(x: RudaTensor, /, k: int, *, axis: int = -1, largest: bool = True) -> Top:
    """The ``k`` largest elements along ``axis`` in order, or the smallest: ``(values, indices)``.

    The lower index comes first of a tie; NaN counts as larger than every number. Raises
    ``ShapeError`` unless ``0 <= k <= n``.

    >>> topk(ruda.asarray([1, 3, 2, 3]), 2).indices.tolist()
    [1, 3]
    """
    place, count = _axis(x, axis, "topk"), index(k, "topk", "k")
    if not 0 <= count <= x.shape[place]:
        expected = f"0 to {x.shape[place]}, the length of axis {place}"
        raise ShapeError("topk", "k does not fit the axis", count, expected)
    return Top(*_topk(x, count, place, bool(largest)))


@composite
@given_tensors
def argtopk(x: RudaTensor, /, k: int, *, axis: int = -1, largest: bool = True) -> RudaTensor:
    """Where the ``k`` largest (or smallest) elements along ``axis`` are, in order: int64.

    >>> argtopk(ruda.asarray([1, 3, 2]), 2).tolist()
    [1, 2]
    """
    return topk(x, k, axis=axis, largest=largest).indices


def _searched(op: Any, specs: Specs, right: bool) -> Shape:
    lines, values = (s.shape for s in specs)
    if not lines:
        raise ShapeError("searchsorted", "nothing to search in", lines, "x1 [..., n]")
    if len(lines) > 1 and lines[:-1] != values[:-1]:
        expected = "x1 [n] with any x2, or x1 [..., n] and x2 [..., m] with the same leading axes"
        raise ShapeError("searchsorted", "batches differ", f"{lines} and {values}", expected)
    return values


_searchsorted = row(
    "library",
    "searchsorted",
    "x1 x2",
    "right",
    shape=_searched,
    dtype=lambda op, specs, right: (rules.promote(op, specs)[0], dtypes.int64),
    numpy=reference.searchsorted,
    accepts=BOOL + REAL,
    doc="Where each ``x2`` would go in the sorted ``x1``.",
)


def searchsorted(
    x1: RudaTensor,
    x2: Any,
    /,
    *,
    side: str = "left",
    sorter: RudaTensor | None = None,
) -> RudaTensor:
    """Where each value of ``x2`` would go in the sorted ``x1`` to keep it sorted: int64.

    ``x1 [n]`` takes any shape of ``x2``; ``x1 [..., n]`` and ``x2 [..., m]`` are searched batch by
    batch. ``side="left"`` goes before equal elements, ``"right"`` after them; ``sorter`` holds the
    positions that sort ``x1``. NaN goes to the end.

    >>> searchsorted(ruda.asarray([1, 3, 5]), ruda.asarray([3, 4])).tolist()
    [1, 2]
    """
    if side not in ("left", "right"):
        raise ArgumentError("searchsorted", "unknown side", repr(side), "'left' or 'right'")
    lines = x1 if sorter is None else take_along(x1, sorter, (x1.ndim - 1,))
    return _searchsorted(lines, x2, side == "right")
