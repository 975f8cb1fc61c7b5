"""Repeating, rolling and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.core.dtypes import ALL, INTEGER
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import Shape, index, normalize_axis, normalize_shape, pairs
from ruda.ops import rules
from ruda.ops.conversion import asarray, check_scalar
from ruda.ops.index import INDEX
from ruda.ops.join import concat
from ruda.ops.movement import broadcast_to, expand_dims, flip, reshape
from ruda.ops.rules import Specs
from ruda.ops.strides import slice_view, span
from ruda.ops.table import composite, row
from ruda.tensor.given import given_tensors
from ruda.tensor.operands import Vector, as_scalar
from ruda.tensor.tensor import RudaTensor

Widths = tuple[tuple[int, int], ...]


def _counted(counts: Any) -> Any:
    if counts.size and counts.min() < 0:
        raise ArgumentError("repeat", "a count is negative", int(counts.min()), "at least 0")
    return np.repeat(np.arange(counts.size), counts.astype(np.intp))


repeated_places = row(
    "dynamic",
    "repeated_places",
    "counts",
    shape=rules.same,
    dtype=rules.unchanged,
    numpy=_counted,
    accepts=INTEGER,
    exact=True,
    doc="Place i as often as ``counts[i]`` says, one after the other.",
)


@composite
@given_tensors
def repeat(x: RudaTensor, repeats: Any, /, *, axis: int | None = None) -> RudaTensor:
    """Each element of ``axis`` several times in a row; of ``x`` flattened for None.

    ``repeats`` is an integer or one count per element (a tensor's values are read). Raises
    ``ArgumentError`` for a negative count.

    >>> repeat(ruda.asarray([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    place = normalize_axis(axis, x.spec.ndim, "repeat")
    shape = x.spec.shape
    if not isinstance(repeats, RudaTensor | Sequence | np.ndarray):
        count = index(repeats, "repeat", "repeats")
        if count < 0:
            raise ArgumentError("repeat", "the count is negative", count, "at least 0")
        wide = broadcast_to(
            expand_dims(x, place + 1), (*shape[: place + 1], count, *shape[place + 1 :])
        )
        return reshape(wide, (*shape[:place], shape[place] * count, *shape[place + 1 :]))
    counts = repeats if isinstance(repeats, RudaTensor) else asarray(repeats, device=x.device)
    if counts.spec.shape not in ((), (1,), (shape[place],)):
        expected = f"one count or {shape[place]}"
        raise ShapeError("repeat", "the counts do not fit", counts.spec.shape, expected)
    places = repeated_places(broadcast_to(counts, (shape[place],)))
    return INDEX.get(x, places, (place,))


@composite
@given_tensors
def tile(x: RudaTensor, repetitions: Any, /) -> RudaTensor:
    """``x`` several times along each axis, counted from the last; new leading axes where needed.

    >>> tile(ruda.asarray([1, 2]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    counts = normalize_shape(repetitions, "tile")
    rank = max(len(counts), x.spec.ndim)
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - x.spec.ndim) + x.spec.shape
    apart = tuple(n for size in shape for n in (1, size))
    wide = tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
    whole = tuple(a * b for a, b in zip(counts, shape, strict=True))
    return reshape(broadcast_to(reshape(x, apart), wide), whole)


@composite
@given_tensors
def roll(x: RudaTensor, /, shift: Any, *, axis: Any = None) -> RudaTensor:
    """``x`` moved along ``axis`` by ``shift`` places, what leaves one end entering at the other.

    ``shift`` and ``axis`` are integers or tuples of one length; for None ``x`` is rolled flattened.

    >>> roll(ruda.asarray([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, axis=0), x.spec.shape)
    axes = axis if isinstance(axis, Sequence) else (axis,)
    shifts = shift if isinstance(shift, Sequence) else (shift,) * len(axes)
    if len(axes) != len(shifts):
        got = f"{len(shifts)} for {len(axes)} axes"
        raise ArgumentError("roll", "shifts and axes do not pair up", got)
    for by, along in zip(shifts, axes, strict=True):
        place = normalize_axis(along, x.spec.ndim, "roll")
        size = x.spec.shape[place]
        cut = -index(by, "roll", "shift") % size if size else 0
        if cut:
            x = concat([span(x, place, cut, size), span(x, place, 0, cut)], axis=place)
    return x


def _padded(op: Any, specs: Specs, widths: Widths) -> Shape:
    return tuple(n + low + high for n, (low, high) in zip(specs[0].shape, widths, strict=True))


def _pad_dtype(op: Any, specs: Specs, widths: Widths) -> Any:
    return (None, specs[0].dtype), specs[0].dtype


def _padding(x: Any, value: Any, widths: Widths) -> Any:
    shape = tuple(n + low + high for n, (low, high) in zip(x.shape, widths, strict=True))
    out = np.full(shape, value, x.dtype)
    out[tuple(slice(low, low + n) for n, (low, _) in zip(x.shape, widths, strict=True))] = x
    return out


_pad = row(
    "index",
    "pad_constant",
    "x value",
    "widths",
    shape=_padded,
    dtype=_pad_dtype,
    numpy=_padding,
    vjp=(lambda g, x_spec, widths: _cropped(g, x_spec.shape, widths), None),
    accepts=ALL,
    exact=True,
    doc="``x`` inside a larger tensor whose other elements are ``value``.",
)


def _cropped(g: RudaTensor, shape: Shape, widths: Widths) -> RudaTensor:
    starts = Vector(low for low, _ in widths)
    return slice_view(g, starts, shape, (1,) * len(shape), ())


@composite
@given_tensors
def pad(x: RudaTensor, widths: Any, /, *, mode: str = "constant", value: Any = 0) -> RudaTensor:
    """``x`` with elements added before and after each axis, or cut off where a width is negative.

    ``widths`` is an integer, one per axis, or one pair (before, after) per axis. ``mode``:
    ``constant`` (``value``, a scalar), ``reflect`` (without the border element), ``edge`` (the
    border element), ``circular``. Raises ``ShapeError`` for more elements than the axis can give.

    >>> pad(ruda.asarray([1, 2, 3]), [(2, -1)], mode="reflect").tolist()
    [3, 2, 1, 2]
    """
    if mode not in _BORDERS and mode != "constant":
        expected = "constant, reflect, edge or circular"
        raise ArgumentError("pad", "unknown mode", repr(mode), expected)
    ends = pairs(widths, x.spec.ndim, "pad", "widths")
    added = tuple((max(low, 0), max(high, 0)) for low, high in ends)
    if mode != "constant":
        for axis, (low, high) in enumerate(added):
            x = _bordered(x, axis, low, high, mode) if low or high else x
    elif any(low or high for low, high in added):
        if as_scalar(value) is None:
            raise DTypeError("pad", "the value is not a scalar", type(value).__name__)
        check_scalar("pad", value, x.spec.dtype)
        x = _pad(x, value, added)
    return _cut(x, ends)


def _cut(x: RudaTensor, ends: Widths) -> RudaTensor:
    """``x`` without what negative widths cut off."""
    for axis, (low, high) in enumerate(ends):
        if low < 0 or high < 0:
            start, stop = max(-low, 0), x.spec.shape[axis] - max(-high, 0)
            if start > stop:
                got = f"{(low, high)} for an axis of {x.spec.shape[axis]}"
                raise ShapeError("pad", "cuts off more than there is", got)
            x = span(x, axis, start, stop)
    return x


def _reflected(x: RudaTensor, axis: int, low: int, high: int) -> tuple[RudaTensor, RudaTensor]:
    n = x.spec.shape[axis]
    before, after = span(x, axis, 1, 1 + low), span(x, axis, n - 1 - high, n - 1)
    return flip(before, axis=axis), flip(after, axis=axis)


def _edges(x: RudaTensor, axis: int, low: int, high: int) -> tuple[RudaTensor, RudaTensor]:
    shape, n = x.spec.shape, x.spec.shape[axis]
    return (
        broadcast_to(span(x, axis, 0, 1), (*shape[:axis], low, *shape[axis + 1 :])),
        broadcast_to(span(x, axis, n - 1, n), (*shape[:axis], high, *shape[axis + 1 :])),
    )


def _wrapped(x: RudaTensor, axis: int, low: int, high: int) -> tuple[RudaTensor, RudaTensor]:
    n = x.spec.shape[axis]
    return span(x, axis, n - low, n), span(x, axis, 0, high)


_BORDERS = {"reflect": _reflected, "edge": _edges, "circular": _wrapped}


def _bordered(x: RudaTensor, axis: int, low: int, high: int, mode: str) -> RudaTensor:
    n = x.spec.shape[axis]
    most = {"reflect": n - 1, "circular": n}.get(mode)
    if n == 0 or (most is not None and max(low, high) > most):
        expected = f"at most {most}" if most is not None and n else "an axis that is not empty"
        raise ShapeError("pad", f"too wide for {mode} on axis {axis}", (low, high), expected)
    before, after = _BORDERS[mode](x, axis, low, high)
    parts = [before] * bool(low) + [x] + [after] * bool(high)
    return concat(parts, axis=axis)
