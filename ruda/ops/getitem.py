"""``x[key]`` and ``x[key] = value`` with NumPy's rules.

A key of integers, slices, ``...`` and ``None`` gives a view: one ``slice``, and a ``reshape`` for
new axes. Tensors, arrays and lists of integers or booleans select with a copy, through ``index``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.dtypes import int64
from ruda.core.errors import DTypeError, IndexRangeError
from ruda.core.shapes import Shape, broadcast_shapes
from ruda.ops.conversion import asarray
from ruda.ops.index import INDEX, together, true_places
from ruda.ops.index import index as _index
from ruda.ops.join import stack, unstack
from ruda.ops.keys import ALL, check_mask, consumed, entry_of, gap_of, is_mask, read_basic, too_many
from ruda.ops.movement import broadcast_to, expand_dims, moveaxis, reshape
from ruda.ops.strides import shown
from ruda.tensor.dispatch import OPS
from ruda.tensor.mutation import assign, is_same, update
from ruda.tensor.operands import WeakScalar, as_scalar
from ruda.tensor.tensor import RudaTensor

_PUT = OPS["index_put"]
_ONE, _ZERO = (1,), (0,)
_SELECTORS = (RudaTensor, list, np.ndarray)


def getitem(x: RudaTensor, key: Any, /) -> RudaTensor:
    """Elements of ``x`` that ``key`` selects: a view for basic keys, else a copy.

    ``key`` holds integers, slices, ``...``, ``None``, and tensors, arrays or lists of integers or
    booleans, with NumPy's rules on where the axes of the result lie. A key with booleans reads
    their values. Raises ``IndexRangeError`` for an index outside of its axis.

    >>> getitem(ruda.asarray([[1, 2], [3, 4]]), (slice(None), -1)).tolist()
    [2, 4]
    """
    cls = key.__class__
    if cls is int and x.spec.shape:
        size = x.spec.shape[0]
        if -size <= key < size:
            return shown(x, (key + size if key < 0 else key,), _ONE, _ONE, _ZERO)
    elif cls in _SELECTORS:
        found = _alone("getitem", x, key)
        if found is not None:
            return _read(x, found[1], found[0])
    entries = key if cls is tuple else (key,)
    basic = read_basic("getitem", x.spec.shape, entries)
    if basic is not None:
        return _basic_view(x, *basic)
    base, axes, places = _advanced("getitem", x, [entry_of("getitem", x, e) for e in entries])
    return _read(base, places, axes)


def _read(x: RudaTensor, places: RudaTensor, axes: Shape) -> RudaTensor:
    try:
        return _index(x, places, axes)
    except IndexRangeError as error:
        raise error.renamed("getitem") from None


def setitem(x: RudaTensor, key: Any, value: Any, /) -> None:
    """Overwrite what ``x[key]`` would give by ``value``, broadcast to its shape.

    Equal places of an advanced key: the last wins. A boolean key alone with a value that needs no
    count of the true places becomes ``where``, which reads no values. Raises as ``getitem`` and
    ``assign`` do.
    """
    if isinstance(value, list | tuple):
        value = asarray(value, device=x.device)
    entries = key if key.__class__ is tuple else (key,)
    basic = read_basic("setitem", x.spec.shape, entries)
    if basic is not None:
        target = _basic_view(x, *basic)
        if not is_same(target, value):
            assign(target, _trimmed(value, target.spec.ndim))
        return
    items = [entry_of("setitem", x, e) for e in entries]
    if not _set_where(x, items, value):
        found = _alone("setitem", x, items[0]) if len(items) == 1 else None
        base, axes, places = _advanced("setitem", x, items) if found is None else (x, *found)
        rank = len(INDEX.shown(None, base.spec, places.spec, axes))
        try:
            update(base, _PUT, _trimmed(value, rank), places, (axes,))
        except IndexRangeError as error:
            raise error.renamed("setitem") from None


def _basic_view(
    x: RudaTensor, starts: Shape, lengths: Shape, steps: Shape, dropped: Shape, fresh: list[int]
) -> RudaTensor:
    if fresh and not lengths:
        return expand_dims(x, fresh)
    out = shown(x, starts, lengths, steps, dropped)
    return expand_dims(out, fresh) if fresh else out


def _alone(op: str, x: RudaTensor, key: Any) -> tuple[Shape, RudaTensor] | None:
    """Axes and places of a key of one tensor, array or list; None for a 0-d mask."""
    item = entry_of(op, x, key)
    if not is_mask(item):
        if not x.spec.shape:
            raise too_many(op, x.spec.shape)
        return _ZERO, item
    rank = item.spec.ndim
    if not rank:
        return None
    check_mask(op, x, item, 0)
    places = true_places(item)
    return (_ZERO, getitem(places, 0)) if rank == 1 else (tuple(range(rank)), places)


def _advanced(
    op: str, x: RudaTensor, items: list[Any]
) -> tuple[RudaTensor, tuple[int, ...], RudaTensor]:
    """The view, its axes and the places along them that an advanced key selects."""
    gap = gap_of(op, x.spec.shape, items)
    if ... not in [i for i in items if i.__class__ is not RudaTensor]:
        items = [*items, ...]
    basic: list[Any] = []
    marks: list[int] = []
    axes: list[int] = []
    indices: list[RudaTensor] = []
    axis = source = 0
    for item in items:
        if item.__class__ is RudaTensor:
            found = _indices(op, x, item, source)
            marks += range(len(basic), len(basic) + len(found))
            axes += range(axis, axis + len(found))
            basic += [None] if not item.spec.ndim and is_mask(item) else [ALL] * len(found)
            indices += found
            axis += len(found)
        else:
            if item.__class__ is int:
                marks.append(len(basic))
            basic.append(item)
            axis += gap if item is ... else item.__class__ is not int
        source += gap if item is ... else consumed(item)
    base = _basic_view(x, *read_basic(op, x.spec.shape, basic))  # type: ignore[misc]
    places = tuple(axes)
    if together(places) and marks[-1] - marks[0] + 1 != len(marks):
        # An integer that was dropped, or an empty ``...``, kept them apart: the new axes lead.
        base = moveaxis(base, places, tuple(range(len(places))))
        places = tuple(range(len(places)))
    return base, places, _stacked(op, indices)


def leading(op: str, x: RudaTensor, key: Any) -> tuple[Shape, RudaTensor]:
    """Axes and places of ``x`` that a key of tensors alone, for the leading axes, selects."""
    indices: list[RudaTensor] = []
    for entry in key:
        item = entry_of(op, x, entry)
        if item.__class__ is not RudaTensor:
            raise DTypeError(op, "not a tensor", f"{entry!r:.60}", "tensors of integers or bools")
        indices += _indices(op, x, item, len(indices))
    if not 0 < len(indices) <= x.spec.ndim:
        raise too_many(op, x.spec.shape)
    return tuple(range(len(indices))), _stacked(op, indices)


def _indices(op: str, x: RudaTensor, item: RudaTensor, axis: int) -> list[RudaTensor]:
    """The index for each axis that ``item`` selects from: itself, or where a mask is true."""
    if not is_mask(item):
        return [item]
    check_mask(op, x, item, axis)
    return list(unstack(true_places(item)))


def _stacked(op: str, indices: list[RudaTensor]) -> RudaTensor:
    if len(indices) == 1:
        return indices[0]
    shape = broadcast_shapes(op, *(i.spec.shape for i in indices))
    return stack([broadcast_to(i.astype(int64, copy=False), shape) for i in indices])


def _set_where(x: RudaTensor, items: list[Any], value: Any) -> bool:
    """Do ``x[mask] = value`` without reading the mask, where the value needs no count of it."""
    masks = [i for i in items if is_mask(i)]
    others = [i for i in items if not is_mask(i) and i is not ... and i != ALL]
    if len(masks) != 1 or others or not masks[0].spec.ndim:
        return False
    mask = masks[0].spec
    gap = gap_of("setitem", x.spec.shape, items)
    before = items[: [is_mask(i) for i in items].index(True)]
    lead = sum(gap if i is ... else 1 for i in before)
    rest = x.spec.ndim - lead - mask.ndim
    shape = _shape_of(value)
    if mask.shape != x.spec.shape[lead : lead + mask.ndim] or shape is None:
        return False
    if len(shape) > rest:
        cut = len(shape) - rest
        if shape[cut - 1] != 1:
            return False
        value = reshape(value, shape[: cut - 1] + (1,) * mask.ndim + shape[cut:])
    condition = reshape(masks[0], mask.shape + (1,) * rest)
    assign(x, OPS["where"].call(condition, value, x))
    return True


def _shape_of(value: Any) -> Shape | None:
    """The shape of a value that is a tensor or a scalar; None for anything else."""
    if value.__class__ is RudaTensor:
        return value.spec.shape
    return () if isinstance(value, WeakScalar) or as_scalar(value) is not None else None


def _trimmed(value: Any, rank: int) -> Any:
    """``value`` without leading axes of length 1 beyond ``rank``: NumPy drops them too."""
    if not isinstance(value, RudaTensor | np.ndarray) or len(value.shape) <= rank:
        return value
    extra = len(value.shape) - rank
    if any(n != 1 for n in value.shape[:extra]):
        return value
    if isinstance(value, np.ndarray):
        return value.reshape(value.shape[extra:])
    return reshape(value, value.shape[extra:])
