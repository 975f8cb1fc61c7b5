"""Sets and counts: distinct values, places of what is not zero, histograms.

Where a length depends on values the operator is of kind ``dynamic`` and cannot be captured; given a
``size`` (or ``length``, or edges) it has a fixed shape and is made of operators that can.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ruda.core import dtypes
from ruda.core.dtypes import ARITHMETIC, BOOL, INTEGER, REAL
from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from ruda.core.shapes import Shape, contiguous_strides, index
from ruda.core.spec import is_absent
from ruda.ops import rules
from ruda.ops.arith import floor_divide, remainder
from ruda.ops.compare import equal, greater_equal, less, logical_and, not_equal
from ruda.ops.create import arange, full, linspace, ones
from ruda.ops.index import INDEX, true_places
from ruda.ops.join import concat, unstack
from ruda.ops.movement import broadcast_to, reshape
from ruda.ops.reduce import max as _max
from ruda.ops.reduce import min as _min
from ruda.ops.reduce import sum as _sum
from ruda.ops.reference import sort as reference
from ruda.ops.rules import Specs
from ruda.ops.scan import cumsum
from ruda.ops.select import where
from ruda.ops.sort import searchsorted, sort
from ruda.ops.strides import span
from ruda.ops.table import composite, row
from ruda.tensor import host
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_unique = row(
    "dynamic",
    "unique_all",
    "x",
    "",
    "values indices inverse counts",
    shape=rules.same,
    dtype=rules.unchanged,
    numpy=reference.unique,
    accepts=ARITHMETIC,
    exact=True,
    doc="Distinct values, where each occurs first, which one each element is, and how often.",
)
_unique_values = row(
    "dynamic",
    "unique_values",
    "x",
    shape=rules.same,
    dtype=rules.unchanged,
    numpy=reference.unique_values,
    accepts=ARITHMETIC,
    exact=True,
    doc="Distinct values in ascending order.",
)


class UniqueAll(NamedTuple):
    """Distinct values, first places, the value number of each element, occurrences."""

    values: RudaTensor
    indices: RudaTensor
    inverse_indices: RudaTensor
    counts: RudaTensor


class UniqueCounts(NamedTuple):
    """Distinct values and how often each occurs."""

    values: RudaTensor
    counts: RudaTensor


class UniqueInverse(NamedTuple):
    """Distinct values and, in the shape of the input, the number of each element's value."""

    values: RudaTensor
    inverse_indices: RudaTensor


@given_tensors
def unique_all(x: RudaTensor, /) -> UniqueAll:
    """Distinct values of ``x`` ascending, with first places, inverse and counts, all int64.

    Every NaN is distinct. Cannot be captured, since the length depends on values.

    >>> unique_all(ruda.asarray([3, 1, 3])).inverse_indices.tolist()
    [1, 0, 1]
    """
    return UniqueAll(*_unique(x))


@given_tensors
def unique_counts(x: RudaTensor, /) -> UniqueCounts:
    """Distinct values of ``x`` ascending and how often each occurs; see ``unique_all``."""
    values, _, _, counts = _unique(x)
    return UniqueCounts(values, counts)


@given_tensors
def unique_inverse(x: RudaTensor, /) -> UniqueInverse:
    """Distinct values of ``x`` ascending and which one each element is; see ``unique_all``."""
    values, _, inverse, _ = _unique(x)
    return UniqueInverse(values, inverse)


@given_tensors
def unique_values(x: RudaTensor, /) -> RudaTensor:
    """Distinct values of ``x`` ascending; see ``unique_all``.

    >>> unique_values(ruda.asarray([3, 1, 3])).tolist()
    [1, 3]
    """
    return _unique_values(x)


@composite
@given_tensors
def unique(x: RudaTensor, /, *, size: int | None = None, fill_value: Any = None) -> RudaTensor:
    """Distinct values of ``x`` ascending: all of them, or with ``size`` exactly that many.

    With ``size`` it can be captured: values beyond are left out, missing ones are ``fill_value``,
    without one the smallest value. Raises ``ShapeError`` for no elements and no ``fill_value``.

    >>> unique(ruda.asarray([3, 1, 3]), size=4, fill_value=0).tolist()
    [1, 3, 0, 0]
    """
    if size is None:
        return unique_values(x)
    length, count = _size(size, "unique"), x.size
    if fill_value is None and not count:
        raise ShapeError("unique", "no value to fill with", x.shape, hint="fill_value")
    line = sort(reshape(x, (count,)))
    fill = span(line, 0, 0, 1) if fill_value is None else fill_value
    steps = not_equal(span(line, 0, min(count, 1), count), span(line, 0, 0, max(count - 1, 0)))
    first = ones((min(count, 1),), dtype=dtypes.bool_, device=x.device)
    return _packed(line, concat([first, steps]), length, fill)


def _size(size: Any, op: str) -> int:
    length = index(size, op, "size")
    if length < 0:
        raise ShapeError(op, "the size is negative", length, "at least 0")
    return length


def _packed(line: RudaTensor, keep: RudaTensor, size: int, fill: Any) -> RudaTensor:
    """The elements of ``line`` that ``keep`` marks, in order, cut or filled up to ``size``."""
    place = cumsum(keep, exclusive=True)
    # What is not kept, or is too much, goes to one more place at the end that is then cut off.
    place = where(logical_and(keep, less(place, size)), place, size)
    if fill.__class__ is not RudaTensor:
        fill = full((1,), fill, dtype=line.dtype, device=line.device)
    out = INDEX.put(broadcast_to(fill, (size + 1,)), line, place, (0,))
    return span(out, 0, 0, size)


@composite
@given_tensors
def nonzero(
    x: RudaTensor, /, *, size: int | None = None, fill_value: int = 0
) -> tuple[RudaTensor, ...]:
    """Where ``x`` is not zero, in row-major order: one int64 tensor per axis.

    With ``size`` each has that length and the operator can be captured: places beyond are left out,
    missing ones are ``fill_value``. Raises ``ShapeError`` for a 0-d tensor.

    >>> [i.tolist() for i in nonzero(ruda.asarray([[0, 7], [8, 0]]))]
    [[0, 1], [1, 0]]
    """
    if not x.ndim:
        raise ShapeError("nonzero", "a 0-d tensor has no places", x.shape, hint="x[None]")
    mask = x if x.dtype is dtypes.bool_ else not_equal(x, 0)
    if size is None:
        return unstack(true_places(mask))
    length = _size(size, "nonzero")
    flat = arange(x.size, dtype=dtypes.int64, device=x.device)
    found = _packed(flat, reshape(mask, (x.size,)), length, -1)
    return tuple(
        where(less(found, 0), fill_value, remainder(floor_divide(found, step), max(n, 1)))
        for n, step in zip(x.shape, contiguous_strides(x.shape), strict=True)
    )


def _counts(op: Any, specs: Specs, *_: Any) -> Any:
    x, weights = specs
    if x.dtype not in INTEGER:
        raise DTypeError("bincount", "not integers", x.dtype, "an integer dtype")
    if is_absent(weights):
        return (None, None), dtypes.int64
    if weights.dtype not in BOOL + REAL:
        raise DTypeError("bincount", "weights are not real", weights.dtype, "a real dtype")
    dtype = rules.accumulated(op, (weights,), None)[1]
    return (None, weights.dtype), dtype


def _counted(op: Any, specs: Specs, length: int) -> Shape:
    x, weights = specs
    if not is_absent(weights) and weights.shape != x.shape:
        raise ShapeError("bincount", "the weights do not fit", weights.shape, x.shape)
    return (length,)


def _bincount_reference(x: Any, weights: Any, length: int) -> Any:
    low, high = (int(x.min()), int(x.max())) if x.size else (0, -1)
    if low < 0 or high >= length:
        expected = f"0 to {length - 1}"
        raise IndexRangeError("bincount", "a value has no bin", low if low < 0 else high, expected)
    return reference.bincount(x, weights, length)


_bincount = row(
    "library",
    "bincount",
    "x weights",
    "length",
    shape=_counted,
    takes={"x": INTEGER, "weights": BOOL + REAL},
    dtype=_counts,
    numpy=_bincount_reference,
    vjp=(None, lambda g, x: INDEX.get(g, x, (0,))),
    optional=("weights",),
    doc="How often each integer below ``length`` occurs, or the sum of its weights.",
)


@given_tensors
def bincount(
    x: RudaTensor,
    /,
    weights: RudaTensor | None = None,
    *,
    minlength: int = 0,
    length: int | None = None,
) -> RudaTensor:
    """How often each integer from 0 on occurs in ``x``: int64, or sums of ``weights``.

    The length is one more than the largest value and at least ``minlength``, which reads values;
    with ``length`` it is fixed and the operator can be captured. Weights have the shape of ``x``;
    their sums are differentiable. Raises ``IndexRangeError`` for a value outside.

    >>> bincount(ruda.asarray([1, 1, 3])).tolist()
    [0, 2, 0, 1]
    """
    if length is None:
        top = int(host.item(_max(x), "bincount")) + 1 if x.size else 0
        length = max(top, index(minlength, "bincount", "minlength"))
    return _bincount(x, weights, _size(length, "bincount"))


class Histogram(NamedTuple):
    """Counts (or sums of weights, or densities) of bins, and the edges between them."""

    counts: RudaTensor
    edges: RudaTensor


@composite
@given_tensors
def histogram(
    x: RudaTensor,
    /,
    bins: Any = 10,
    *,
    range: tuple[float, float] | None = None,
    weights: RudaTensor | None = None,
    density: bool = False,
) -> Histogram:
    """Counts of ``x`` in ``bins`` intervals: ``(counts [n], edges [n + 1])``.

    ``bins`` is a number of equal intervals over ``range`` (by default from the smallest to the
    largest element, which reads values), or the ascending edges themselves. Each interval has its
    left edge, the last one both; what lies outside, NaN too, is not counted. ``density`` divides by
    total and width. Raises ``ArgumentError`` for an empty or reversed range.

    >>> histogram(ruda.asarray([0.0, 1.0, 1.0, 4.0]), 2).counts.tolist()
    [3, 1]
    """
    edges = bins if bins.__class__ is RudaTensor else _edges(x, bins, range)
    if edges.ndim != 1 or edges.size < 2:
        raise ShapeError("histogram", "too few edges", edges.shape, "edges [n + 1] with n > 0")
    count = edges.size - 1
    place = searchsorted(edges, x, side="right") - 1
    place = where(equal(x, span(edges, 0, count, count + 1)), count - 1, place)
    inside = logical_and(greater_equal(place, 0), less(place, count))
    sums = bincount(where(inside, place, count), weights, length=count + 1)
    counts = span(sums, 0, 0, count)
    if density:
        widths = span(edges, 0, 1, count + 1) - span(edges, 0, 0, count)
        counts = counts / widths / _sum(counts)
    return Histogram(counts, edges)


def _edges(x: RudaTensor, bins: Any, range: tuple[float, float] | None) -> RudaTensor:
    count = index(bins, "histogram", "bins")
    if count < 1:
        raise ArgumentError("histogram", "no bins", count, "at least 1")
    if range is not None:
        low, high = float(range[0]), float(range[1])
    elif x.size:
        low, high = (float(host.item(f(x), "histogram")) for f in (_min, _max))
    else:
        low, high = 0.0, 1.0
    if not low <= high < float("inf") or low == -float("inf"):
        raise ArgumentError("histogram", "not a range", (low, high), "finite low <= high")
    if low == high:
        low, high = low - 0.5, high + 0.5
    dtype = x.dtype if x.dtype.is_floating else None
    return linspace(low, high, count + 1, dtype=dtype, device=x.device)
