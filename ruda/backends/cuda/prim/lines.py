"""Operands seen along one axis: rows of elements, however the memory is laid out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import DType
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of

Fetch = Callable[[Any], tuple[int, Any]]


class Lines(NamedTuple):
    """``rows`` times ``inner`` lines of ``n`` elements, and the strides of the three."""

    rows: int
    n: int
    inner: int
    strides: tuple[int, int, int]


def joined(shape: Shape, strides: Shape) -> tuple[int, int] | None:
    """Size and stride of all axes as one, or None where they do not step evenly."""
    size, step = 1, 0
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n == 1:
            continue
        if size > 1 and stride != step * size:
            return None
        size, step = size * n, step if size > 1 else stride
    return size, step


def lines_of(shape: Shape, strides: Shape, axis: int) -> Lines | None:
    """The lines along ``axis``, or None where the other axes have no common strides."""
    outer = joined(shape[:axis], strides[:axis])
    inner = joined(shape[axis + 1 :], strides[axis + 1 :])
    if outer is None or inner is None:
        return None
    return Lines(outer[0], shape[axis], inner[0], (outer[1], strides[axis], inner[1]))


def along(client: Any, spec: Spec, shape: Shape, dtype: DType, axis: int) -> tuple[Fetch, Any]:
    """How to reach ``spec`` broadcast to ``shape``, and its lines along ``axis``.

    The function gives an address and what has to live until the work is queued. What is a Python
    scalar, or has no common strides, is copied to ``dtype`` and row-major order first.
    """
    strides = _broadcast(spec, shape)
    found = None if spec.weak else lines_of(shape, strides, axis)
    if found is not None:
        return (lambda h: (h.address, h)), found
    fetch, dense = dense_copy(client, spec, shape, dtype if spec.weak else spec.dtype)
    return fetch, lines_of(shape, dense.strides, axis)


def dense_copy(client: Any, spec: Spec, shape: Shape, dtype: DType) -> tuple[Fetch, Spec]:
    """A function to a row-major copy of ``spec``, broadcast to ``shape``."""
    dense = spec_of(client, shape, dtype)
    copied = client.copier(dense, spec)

    def fetch(h: Any) -> tuple[int, Any]:
        copy = copied(h)
        return copy.address, copy

    return fetch, dense


def dense(client: Any, spec: Spec, dtype: DType | None = None) -> Fetch:
    """A function to the address of ``spec`` in row-major order, and to what has to stay alive."""
    wanted = dtype or spec.dtype
    if spec.contiguous and not spec.weak and spec.dtype is wanted:
        return lambda h: (h.address, h)
    return dense_copy(client, spec, spec.shape, wanted)[0]


def _broadcast(spec: Spec, shape: Shape) -> Shape:
    lead = len(shape) - spec.ndim
    own = tuple(0 if n == 1 else s for n, s in zip(spec.shape, spec.strides, strict=True))
    return (0,) * lead + own


def last(client: Any, spec: Spec, axis: int) -> tuple[Fetch, int, int]:
    """How to reach ``spec`` with ``axis`` innermost and all row-major; rows and their length.

    Ordering needs the elements of a row side by side, so another axis is moved there by a copy.
    """
    n = spec.shape[axis]
    rows = math.prod(spec.shape[:axis] + spec.shape[axis + 1 :])
    if spec.contiguous and spec.size == spec.shape[axis] * math.prod(spec.shape[:axis]):
        return (lambda h: (h.address, h)), rows, n
    shown = spec_of(client, _moved(spec.shape, axis), spec.dtype, _moved(spec.strides, axis))
    return dense_copy(client, shown, shown.shape, spec.dtype)[0], rows, n


def _moved(values: Shape, axis: int) -> Shape:
    return (*values[:axis], *values[axis + 1 :], values[axis])


class Placed(NamedTuple):
    """Where rows are written: memory for them, and the step that moves the axis back."""

    make: Callable[[], Any]
    finish: Callable[[Any], Any]


def placed(client: Any, out: Spec, axis: int) -> Placed:
    """Memory for rows ``[..., n]`` that end up as ``out``, whose ``axis`` is that last one."""
    pool = client.pool
    if out.size == out.shape[axis] * math.prod(out.shape[:axis]):
        return Placed(lambda: allocate(pool, out), lambda h: h)
    rows = spec_of(client, _moved(out.shape, axis), out.dtype)
    inner = len(out.shape) - 1
    order = (*range(axis), inner, *range(axis, inner))
    shown = spec_of(client, out.shape, out.dtype, tuple(rows.strides[i] for i in order))
    return Placed(lambda: allocate(pool, rows), client.copier(out, shown))
