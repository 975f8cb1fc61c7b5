"""Rows of a table looked up in bags, each bag reduced to one vector."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import index
from ruda.ops.arith import maximum
from ruda.ops.cast import astype
from ruda.ops.compare import greater, less, not_equal
from ruda.ops.create import arange, ones
from ruda.ops.embed import embedding
from ruda.ops.movement import broadcast_to, expand_dims, reshape
from ruda.ops.segment import segment_max, segment_sum
from ruda.ops.select import where
from ruda.ops.sort import searchsorted
from ruda.ops.strides import span
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_MODES = ("sum", "mean", "max")


@composite
@given_tensors
def embedding_bag(
    input: RudaTensor,
    weight: RudaTensor,
    offsets: RudaTensor | None = None,
    mode: str = "mean",
    per_sample_weights: RudaTensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> RudaTensor:
    """The ``sum``, ``mean`` or ``max`` of rows of ``weight [rows, D]`` for each bag: ``[B, D]``.

    ``input [B, n]`` holds B bags of n indices; ``input [n]`` with ``offsets [B]`` bags that begin
    there, the last one ending at n or, with ``include_last_offset``, where the last of ``B + 1``
    offsets says; what lies outside of all bags is left out. An empty bag gives zeros.
    ``per_sample_weights``, of the shape of ``input``, multiply the rows of a ``sum``. The row
    ``padding_idx`` is left out and gets no gradient.

    Raises ``ShapeError``, ``DTypeError``, ``ArgumentError``, and ``IndexRangeError`` for an index
    outside of the table.

    >>> table = ruda.asarray([[1.0], [2.0], [4.0]])
    >>> embedding_bag(ruda.asarray([0, 1, 2]), table, ruda.asarray([0, 2]), mode="sum").tolist()
    [[3.0], [4.0]]
    """
    _check(input, weight, offsets, mode, per_sample_weights)
    indices, ids, bags = _bags(input, offsets, include_last_offset)
    rows = embedding(indices, weight, padding_idx)
    counted = ones(indices.shape, dtype="bool", device=input.device)
    if padding_idx is not None:
        place = index(padding_idx, "embedding_bag", "padding_idx")
        counted = not_equal(indices, place + weight.shape[0] if place < 0 else place)
    return span(_reduced(rows, counted, ids, bags + 1, mode, per_sample_weights), 0, 0, bags)


def _reduced(
    rows: RudaTensor, counted: RudaTensor, ids: RudaTensor, count: int, mode: str, samples: Any
) -> RudaTensor:
    keep = expand_dims(counted, -1)
    sizes = expand_dims(segment_sum(astype(counted, rows.dtype), ids, count), -1)
    if mode == "max":
        best = segment_max(where(keep, rows, float("-inf")), ids, count)
        return where(greater(sizes, 0), best, 0)
    if samples is not None:
        rows = rows * reshape(samples, (-1 if samples.size else 0, 1))
    total = segment_sum(where(keep, rows, 0), ids, count)
    return total if mode == "sum" else total / maximum(sizes, 1)


def _check(x: Any, weight: Any, offsets: Any, mode: str, samples: Any) -> None:
    name = "embedding_bag"
    if mode not in _MODES:
        raise ArgumentError(name, "unknown mode", repr(mode), f"one of {_MODES}")
    if weight.ndim != 2:
        raise ShapeError(name, "the table is no matrix", weight.shape, "[rows, D]")
    if x.ndim != (2 if offsets is None else 1):
        expected = "[B, n], or [n] with offsets"
        raise ShapeError(name, "wrong rank of the indices", x.shape, expected)
    if offsets is not None and (offsets.ndim != 1 or not offsets.dtype.is_integer):
        raise ShapeError(name, "offsets are no line of integers", offsets.spec, "[B] of integers")
    if samples is None:
        return
    if mode != "sum":
        raise ArgumentError(name, "per_sample_weights need a sum", repr(mode), 'mode="sum"')
    if samples.shape != x.shape:
        what = "per_sample_weights do not fit"
        raise ShapeError(name, what, samples.shape, x.shape)
    if samples.dtype is not weight.dtype:
        hint = f"per_sample_weights.astype({str(weight.dtype)!r})"
        raise DTypeError(name, "the weights differ in dtype", samples.dtype, weight.dtype, hint)


def _bags(x: RudaTensor, offsets: Any, closed: bool) -> tuple[RudaTensor, RudaTensor, int]:
    """Flat indices, the bag of each (one past the last: none), and how many bags there are."""
    if offsets is None:
        bags = x.shape[0]
        ids = expand_dims(arange(bags, dtype="int64", device=x.device), 1)
        return reshape(x, (x.size,)), reshape(broadcast_to(ids, x.shape), (x.size,)), bags
    bags = offsets.shape[0] - bool(closed)
    if bags < 0:
        raise ShapeError("embedding_bag", "the last offset is missing", offsets.shape)
    places = arange(x.shape[0], dtype="int64", device=x.device)
    ids = searchsorted(offsets, places, side="right") - 1
    return x, where(less(ids, 0), bags, ids), bags
