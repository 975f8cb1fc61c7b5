"""Reductions over segments: rows that share an id go together."""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import DType, iinfo
from ruda.core.errors import DTypeError, IndexRangeError, ShapeError
from ruda.core.shapes import Shape, index
from ruda.ops.arith import divide, maximum
from ruda.ops.create import full, ones
from ruda.ops.gather import largest
from ruda.ops.index import INDEX, index_adjoint
from ruda.ops.movement import reshape
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _shape(op: str, x: RudaTensor, ids: RudaTensor, count: Any) -> Shape:
    """The shape of the result; ids lie along the first axis of ``x``."""
    if not ids.spec.dtype.is_integer:
        raise DTypeError(op, "the ids are no integers", ids.spec, "an integer tensor")
    if ids.spec.ndim != 1 or x.spec.shape[:1] != ids.spec.shape:
        got = f"{ids.spec.shape} for {x.spec.shape}"
        raise ShapeError(op, "the ids do not fit", got, "one id per row")
    segments = largest(ids) + 1 if count is None else index(count, op, "num_segments")
    return (segments, *x.spec.shape[1:])


@composite
@given_tensors
def segment_sum(
    x: RudaTensor, segment_ids: RudaTensor, /, num_segments: int | None = None
) -> RudaTensor:
    """Sums of the rows of ``x [n, ...]`` with equal ``segment_ids [n]``, in any order.

    Row i of the result belongs to id i; an id that does not occur gives zeros. Without
    ``num_segments`` the largest id is read.

    >>> segment_sum(ruda.asarray([1.0, 2.0, 3.0]), ruda.asarray([0, 2, 0])).tolist()
    [4.0, 0.0, 2.0]
    """
    shape = _shape("segment_sum", x, segment_ids, num_segments)
    try:
        return index_adjoint(x, segment_ids, shape, (0,))
    except IndexRangeError as error:
        raise error.renamed("segment_sum") from None


@composite
@given_tensors
def segment_mean(
    x: RudaTensor, segment_ids: RudaTensor, /, num_segments: int | None = None
) -> RudaTensor:
    """Means of the rows of ``x`` with equal ``segment_ids``, as ``segment_sum``; empty: zeros."""
    total = segment_sum(x, segment_ids, num_segments)
    kind = total.dtype if total.dtype.is_inexact else x.client.defaults.floating
    members = ones(segment_ids.spec.shape, dtype=kind, device=x.device)
    counts = maximum(segment_sum(members, segment_ids, total.spec.shape[0]), 1)
    return divide(total, reshape(counts, (-1, *(1,) * (x.spec.ndim - 1))))


def _extreme(op: str, x: RudaTensor, ids: RudaTensor, count: Any, mode: str) -> RudaTensor:
    shape = _shape(op, x, ids, count)
    base = full(shape, _neutral(x.dtype, mode), dtype=x.dtype, device=x.device)
    try:
        return INDEX.extreme(base, x, ids, (0,), mode)
    except IndexRangeError as error:
        raise error.renamed(op) from None


def _neutral(dtype: DType, mode: str) -> Any:
    if dtype.kind == "bool":
        return mode == "min"
    if dtype.is_integer:
        return iinfo(dtype).min if mode == "max" else iinfo(dtype).max
    return float("-inf") if mode == "max" else float("inf")


@composite
@given_tensors
def segment_max(
    x: RudaTensor, segment_ids: RudaTensor, /, num_segments: int | None = None
) -> RudaTensor:
    """Maxima of the rows of ``x`` with equal ``segment_ids``, as ``segment_sum``.

    An id that does not occur gives -inf, or the least value of an integer dtype. The gradient is
    divided evenly among equal maxima.

    >>> segment_max(ruda.asarray([1.0, 5.0, 2.0]), ruda.asarray([0, 0, 1])).tolist()
    [5.0, 2.0]
    """
    return _extreme("segment_max", x, segment_ids, num_segments, "max")


@composite
@given_tensors
def segment_min(
    x: RudaTensor, segment_ids: RudaTensor, /, num_segments: int | None = None
) -> RudaTensor:
    """Minima of the rows of ``x`` with equal ``segment_ids``, as ``segment_max``."""
    return _extreme("segment_min", x, segment_ids, num_segments, "min")
