"""What the keys of ``x[key]`` mean: integers and slices as numbers, selectors as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.errors import ArgumentError, DeviceError, DTypeError, IndexRangeError, MaskError
from ruda.core.shapes import Shape
from ruda.ops.conversion import asarray
from ruda.tensor.tensor import RudaTensor

ALL = slice(None)


def read_basic(op: str, shape: Shape, entries: Any) -> tuple[Any, ...] | None:
    """Starts, lengths, steps and dropped axes of a ``slice``, and the places of new axes.

    None when an entry is of another kind than integer, slice, ``...`` or None.
    """
    starts: list[int] = []
    lengths: list[int] = []
    steps: list[int] = []
    dropped: list[int] = []
    fresh: list[int] = []
    last = axis = 0
    rank = len(shape)
    for entry in entries:
        cls = entry.__class__
        if entry is None:
            fresh.append(axis - len(dropped) + len(fresh))
            continue
        if cls is not slice and cls is not int:
            # Keys with ... or NumPy's integers are read a second time, as plain ones.
            plain = _plain(op, shape, entry, entries)
            return None if plain is None else read_basic(op, shape, plain)
        if axis >= rank:
            raise too_many(op, shape)
        size = shape[axis]
        if cls is int:
            start, length, step = _place(op, entry, axis, size), 1, 1
            dropped.append(axis)
        else:
            start, length, step = _range(op, entry, size)
        if cls is int or length != size or step != 1:
            last = axis + 1
        starts.append(start)
        lengths.append(length)
        steps.append(step)
        axis += 1
    if last != axis:
        starts, lengths, steps = starts[:last], lengths[:last], steps[:last]
    return tuple(starts), tuple(lengths), tuple(steps), tuple(dropped), fresh


def _plain(op: str, shape: Shape, entry: Any, entries: Any) -> list[Any] | None:
    """``entries`` with ``...`` or NumPy's integers, whichever ``entry`` is, spelled out."""
    if entry is ...:
        gap = gap_of(op, shape, entries)
        return [e for item in entries for e in ([ALL] * gap if item is ... else [item])]
    if isinstance(entry, np.integer):
        return [int(e) if isinstance(e, np.integer) else e for e in entries]
    return None


def _place(op: str, value: int, axis: int, size: int) -> int:
    if not -size <= value < size:
        expected = f"{-size} to {size - 1}" if size else "no index at all"
        got = f"{value} for axis {axis} of size {size}"
        raise IndexRangeError(op, "index out of range", got, expected)
    return value + size if value < 0 else value


def _range(op: str, entry: slice, size: int) -> tuple[int, int, int]:
    """Start, length and step of a slice of an axis of ``size``."""
    try:
        start, stop, step = entry.indices(size)
    except TypeError:
        expected = "integers or None"
        raise DTypeError(op, "the bounds of a slice are no integers", entry, expected) from None
    except ValueError:
        raise ArgumentError(op, "the step of a slice is zero", entry) from None
    length = len(range(start, stop, step))
    # A slice of nothing may start outside, and one of a single element has no step.
    return (0, 0, 1) if length == 0 else (start, length, step if length > 1 else 1)


def gap_of(op: str, shape: Shape, entries: Any) -> int:
    """How many axes the ``...`` of a key stands for."""
    gap = len(shape)
    dots = 0
    for entry in entries:
        dots += entry is ...
        gap -= consumed(entry)
    if dots > 1:
        raise IndexRangeError(op, "a key has one ... at most", f"{dots} of them")
    if gap < 0:
        raise too_many(op, shape)
    return gap


def too_many(op: str, shape: Shape) -> IndexRangeError:
    """The error of a key that selects from more axes than there are."""
    return IndexRangeError(op, "too many indices", f"a tensor of shape {shape}")


def consumed(entry: Any) -> int:
    """How many axes of the tensor an entry selects from."""
    if entry is None or entry is ... or isinstance(entry, bool | np.bool_):
        return 0
    if entry.__class__ is RudaTensor and entry.spec.dtype.kind == "bool":
        return entry.spec.ndim
    if isinstance(entry, np.ndarray) and entry.dtype == np.bool_:
        return entry.ndim
    return 1


def entry_of(op: str, x: RudaTensor, entry: Any) -> Any:
    """An entry as an integer, slice, ``...``, None, or a tensor of integers or booleans."""
    if entry is None or entry is ... or entry.__class__ is slice or entry.__class__ is int:
        return entry
    if isinstance(entry, np.integer):
        return int(entry)
    if isinstance(entry, np.ndarray) and x.device.kind != "cpu":
        hint = f"ruda.asarray(key, device={str(x.device)!r})"
        raise DeviceError(op, "a NumPy array is on the CPU", f"a key on {x.device}", hint=hint)
    if isinstance(entry, list | tuple | bool | np.bool_ | np.ndarray):
        entry = _host(entry, x)
    if entry.__class__ is not RudaTensor or entry.spec.dtype.kind not in ("bool", "int", "uint"):
        got = entry.spec if entry.__class__ is RudaTensor else f"{entry!r:.60}"
        expected = "integers, slices, ..., None, or tensors of integers or booleans"
        raise DTypeError(op, "not an index", got, expected)
    return entry


def _host(entry: Any, x: RudaTensor) -> Any:
    """A list, array or bool of a key as a tensor; what holds no numbers is returned as it is."""
    values = np.asarray(entry)
    if values.size == 0 and not isinstance(entry, np.ndarray):
        values = values.astype(np.int64)
    return asarray(values, device=x.device) if values.dtype.kind in "biu" else entry


def check_mask(op: str, x: RudaTensor, mask: RudaTensor, axis: int) -> None:
    """Raise ``MaskError`` unless ``mask`` has the lengths of the axes of ``x`` from ``axis`` on."""
    shape = x.spec.shape[axis : axis + mask.spec.ndim]
    fits = len(shape) == mask.spec.ndim and all(
        # An axis of length 0 selects nothing and fits every axis, by NumPy and the Array API.
        m in (n, 0)
        for m, n in zip(mask.spec.shape, shape, strict=True)
    )
    if not fits:
        got = f"{mask.spec.shape} for axes {axis} on of {x.spec.shape}"
        raise MaskError(op, "the mask does not fit", got, shape)


def is_mask(item: Any) -> bool:
    """Whether an entry of a key is a tensor of booleans."""
    return item.__class__ is RudaTensor and item.spec.dtype.kind == "bool"
