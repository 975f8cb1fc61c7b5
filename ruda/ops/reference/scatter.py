"""NumPy meanings of the rows that read and write by tensors of integers.

Combining many values into one place is where ``ufunc.at`` is slow when a place is a whole row. Here
equal places are brought together by a stable sort, and the places hit equally often are reduced
with one call each: sums keep the order of the values, whatever the number of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.errors import IndexRangeError
from ruda.core.shapes import Shape

COMBINE = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
# Below this many elements a row, one ufunc.at over single elements is quicker than sorting.
_ROW = 4


def parts(index: Any, axes: Shape) -> tuple[Any, ...]:
    """One array of integers per axis: several lie stacked along a leading axis."""
    places = index.astype(np.intp, copy=False)
    return (places,) if len(axes) == 1 else tuple(places)


def key(index: Any, axes: Shape) -> tuple[Any, ...]:
    """The NumPy key that indexes ``axes`` together and takes all of the others."""
    out: list[Any] = [slice(None)] * (axes[-1] + 1)
    for axis, places in zip(axes, parts(index, axes), strict=True):
        out[axis] = places
    return tuple(out)


def out_of_range(op: str, index: Any, axes: Shape, shape: Shape) -> IndexRangeError:
    """The error that names the first bad value, its axis and that axis' size."""
    for axis, places in zip(axes, parts(index, axes), strict=True):
        size = shape[axis]
        bad = places[(places < -size) | (places >= size)]
        if bad.size:
            got = f"{int(bad[0])} for axis {axis} of size {size}"
            expected = f"{-size} to {size - 1}" if size else "no index at all"
            return IndexRangeError(op, "index out of range", got, expected)
    raise AssertionError(f"{op}: every index lies within {shape}")


def checked(op: str, index: Any, axes: Shape, shape: Shape) -> tuple[Any, ...]:
    """The places along each axis, counted from the front and in range."""
    out = []
    for axis, places in zip(axes, parts(index, axes), strict=True):
        size = shape[axis]
        if places.size and (places.min() < -size or places.max() >= size):
            raise out_of_range(op, index, axes, shape)
        out.append(np.where(places < 0, places + size, places))
    return tuple(out)


def index(x: Any, places: Any, axes: Shape) -> Any:
    """``x`` at ``places`` along ``axes`` together, where NumPy's rules put the new axes."""
    try:
        # Of memory in another order np.take would copy all first.
        if len(axes) == 1 and x.flags.c_contiguous:
            return np.take(x, places.astype(np.intp, copy=False), axis=axes[0])
        return x[key(places, axes)]
    except IndexError:
        raise out_of_range("index", places, axes, x.shape) from None


def take_along(x: Any, places: Any, axes: Shape) -> Any:
    """``x`` at ``places`` along one axis, element by element."""
    try:
        part = _corner(x, places.shape, axes)
        return np.take_along_axis(part, places.astype(np.intp, copy=False), axes[0])
    except IndexError:
        raise out_of_range("take_along_axis", places, axes, x.shape) from None


def put(out: Any, value: Any, places: Any, axes: Shape) -> None:
    """Write ``value`` into ``out`` where ``index`` would read; the last of equal places wins."""
    try:
        out[key(places, axes)] = value
    except IndexError:
        raise out_of_range("index_put", places, axes, out.shape) from None


def put_along(out: Any, value: Any, places: Any, axes: Shape) -> None:
    """Write ``value`` into ``out`` where ``take_along`` would read."""
    part = _corner(out, places.shape, axes)
    (along,) = checked("scatter", places, axes, out.shape)
    np.put_along_axis(part, along, np.broadcast_to(value, along.shape), axes[0])


def combine(out: Any, value: Any, places: Any, axes: Shape, mode: str, op: str) -> None:
    """Combine ``value`` by ``mode`` with what ``index`` would read of ``out``."""
    where = checked(op, places, axes, out.shape)
    sizes = tuple(out.shape[a] for a in axes)
    shape = np.broadcast_shapes(*(w.shape for w in where))
    linear = np.ravel_multi_index(where, sizes).reshape(-1) if 0 not in sizes else where[0].ravel()
    moved = np.moveaxis(out, axes, range(len(axes)))
    width = int(np.prod(moved.shape[len(axes) :]))
    rows = np.ascontiguousarray(moved).reshape(int(np.prod(sizes)), width)
    lead = axes[0] if axes[-1] - axes[0] + 1 == len(axes) else 0
    kept = moved.shape[len(axes) :]
    value = np.broadcast_to(value, (*kept[:lead], *shape, *kept[lead:]))
    value = np.moveaxis(value, range(lead, lead + len(shape)), range(len(shape)))
    _combine_rows(rows, linear, value.reshape(linear.size, rows.shape[1]), COMBINE[mode])
    if not np.may_share_memory(rows, out):
        moved[...] = rows.reshape(moved.shape)


def _combine_rows(out: Any, places: Any, values: Any, function: Any) -> None:
    width = out.shape[1]
    if not out.size or not places.size:
        return
    if width <= _ROW:
        elements = places[:, None] * width + np.arange(width)
        function.at(out.reshape(-1), elements.reshape(-1), values.reshape(-1))
        return
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(np.append(starts, len(ordered)))
    for count in np.unique(counts):
        first = starts[counts == count]
        rows = order[first[:, None] + np.arange(count)]
        new = values[rows[:, 0]] if count == 1 else function.reduce(values[rows], axis=1)
        target = ordered[first]
        out[target] = function(out[target], new)


def combine_along(out: Any, value: Any, places: Any, axes: Shape, mode: str, op: str) -> None:
    """Combine ``value`` by ``mode`` with what ``take_along`` would read of ``out``."""
    axis = axes[0]
    (along,) = checked(op, places, axes, out.shape)
    dense = np.ascontiguousarray(out)
    steps = [s // out.itemsize for s in dense.strides]
    linear = along * steps[axis]
    for i, size in enumerate(along.shape):
        if i != axis:
            shape = [-1 if j == i else 1 for j in range(along.ndim)]
            linear = linear + (np.arange(size) * steps[i]).reshape(shape)
    values = np.broadcast_to(value, along.shape)
    COMBINE[mode].at(dense.reshape(-1), linear.reshape(-1), values.reshape(-1))
    if dense is not out:
        out[...] = dense


def _corner(out: Any, shape: Shape, axes: Shape) -> Any:
    """The first elements of the axes that ``shape`` does not cover."""
    return out[tuple(slice(None) if i in axes else slice(n) for i, n in enumerate(shape))]


def true_places(mask: Any) -> Any:
    """Where ``mask`` is true, in row-major order: one row of places per axis."""
    return np.stack(np.nonzero(mask)) if mask.ndim else np.nonzero(mask.reshape(1))[0][None]
