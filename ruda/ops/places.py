"""Kinds of row that read at places given by a tensor of integers, and that write there.

A ``Family`` is one way of reading with its adjoint and the rows that put, add, multiply or take
extremes where it reads. The gradients of each are written with the others, so they are the same for
every way of reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import ALL, ARITHMETIC, BOOL, KIND_ORDER, NUMERIC, REAL
from ruda.core.errors import DTypeError
from ruda.core.shapes import Shape, broadcast_strides
from ruda.core.spec import Spec
from ruda.ops.arith import add, divide, multiply
from ruda.ops.compare import equal
from ruda.ops.complexes import conj
from ruda.ops.create import arange, ones, zeros
from ruda.ops.movement import reshape, zeros_of
from ruda.ops.rules import Specs
from ruda.ops.table import row
from ruda.tensor.tensor import RudaTensor


class Family(NamedTuple):
    """The rows that read and write at the same places.

    ``shown(op, x, index, axes)`` is the shape of what is read, ``winners(family, index, x_spec,
    axes)`` says which of the values put there are left standing.
    """

    get: Callable[..., Any]
    adjoint: Callable[..., Any]
    put: Callable[..., Any]
    add: Callable[..., Any]
    multiply: Callable[..., Any]
    extreme: Callable[..., Any]
    shown: Callable[..., Shape]
    winners: Callable[..., Any]


# A family holds its rows, and their gradients need the family: it is looked up when they run.
Late = Callable[[], Family]


def check_integers(op: Any, index: Spec) -> None:
    """Raise ``DTypeError`` unless ``index`` has an integer dtype."""
    if not index.dtype.is_integer:
        hint = "index.astype(ruda.int64)"
        raise DTypeError(op.name, "not an index", index.dtype, "an integer dtype", hint)


def _read_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    check_integers(op, specs[1])
    return (None, None), specs[0].dtype


def reader(name: str, family: Late, numpy: Any, shown: Any, doc: str) -> Callable[..., Any]:
    """The row ``get(x, index; axes)``."""
    return row(
        "index",
        name,
        "x index",
        "axes",
        shape=lambda op, specs, axes: shown(op, *specs, axes),
        dtype=_read_dtype,
        numpy=numpy,
        vjp=(lambda g, index, x_spec, axes: family().adjoint(g, index, x_spec.shape, axes), None),
        accepts=ALL,
        exact=True,
        doc=doc,
    )


def adjoint(name: str, family: Late, combine: Any, doc: str) -> Callable[..., Any]:
    """The row ``adjoint(g, index; shape, axes)``: ``g`` added up in zeros where ``get`` reads."""

    def added(g: Any, index: Any, shape: Shape, axes: Shape) -> Any:
        out = np.zeros(shape, g.dtype)
        combine(out, g, index, axes, "add", name)
        return out

    return row(
        "index",
        name,
        "g index",
        "shape axes",
        shape=lambda op, specs, shape, axes: shape,
        dtype=lambda op, specs, *_: ((specs[0].dtype, None), specs[0].dtype),
        numpy=added,
        vjp=(lambda g, index, axes: family().get(g, index, axes), None),
        accepts=ARITHMETIC,
        doc=doc,
    )


def _writer(
    name: str, shown: Any, write: Callable[..., None], vjp: Any, doc: str, **columns: Any
) -> Any:
    """A row ``write(base, value, index; axes)``, whose index has no gradient."""

    def shape(op: Any, specs: Specs, axes: Shape, *_: Any) -> Shape:
        base, value, index = specs
        broadcast_strides(op.name, value.shape, value.strides, shown(op, base, index, axes))
        return base.shape

    def numpy(base: Any, *rest: Any) -> Any:
        out = base.copy()
        write(out, *rest)
        return out

    # What an update of memory in place calls, with the memory for ``out``.
    numpy.in_place = write  # type: ignore[attr-defined]
    return row(
        "index",
        name,
        "base value index",
        columns.pop("attrs", "axes"),
        shape=shape,
        dtype=_written_dtype,
        numpy=numpy,
        vjp=(*vjp, None),
        doc=doc,
        **columns,
    )


def _written_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    base, value, index = specs
    check_integers(op, index)
    if KIND_ORDER[value.dtype.kind] > KIND_ORDER[base.dtype.kind]:
        hint = "value.astype(base.dtype)"
        raise DTypeError(op.name, "the value would lose its kind", value.dtype, base.dtype, hint)
    return (base.dtype, base.dtype, None), base.dtype


def putter(name: str, family: Late, write: Any, shown: Any, doc: str) -> Any:
    """The row that replaces; of several values for one place the last wins."""
    return _writer(
        name,
        shown,
        write,
        (
            lambda g, index, axes: family().put(g, 0, index, axes),
            lambda g, index, base_spec, axes: multiply(
                family().get(g, index, axes), family().winners(family(), index, base_spec, axes)
            ),
        ),
        doc,
        accepts=ALL,
        exact=True,
    )


def adder(name: str, family: Late, combine: Any, shown: Any, doc: str) -> Any:
    """The row that adds; repeated places add up."""
    return _writer(
        name,
        shown,
        lambda out, value, index, axes: combine(out, value, index, axes, "add", name),
        (lambda g: g, lambda g, index, axes: family().get(g, index, axes)),
        doc,
        accepts=ARITHMETIC,
    )


def multiplier(name: str, family: Late, combine: Any, shown: Any, doc: str) -> Any:
    """The row that multiplies, as often as a place is named."""
    return _writer(
        name,
        shown,
        lambda out, value, index, axes: combine(out, value, index, axes, "multiply", name),
        (
            lambda g, value, index, base_spec, axes: multiply(
                g, conj(family().multiply(_ones_of(base_spec, g), value, index, axes))
            ),
            lambda g, base, value, index, axes: multiply(
                family().get(g, index, axes), conj(_others(family(), base, value, index, axes))
            ),
        ),
        doc,
        accepts=NUMERIC,
    )


def extreme(name: str, family: Late, combine: Any, shown: Any, doc: str) -> Any:
    """The row that keeps the smallest or, by its attribute ``mode``, the largest."""
    return _writer(
        name,
        shown,
        lambda out, value, index, axes, mode: combine(out, value, index, axes, mode, name),
        (
            lambda g, out, base, value, index, axes: multiply(
                _share(family(), g, out, base, value, index, axes), _same(base, out, g)
            ),
            lambda g, out, base, value, index, axes: multiply(
                family().get(_share(family(), g, out, base, value, index, axes), index, axes),
                _same(value, family().get(out, index, axes), g),
            ),
        ),
        doc,
        attrs="axes mode",
        accepts=BOOL + REAL,
    )


def _ones_of(spec: Spec, like: RudaTensor) -> RudaTensor:
    return ones(spec.shape, dtype=like.dtype, device=like.device)


def _same(a: Any, b: Any, like: RudaTensor) -> Any:
    return equal(a, b).astype(like.dtype)


def winners(
    family: Family, index: RudaTensor, places: Shape, slots: Shape, axes: Shape
) -> RudaTensor:
    """Which of the values put at ``places`` (a shape) of ``slots`` (another) are not overwritten.

    Each place is put its own number, and those that read it back have won.
    """
    numbers = arange(math.prod(places), dtype=dtypes.int64, device=index.device)
    order = reshape(numbers, places)
    empty = zeros(slots, dtype=dtypes.int64, device=index.device)
    return equal(family.get(family.put(empty, order, index, axes), index, axes), order)


def _others(family: Family, base: Any, value: Any, index: Any, axes: Shape) -> Any:
    """The product of everything multiplied into the place of each value, that value left out."""
    zero = _same(value, 0, base)
    safe = add(value, zero)
    product = family.get(family.multiply(base, safe, index, axes), index, axes)
    met = family.get(family.add(zeros_of(base.spec, base), zero, index, axes), index, axes)
    return multiply(divide(product, safe), _same(met, zero, base))


def _share(family: Family, g: Any, out: Any, base: Any, value: Any, index: Any, axes: Shape) -> Any:
    """``g`` divided evenly among all that attain the extreme."""
    hits = _same(value, family.get(out, index, axes), g)
    return divide(g, family.add(_same(base, out, g), hits, index, axes))
