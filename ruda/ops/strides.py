"""Rows that show part of a tensor's memory by other strides, and the adjoints of those views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.core.dtypes import ALL, ARITHMETIC
from ruda.core.errors import ShapeError
from ruda.core.mode import MODE
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, weak_spec
from ruda.ops import rules
from ruda.ops.movement import contiguous, view, zeros_of
from ruda.ops.rules import Specs
from ruda.ops.table import names, row
from ruda.tensor.dispatch import OPS
from ruda.tensor.launch import record
from ruda.tensor.operands import Vector
from ruda.tensor.tensor import RudaTensor, wrap
from ruda.tensor.views import register_view


def adjoint(
    name: str, args: str, attrs: str, fill: Any, vjp: Any, doc: str, *, adds: bool = False
) -> Callable[..., Any]:
    """A row that puts ``g`` into zeros of the shape that its first attribute gives.

    ``fill(out, g, ...)`` does it; with ``adds`` it computes, and so in float32 for half types.
    """
    by_value = len(names(args)) - 1

    def numpy(g: Any, *rest: Any) -> Any:
        shape, *attributes = rest[by_value:]
        out = np.zeros(shape, g.dtype)
        fill(out, g, *rest[:by_value], *attributes)
        return out

    def dtype(op: Any, specs: Specs, *_: Any) -> Any:
        return (specs[0].dtype if adds else None, *(None,) * by_value), specs[0].dtype

    return row(
        "index",
        name,
        args,
        attrs,
        shape=lambda op, specs, shape, *_: shape,
        dtype=dtype,
        numpy=numpy,
        vjp=vjp,
        accepts=ARITHMETIC if adds else ALL,
        exact=not adds,
        doc=doc,
    )


def _sliced(op: Any, specs: Specs, lengths: Shape, steps: Shape, dropped: Shape) -> Any:
    shape, strides = specs[0].shape, specs[0].strides
    rank = len(lengths)
    kept = [i for i in range(rank) if i not in dropped]
    return (
        tuple(lengths[i] for i in kept) + shape[rank:],
        tuple(strides[i] * steps[i] for i in kept) + strides[rank:],
    )


def slices(starts: Shape, lengths: Shape, steps: Shape, dropped: Shape) -> tuple[Any, ...]:
    """The NumPy key that takes ``lengths`` elements by ``steps`` from ``starts`` on each axis."""
    if len(starts) == len(dropped):
        return (*starts, ...)
    key: list[Any] = []
    for i, (start, length, step) in enumerate(zip(starts, lengths, steps, strict=True)):
        if i in dropped:
            key.append(start)
        else:
            stop = start + step * length
            key.append(slice(start, None if stop < 0 else stop, step))
    key.append(...)
    return tuple(key)


def _put_slice(out: Any, g: Any, starts: Shape, *pattern: Any) -> None:
    out[slices(starts, *pattern)] = g


# Where a slice starts is a value and not structure: one plan serves x[i] for every i. Attributes
# speak of the leading axes up to the last that is touched, so x[i] and x[i, :] are one plan too.
slice_view = view(
    "slice",
    "lengths steps dropped",
    _sliced,
    lambda x, starts, *pattern: x[slices(starts, *pattern)],
    (
        lambda g, starts, x_spec, lengths, steps, dropped: _unslice(
            g, starts, x_spec.shape, lengths, steps, dropped
        ),
        None,
    ),
    "Evenly spaced elements of each axis: basic indexing.",
    args="x starts",
)
_unslice = adjoint(
    "unslice",
    "g starts",
    "shape lengths steps dropped",
    _put_slice,
    (
        lambda g, starts, lengths, steps, dropped: slice_view(g, starts, lengths, steps, dropped),
        None,
    ),
    "Zeros of ``shape`` with ``g`` where ``slice`` would look: its adjoint.",
)


_SLICE = OPS["slice"]
_find = _SLICE.hot.get
_starts_spec: dict[Any, Spec] = {}


def shown(x: RudaTensor, starts: Shape, lengths: Shape, steps: Shape, dropped: Shape) -> RudaTensor:
    """The view ``slice`` makes, without the detours of the general entry."""
    mode = MODE.get()
    if mode.beyond:
        return slice_view(x, Vector(starts), lengths, steps, dropped)
    spec = x.spec
    by_value = _starts_spec.get(spec.client)
    if by_value is None:
        by_value = _starts_spec[spec.client] = weak_spec(spec.client, "int")
    key = (spec, by_value, lengths, steps, dropped)
    plan = _find(key) or _SLICE.miss(key, key[:2], key[2:])
    handle = plan.run(x.handle, starts)
    out = wrap(plan.out, handle)
    register_view(x, out)
    if x.node is not None and mode.grad and plan.records:
        out.node = record(plan, (x.handle, Vector(starts)), (x.node, None), handle)
    return out


def span(x: Any, axis: int, start: int, stop: int) -> Any:
    """Elements ``start`` to ``stop`` of one axis, all of the others; a view."""
    shape = x.spec.shape
    lengths = (*shape[:axis], stop - start)
    return shown(x, (0,) * axis + (start,), lengths, (1,) * (axis + 1), ())


def as_strided_bytes(x: Any, shape: Shape, steps: Shape) -> Any:
    """``x`` read by ``steps``, in bytes, from its first element on; for references."""
    # By way of a void dtype: NumPy's array interface misreads the names of some storage dtypes.
    raw = x.view(f"V{x.itemsize}")
    return np.lib.stride_tricks.as_strided(raw, shape, steps).view(x.dtype)


def _strided(x: Any, offset: int, shape: Shape, strides: Shape) -> Any:
    return as_strided_bytes(x.reshape(-1)[offset:], shape, tuple(s * x.itemsize for s in strides))


def _row_major_alone(op: Any, specs: Specs, shape: Shape, strides: Shape) -> Any:
    if not specs[0].contiguous:
        hint = "contiguous(x)"
        raise ShapeError(op.name, "the operand is not row-major", specs[0], hint=hint)
    return shape, strides


# Geometry in the memory of a row-major tensor: how in-place changes reach views of any kind.
_as_strided = view(
    "as_strided",
    "shape strides",
    _row_major_alone,
    _strided,
    (
        lambda g, offset, x_spec, shape, strides: _add_view(
            zeros_of(x_spec, g), g, offset, shape, strides
        ),
        None,
    ),
    "The memory of a row-major ``x`` from ``offset`` on, read by ``strides``.",
    args="x offset",
)


def _assigned_view(base: Any, value: Any, offset: int, shape: Shape, strides: Shape) -> Any:
    out = base.copy()
    _strided(out, offset, shape, strides)[...] = value
    return out


def _first(op: Any, specs: Specs, *_: Any) -> Any:
    return (None, specs[0].dtype, None), specs[0].dtype


_assign_view = row(
    "index",
    "assign_view",
    "base value offset",
    "shape strides",
    shape=rules.same,
    dtype=_first,
    numpy=_assigned_view,
    vjp=(
        lambda g, value_spec, offset, shape, strides: _assign_view(
            g, zeros_of(value_spec, g), offset, shape, strides
        ),
        lambda g, offset, shape, strides: _as_strided(contiguous(g), offset, shape, strides),
        None,
    ),
    accepts=ALL,
    exact=True,
    doc="``base`` with what ``as_strided`` would show replaced by ``value``.",
)


def _added_view(base: Any, value: Any, offset: int, shape: Shape, strides: Shape) -> Any:
    out = base.copy()
    where = np.full(shape, offset)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = np.arange(size) * stride
        where += steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    np.add.at(out.reshape(-1), where, np.broadcast_to(value, shape))
    return out


_add_view = row(
    "index",
    "add_view",
    "base value offset",
    "shape strides",
    shape=rules.same,
    dtype=lambda op, specs, *_: ((specs[0].dtype, specs[0].dtype, None), specs[0].dtype),
    numpy=_added_view,
    vjp=(
        lambda g: g,
        lambda g, offset, shape, strides: _as_strided(contiguous(g), offset, shape, strides),
        None,
    ),
    doc="``base`` with ``value`` added where ``as_strided`` would look; repeats add up.",
)


def diagonal_geometry(
    shape: Shape, strides: Shape, offset: int, axis1: int, axis2: int
) -> tuple[int, Shape, Shape]:
    """How far the first element of a diagonal lies from the first of all, its shape and strides."""
    rows, columns = shape[axis1], shape[axis2]
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    start = offset * strides[axis2] if offset >= 0 else -offset * strides[axis1]
    kept = [i for i in range(len(shape)) if i not in (axis1, axis2)]
    return (
        start if length else 0,
        (*(shape[i] for i in kept), length),
        (*(strides[i] for i in kept), strides[axis1] + strides[axis2]),
    )


def _diagonal(x: Any, offset: int, axis1: int, axis2: int) -> Any:
    # np.diagonal is read-only; from the right corner on, the geometry needs no offset of its own.
    _, shape, strides = diagonal_geometry(x.shape, x.strides, offset, axis1, axis2)
    corner = [slice(None)] * x.ndim
    if shape[-1]:
        corner[axis1 if offset < 0 else axis2] = slice(abs(offset), None)
    return as_strided_bytes(x[tuple(corner)], shape, strides)


def _put_diagonal(out: Any, g: Any, offset: int, axis1: int, axis2: int) -> None:
    _diagonal(out, offset, axis1, axis2)[...] = g


diagonal_view = view(
    "diagonal",
    "offset axis1 axis2",
    lambda op, specs, *place: diagonal_geometry(specs[0].shape, specs[0].strides, *place)[1:],
    _diagonal,
    (
        lambda g, x_spec, offset, axis1, axis2: diagonal_embedded(
            g, x_spec.shape, offset, axis1, axis2
        ),
    ),
    "The elements whose places on two axes differ by ``offset``, along a new last axis.",
)
diagonal_embedded = adjoint(
    "diagonal_embed",
    "g",
    "shape offset axis1 axis2",
    _put_diagonal,
    (lambda g, offset, axis1, axis2: diagonal_view(g, offset, axis1, axis2),),
    "Zeros of ``shape`` with ``g`` on a diagonal: the adjoint of ``diagonal``.",
)
