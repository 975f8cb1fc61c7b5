"""Rows that read elements by tensors of integers, or write them, and where booleans are true.

``index`` reads whole slices at places given for some axes together, as NumPy's advanced indexing
does; ``take_along_axis`` reads single elements along one axis. Each has rows that write where it
reads: put, add, multiply, extreme. An index counts from the end when negative; outside of its axis
it raises ``IndexRangeError``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import ALL, ARITHMETIC, BOOL, NUMERIC, REAL
from ruda.core.errors import DTypeError, ShapeError
from ruda.core.shapes import Shape, broadcast_strides
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.arith import add, divide, multiply
from ruda.ops.compare import equal
from ruda.ops.complexes import conj
from ruda.ops.create import arange, ones, zeros
from ruda.ops.movement import reshape, zeros_of
from ruda.ops.reference import scatter as reference
from ruda.ops.table import row
from ruda.tensor.tensor import RudaTensor

Specs = tuple[Spec, ...]
_KIND_ORDER = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3, "storage": 4}


class Family(NamedTuple):
    """The rows that read and write at the same places; ``shown`` is the shape of what is read."""

    get: Callable[..., Any]
    put: Callable[..., Any]
    add: Callable[..., Any]
    multiply: Callable[..., Any]
    extreme: Callable[..., Any]
    shown: Callable[..., Shape]


def together(axes: Shape) -> bool:
    """Whether ``axes`` are neighbours: then what is read stays in their place, else it leads."""
    return axes[-1] - axes[0] + 1 == len(axes)


def places_shape(index: Spec, axes: Shape) -> Shape:
    """The shape of the places, without the axis that indices for several axes are stacked along."""
    return index.shape if len(axes) == 1 else index.shape[1:]


def _indexed(op: Any, x: Spec, index: Spec, axes: Shape) -> Shape:
    places = places_shape(index, axes)
    kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    lead = axes[0] if together(axes) else 0
    return kept[:lead] + places + kept[lead:]


def _along(op: Any, x: Spec, index: Spec, axes: Shape) -> Shape:
    if index.ndim != x.ndim:
        expected = f"{x.ndim} axes, as the tensor has"
        raise ShapeError(op.name, "the index has another rank", index.shape, expected)
    for axis, (n, size) in enumerate(zip(index.shape, x.shape, strict=True)):
        if axis not in axes and n > size:
            expected = f"at most {x.shape} except on axis {axes[0]}"
            raise ShapeError(op.name, "the index is too long", index.shape, expected)
    return index.shape


def _check_integers(op: Any, index: Spec) -> None:
    if not index.dtype.is_integer:
        hint = "index.astype(ruda.int64)"
        raise DTypeError(op.name, "not an index", index.dtype, "an integer dtype", hint)


def _read_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    _check_integers(op, specs[1])
    return (None, None), specs[0].dtype


def _written(shown: Callable[..., Shape]) -> Callable[..., Any]:
    def rule(op: Any, specs: Specs, axes: Shape, *_: Any) -> Shape:
        base, value, index = specs
        broadcast_strides(op.name, value.shape, value.strides, shown(op, base, index, axes))
        return base.shape

    return rule


def _written_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    base, value, index = specs
    _check_integers(op, index)
    if _KIND_ORDER[value.dtype.kind] > _KIND_ORDER[base.dtype.kind]:
        hint = "value.astype(base.dtype)"
        raise DTypeError(op.name, "the value would lose its kind", value.dtype, base.dtype, hint)
    return (base.dtype, base.dtype, None), base.dtype


def updating(write: Callable[..., None]) -> Callable[..., Any]:
    """The reference that writes into a copy of the base; ``in_place`` writes into the base."""

    def copying(base: Any, *rest: Any) -> Any:
        out = base.copy()
        write(out, *rest)
        return out

    copying.in_place = write  # type: ignore[attr-defined]
    return copying


def _reader(
    name: str, numpy: Any, shown: Callable[..., Shape], combine: Any, doc: str
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A row that reads, and its adjoint, which adds up what was read into zeros."""

    def added(g: Any, index: Any, shape: Shape, axes: Shape) -> Any:
        out = np.zeros(shape, g.dtype)
        combine(out, g, index, axes, "add", name)
        return out

    get = row(
        "index",
        name,
        "x index",
        "axes",
        shape=lambda op, specs, axes: shown(op, *specs, axes),
        dtype=_read_dtype,
        numpy=numpy,
        vjp=(lambda g, index, x_spec, axes: adjoint(g, index, x_spec.shape, axes), None),
        accepts=ALL,
        exact=True,
        doc=doc,
    )
    adjoint = row(
        "index",
        f"{name}_adjoint",
        "g index",
        "shape axes",
        shape=lambda op, specs, shape, axes: shape,
        dtype=lambda op, specs, *_: ((specs[0].dtype, None), specs[0].dtype),
        numpy=added,
        vjp=(lambda g, index, axes: get(g, index, axes), None),
        accepts=ARITHMETIC,
        doc=f"Zeros of ``shape`` with ``g`` added where ``{name}`` would read: its adjoint.",
    )
    return get, adjoint


def _writer(
    name: str, mode: str, numpy: Any, shown: Any, vjp: Any, doc: str, **columns: Any
) -> Any:
    attrs = "axes mode" if mode == "extreme" else "axes"
    return row(
        "index",
        name,
        "base value index",
        attrs,
        shape=_written(shown),
        dtype=_written_dtype,
        numpy=updating(numpy),
        vjp=(*vjp, None),
        doc=doc,
        **columns,
    )


def _combining(combine: Any, name: str, mode: str | None) -> Any:
    if mode is None:
        return lambda out, value, index, axes, mode: combine(out, value, index, axes, mode, name)
    return lambda out, value, index, axes: combine(out, value, index, axes, mode, name)


def _family(name: str, get: Any, put: Any, combine: Any, shown: Any) -> Family:
    """The four rows that write where ``get`` reads."""
    setter = _writer(
        f"{name}_put",
        "put",
        put,
        shown,
        (
            lambda g, index, axes: setter(g, 0, index, axes),
            lambda g, index, base_spec, axes: multiply(
                get(g, index, axes), _winners(rows, index, base_spec, axes)
            ),
        ),
        f"``base`` with ``value`` where ``{name}`` reads; the last of equal places wins.",
        accepts=ALL,
        exact=True,
    )
    adder = _writer(
        f"{name}_add",
        "add",
        _combining(combine, f"{name}_add", "add"),
        shown,
        (lambda g: g, lambda g, index, axes: get(g, index, axes)),
        f"``base`` with ``value`` added where ``{name}`` reads; repeated places add up.",
        accepts=ARITHMETIC,
    )
    multiplier = _writer(
        f"{name}_multiply",
        "multiply",
        _combining(combine, f"{name}_multiply", "multiply"),
        shown,
        (
            lambda g, value, index, base_spec, axes: multiply(
                g, conj(multiplier(_ones_of(base_spec, g), value, index, axes))
            ),
            lambda g, base, value, index, axes: multiply(
                get(g, index, axes), conj(_others(rows, base, value, index, axes))
            ),
        ),
        f"``base`` multiplied by ``value`` where ``{name}`` reads, as often as a place is named.",
        accepts=NUMERIC,
    )
    extreme = _writer(
        f"{name}_extreme",
        "extreme",
        _combining(combine, f"{name}_extreme", None),
        shown,
        (
            lambda g, out, base, value, index, axes: multiply(
                _share(rows, g, out, base, value, index, axes), _same(base, out, g)
            ),
            lambda g, out, base, value, index, axes: multiply(
                get(_share(rows, g, out, base, value, index, axes), index, axes),
                _same(value, get(out, index, axes), g),
            ),
        ),
        f"The smaller (or larger) of ``base`` and every ``value`` where ``{name}`` reads.",
        accepts=BOOL + REAL,
    )
    rows = Family(get, setter, adder, multiplier, extreme, shown)
    return rows


def _ones_of(spec: Spec, like: RudaTensor) -> RudaTensor:
    return ones(spec.shape, dtype=like.dtype, device=like.device)


def _same(a: Any, b: Any, like: RudaTensor) -> Any:
    return equal(a, b).astype(like.dtype)


def _winners(rows: Family, index: RudaTensor, base: Spec, axes: Shape) -> RudaTensor:
    """Which values a put left standing, shaped to multiply what ``get`` reads."""
    places = places_shape(index.spec, axes)
    order = reshape(arange(math.prod(places), dtype=dtypes.int64, device=index.device), places)
    if rows.shown is _along:
        slots = zeros(base.shape, dtype=dtypes.int64, device=index.device)
        return equal(rows.get(rows.put(slots, order, index, axes), index, axes), order)  # type: ignore[no-any-return]
    own = tuple(range(len(axes)))
    sizes = tuple(base.shape[a] for a in axes)
    slots = zeros(sizes, dtype=dtypes.int64, device=index.device)
    won = equal(rows.get(rows.put(slots, order, index, own), index, own), order)
    after = base.ndim - 1 - axes[-1] if together(axes) else base.ndim - len(axes)
    return reshape(won, places + (1,) * after)


def _others(rows: Family, base: Any, value: Any, index: Any, axes: Shape) -> Any:
    """The product of everything multiplied into the place of each value, that value left out."""
    zero = _same(value, 0, base)
    safe = add(value, zero)
    product = rows.get(rows.multiply(base, safe, index, axes), index, axes)
    zeros_met = rows.get(rows.add(zeros_of(base.spec, base), zero, index, axes), index, axes)
    return multiply(divide(product, safe), _same(zeros_met, zero, base))


def _share(rows: Family, g: Any, out: Any, base: Any, value: Any, index: Any, axes: Shape) -> Any:
    """``g`` divided evenly among all that attain the extreme."""
    hits = _same(value, rows.get(out, index, axes), g)
    return divide(g, rows.add(_same(base, out, g), hits, index, axes))


index, index_adjoint = _reader(
    "index",
    reference.index,
    _indexed,
    reference.combine,
    "Slices of ``x`` at places given for ``axes`` together: advanced indexing.",
)
take_along, take_along_adjoint = _reader(
    "take_along_axis",
    reference.take_along,
    _along,
    reference.combine_along,
    "Elements of ``x`` at places along one axis.",
)
INDEX = _family("index", index, reference.put, reference.combine, _indexed)
SCATTER = _family("scatter", take_along, reference.put_along, reference.combine_along, _along)


true_places = row(
    "dynamic",
    "true_places",
    "mask",
    shape=rules.same,
    dtype=rules.unchanged,
    numpy=reference.true_places,
    accepts=BOOL,
    exact=True,
    doc="Where ``mask`` is true, in row-major order: one row of places per axis.",
)
