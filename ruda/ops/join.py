"""Joining tensors, and taking them apart into views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.core.dtypes import ALL, promote_all
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import Shape, index, normalize_axis
from ruda.ops.movement import reshape
from ruda.ops.rules import Specs
from ruda.ops.strides import shown, span
from ruda.ops.table import composite, row
from ruda.tensor.dispatch import OPS, slow
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_reshape = OPS["reshape"].call


def _joined(op: Any, specs: Specs, axis: int) -> Shape:
    first = specs[0].shape
    for spec in specs[1:]:
        shape = spec.shape
        if len(shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(first, shape, strict=True)) if i != axis
        ):
            got = " and ".join(str(s.shape) for s in specs)
            expected = f"equal sizes except on axis {axis}"
            raise ShapeError(op.name, "shapes do not fit", got, expected)
    return (*first[:axis], sum(s.shape[axis] for s in specs), *first[axis + 1 :])


def _joined_dtype(op: Any, specs: Specs, axis: int) -> Any:
    dtype = promote_all(s.dtype for s in specs)
    return dtype, dtype


def _apart(g: RudaTensor, specs: Specs, needs: Sequence[bool], axis: int) -> list[Any]:
    """The part of ``g`` that each of the joined tensors went to."""
    out: list[Any] = []
    start = 0
    for spec, need in zip(specs, needs, strict=True):
        stop = start + spec.shape[axis]
        out.append(span(g, axis, start, stop) if need else None)
        start = stop
    return out


_concat = row(
    "join",
    "concat",
    "xs",
    "axis",
    shape=_joined,
    dtype=_joined_dtype,
    numpy=lambda *xs: np.concatenate(xs[:-1], axis=xs[-1]),
    vjp=_apart,
    accepts=ALL,
    exact=True,
    doc="Tensors one after the other along ``axis``.",
)


def _tensors(op: str, arrays: Any) -> list[RudaTensor]:
    if isinstance(arrays, RudaTensor):
        hint = f"{op}([x, ...])"
        raise DTypeError(op, "takes a sequence of tensors", arrays.spec, hint=hint)
    out = list(arrays)
    if not out:
        raise ArgumentError(op, "nothing to join", "an empty sequence", "at least one tensor")
    for x in out:
        if x.__class__ is not RudaTensor:
            hint = "ruda.asarray"
            raise DTypeError(op, "not a tensor", type(x).__name__, "tensors only", hint)
    return out


def concat(arrays: Sequence[RudaTensor], /, *, axis: int | None = 0) -> RudaTensor:
    """The tensors ``arrays`` one after the other along ``axis``; flattened first for None.

    They agree in every other axis; the dtypes are promoted together. Raises ``ShapeError``
    otherwise.

    >>> concat([ruda.asarray([1, 2]), ruda.asarray([3])]).tolist()
    [1, 2, 3]
    """
    xs = _tensors("concat", arrays)
    if axis is None:
        xs, axis = [reshape(x, (-1,)) for x in xs], 0
    place = normalize_axis(axis, xs[0].spec.ndim, "concat")
    return slow(OPS["concat"], xs, (place,))


@composite
def stack(arrays: Sequence[RudaTensor], /, *, axis: int = 0) -> RudaTensor:
    """The tensors ``arrays``, all of one shape, along a new axis at ``axis``.

    >>> stack([ruda.zeros(3), ruda.ones(3)], axis=1).shape
    (3, 2)
    """
    xs = _tensors("stack", arrays)
    if any(x.spec.shape != xs[0].spec.shape for x in xs):
        got = " and ".join(str(x.spec.shape) for x in xs)
        raise ShapeError("stack", "shapes differ", got, "one shape")
    place = normalize_axis(axis, xs[0].spec.ndim + 1, "stack")
    shape = xs[0].spec.shape
    wide = (*shape[:place], 1, *shape[place:])
    return slow(OPS["concat"], [_reshape(x, wide) for x in xs], (place,))


@given_tensors
def unstack(x: RudaTensor, /, *, axis: int = 0) -> tuple[RudaTensor, ...]:
    """One tensor per place along ``axis``, that axis removed; views.

    >>> [v.tolist() for v in unstack(ruda.asarray([[1, 2], [3, 4]]), axis=1)]
    [[1, 3], [2, 4]]
    """
    place = normalize_axis(axis, x.spec.ndim, "unstack")
    lengths = (*x.spec.shape[:place], 1)
    steps, lead = (1,) * (place + 1), (0,) * place
    return tuple(shown(x, (*lead, i), lengths, steps, (place,)) for i in range(x.spec.shape[place]))


@given_tensors
def split(x: RudaTensor, sizes: Any, /, *, axis: int = 0) -> tuple[RudaTensor, ...]:
    """Consecutive parts of ``x`` along ``axis``; views.

    ``sizes`` is the length of every part (the last may be shorter) or a sequence of lengths that
    add up to the axis.

    >>> [p.shape for p in split(ruda.zeros(7), 3)]
    [(3,), (3,), (1,)]
    """
    place = normalize_axis(axis, x.spec.ndim, "split")
    total = x.spec.shape[place]
    if isinstance(sizes, Sequence):
        lengths = [index(n, "split", "sizes") for n in sizes]
        if any(n < 0 for n in lengths) or sum(lengths) != total:
            expected = f"lengths that add up to {total}"
            raise ShapeError("split", "the sizes do not fit the axis", tuple(sizes), expected)
    else:
        size = index(sizes, "split", "sizes")
        if size < 1:
            raise ArgumentError("split", "the size is not positive", size, "at least 1")
        lengths = [min(size, total - i) for i in range(0, max(total, 1), size)]
    out, start = [], 0
    for n in lengths:
        out.append(span(x, place, start, start + n))
        start += n
    return tuple(out)


def chunk(x: RudaTensor, chunks: int, /, *, axis: int = 0) -> tuple[RudaTensor, ...]:
    """``x`` cut along ``axis`` into at most ``chunks`` parts of equal length but the last; views.

    >>> [p.shape for p in chunk(ruda.zeros((2, 6)), 3, axis=1)]
    [(2, 2), (2, 2), (2, 2)]
    """
    count = index(chunks, "chunk", "chunks")
    if count < 1:
        raise ArgumentError("chunk", "the number of chunks is not positive", count, "at least 1")
    place = normalize_axis(axis, x.spec.ndim, "chunk")
    return split(x, max(-(-x.spec.shape[place] // count), 1), axis=place)
