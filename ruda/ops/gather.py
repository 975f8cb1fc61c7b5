"""Reading by tensors of integers or booleans, and writing or adding where they point."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from ruda.core.shapes import Shape, broadcast_shapes, normalize_axis
from ruda.core.shapes import index as integer
from ruda.ops.conversion import asarray
from ruda.ops.create import zeros
from ruda.ops.getitem import getitem, leading
from ruda.ops.index import ALONG, INDEX
from ruda.ops.movement import broadcast_to, expand_dims
from ruda.ops.places import Family
from ruda.ops.reduce import max
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _axis(op: str, x: RudaTensor, axis: Any) -> int:
    return normalize_axis(axis, x.spec.ndim, op)


def _places(op: str, indices: Any, x: RudaTensor) -> RudaTensor:
    """``indices`` as a tensor of integers on the device of ``x``."""
    if indices.__class__ is not RudaTensor:
        indices = asarray(indices, device=x.device)
    if not indices.spec.dtype.is_integer:
        hint = "indices.astype(ruda.int64)"
        raise DTypeError(op, "not an index", indices.spec, "an integer tensor", hint)
    return indices


@given_tensors
def take(x: RudaTensor, indices: Any, /, *, axis: int | None = None) -> RudaTensor:
    """Slices of ``x`` along ``axis`` at ``indices``, whose axes take the place of ``axis``.

    ``axis`` may be left out for one axis. Negative indices count from the end; repeated ones add
    up in the gradient. Raises ``IndexRangeError`` outside of the axis.

    >>> take(ruda.asarray([10, 20, 30]), ruda.asarray([2, 0])).tolist()
    [30, 10]
    """
    if axis is None:
        if x.spec.ndim != 1:
            raise ShapeError("take", "needs an axis", x.spec, hint="axis=0")
        axis = 0
    return _read("take", INDEX, x, _places("take", indices, x), _axis("take", x, axis))


def _read(op: str, rows: Family, x: RudaTensor, places: RudaTensor, axis: int) -> RudaTensor:
    try:
        return rows.get(x, places, (axis,))
    except IndexRangeError as error:
        raise error.renamed(op) from None


@given_tensors
def take_along_axis(x: RudaTensor, indices: RudaTensor, /, *, axis: int = -1) -> RudaTensor:
    """Elements of ``x`` along ``axis`` at ``indices``, place by place on the other axes.

    ``x`` and ``indices`` have one rank and broadcast to each other on the other axes.

    >>> take_along_axis(ruda.asarray([[1, 2], [3, 4]]), ruda.asarray([[1], [0]])).tolist()
    [[2], [3]]
    """
    place, places = _axis("take_along_axis", x, axis), _places("take_along_axis", indices, x)
    if places.spec.ndim != x.spec.ndim:
        expected = f"{x.spec.ndim} axes"
        raise ShapeError("take_along_axis", "the ranks differ", places.spec.shape, expected)
    own, given = list(x.spec.shape), list(places.spec.shape)
    n, m = own[place], given[place]
    own[place] = given[place] = 1
    shape = list(broadcast_shapes("take_along_axis", tuple(own), tuple(given)))
    wide = (*shape[:place], n, *shape[place + 1 :])
    wanted = (*shape[:place], m, *shape[place + 1 :])
    x = x if x.spec.shape == wide else broadcast_to(x, wide)
    places = places if places.spec.shape == wanted else broadcast_to(places, wanted)
    return ALONG.get(x, places, (place,))


def gather(x: RudaTensor, index: RudaTensor, /, *, axis: int) -> RudaTensor:
    """``out[i, j, k] = x[index[i, j, k], j, k]`` for axis 0, and so on for the others.

    ``index`` has the rank of ``x`` and is at most as long on the other axes; nothing broadcasts.

    >>> gather(ruda.asarray([[1, 2], [3, 4]]), ruda.asarray([[1, 0]]), axis=0).tolist()
    [[3, 2]]
    """
    place, places = _axis("gather", x, axis), _places("gather", index, x)
    if places.spec.ndim != x.spec.ndim:
        raise ShapeError("gather", "the ranks differ", places.spec.shape, f"{x.spec.ndim} axes")
    return _read("gather", ALONG, x, places, place)


def scatter(
    x: RudaTensor, index: RudaTensor, src: Any, /, *, axis: int, mode: str = "set"
) -> RudaTensor:
    """``x`` with ``src[i, j, k]`` written to ``[index[i, j, k], j, k]`` for axis 0, and so on.

    ``mode`` says how a value meets what is there: ``set`` (the last wins), ``add``, ``mul``,
    ``min``, ``max``. ``src`` broadcasts to ``index``; it may be a scalar. The gradient of ``min``
    and ``max`` is divided evenly among equals; that of ``mul`` is exact to first order where
    several zeros meet in one place, and to any order elsewhere.

    >>> x, index = ruda.zeros(3), ruda.asarray([0, 0, 2])
    >>> scatter(x, index, 1.0, axis=0, mode="add").tolist()
    [2.0, 0.0, 1.0]
    """
    place, places = (_axis("scatter", x, axis),), _places("scatter", index, x)
    return _write("scatter", ALONG, x, src, places, place, mode)


def _write(
    op: str, rows: Family, x: RudaTensor, value: Any, index: RudaTensor, axes: Shape, mode: str
) -> RudaTensor:
    plain = {"set": rows.put, "add": rows.add, "mul": rows.multiply}
    if mode not in (*plain, "min", "max"):
        raise ArgumentError(op, "unknown mode", repr(mode), "set, add, mul, min or max")
    try:
        if mode in plain:
            return plain[mode](x, value, index, axes)
        return rows.extreme(x, value, index, axes, mode)
    except IndexRangeError as error:
        raise error.renamed(op) from None


@given_tensors
def index_add(x: RudaTensor, index: RudaTensor, src: Any, /, *, axis: int = 0) -> RudaTensor:
    """``x`` with ``src`` added to the slices of ``axis`` that ``index [n]`` names.

    ``src`` broadcasts to the shape of ``x`` with n on ``axis``; repeated places add up.

    >>> index_add(ruda.zeros(3), ruda.asarray([0, 2, 2]), ruda.asarray([1.0, 2.0, 3.0])).tolist()
    [1.0, 0.0, 5.0]
    """
    places = _places("index_add", index, x)
    if places.spec.ndim != 1:
        raise ShapeError("index_add", "the index has several axes", places.spec.shape, "one axis")
    return INDEX.add(x, src, places, (_axis("index_add", x, axis),))


@given_tensors
def index_put(
    x: RudaTensor, indices: Any, values: Any, /, *, accumulate: bool = False
) -> RudaTensor:
    """``x`` with ``values`` where ``x[indices]`` would read, or added there for ``accumulate``.

    ``indices`` is a tuple of tensors of integers or booleans for the leading axes; ``values``
    broadcasts to the shape of ``x[indices]``.

    >>> index_put(ruda.zeros(3), (ruda.asarray([0, 2]),), 1.0).tolist()
    [1.0, 0.0, 1.0]
    """
    key = tuple(indices) if isinstance(indices, tuple | list) else (indices,)
    return put_at("index_put", x, key, values, "add" if accumulate else "set")


def put_at(op: str, x: RudaTensor, key: tuple[Any, ...], values: Any, mode: str) -> RudaTensor:
    """``x`` with ``values`` written, by ``mode``, where the tensors of ``key`` point."""
    axes, places = leading(op, x, key)
    return _write(op, INDEX, x, values, places, axes, mode)


@given_tensors
def masked_select(x: RudaTensor, mask: RudaTensor, /) -> RudaTensor:
    """The elements of ``x`` where ``mask``, which broadcasts with it, is true, row-major, 1-d.

    Reads the values of ``mask``.

    >>> masked_select(ruda.asarray([1, 2, 3]), ruda.asarray([True, False, True])).tolist()
    [1, 3]
    """
    shape = broadcast_shapes("masked_select", x.spec.shape, mask.spec.shape)
    if mask.spec.dtype.kind != "bool":
        raise DTypeError("masked_select", "not a mask", mask.spec, "a bool tensor")
    return getitem(broadcast_to(x, shape), broadcast_to(mask, shape))


@given_tensors
def one_hot(
    index: RudaTensor, num_classes: int | None = None, /, *, dtype: Any = None
) -> RudaTensor:
    """1 at ``index`` along a new last axis of length ``num_classes``, 0 elsewhere.

    Without ``num_classes`` the largest index is read. The default float unless ``dtype`` is given.

    >>> one_hot(ruda.asarray([2, 0]), 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if not index.spec.dtype.is_integer:
        raise DTypeError("one_hot", "not an index", index.spec, "an integer tensor")
    count = largest(index) + 1 if num_classes is None else integer(num_classes, "one_hot")
    base = zeros((*index.spec.shape, count), dtype=dtype, device=index.device)
    return ALONG.put(base, 1, expand_dims(index, -1), (index.spec.ndim,))


def largest(index: RudaTensor) -> int:
    """The largest value of ``index``, read; -1 when it is empty."""
    return int(max(index)) if index.spec.size else -1
