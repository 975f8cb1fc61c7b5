"""Rows that move values without computing: views, and the copies that make one row-major."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.core.dtypes import ALL
from ruda.core.errors import AxisError, DTypeError, ShapeError
from ruda.core.shapes import (
    Shape,
    broadcast_shapes,
    broadcast_strides,
    infer_shape,
    normalize_axes,
    normalize_axis,
    normalize_shape,
    reshape_strides,
)
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.rules import Specs
from ruda.ops.table import TABLE, composite, row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def view(name: str, attrs: str, shape: Any, numpy: Any, vjp: Any, doc: str, args: str = "x") -> Any:
    """A row whose output shows the memory of ``x``: its shape rule also gives the strides."""
    return row(
        "view",
        name,
        args,
        attrs,
        shape=shape,
        dtype=_shown_dtype,
        numpy=numpy,
        vjp=vjp,
        accepts=ALL,
        exact=True,
        doc=doc,
    )


def _shown_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    return (None,) * len(specs), specs[0].dtype


def _permuted(op: Any, specs: Specs, axes: Shape) -> Any:
    x = specs[0]
    return tuple(x.shape[a] for a in axes), tuple(x.strides[a] for a in axes)


_permute = view(
    "permute",
    "axes",
    _permuted,
    lambda x, axes: x.transpose(axes),
    (lambda g, axes: _permute(g, _inverse(axes)),),
    "``x`` with its axes in another order.",
)


def _inverse(axes: Shape) -> Shape:
    return tuple(axes.index(i) for i in range(len(axes)))


def _expanded(op: Any, specs: Specs, shape: Shape) -> Any:
    return shape, broadcast_strides("broadcast_to", specs[0].shape, specs[0].strides, shape)


def _repeated(x: Any, shape: Shape) -> Any:
    if x.size == 1 and x.dtype.isbuiltin == 1:
        # One element everywhere: a tenth of the time of np.broadcast_to.
        return np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    out = np.broadcast_to(x, shape)
    # NumPy hands it out read-only; ruda itself refuses to write where memory repeats.
    out.flags.writeable = x.flags.writeable
    return out


_expand = view(
    "expand",
    "shape",
    _expanded,
    _repeated,
    (lambda g: g,),
    "``x`` repeated along axes of length 1 and new leading ones, without a copy.",
)


def _reshaped(op: Any, specs: Specs, shape: Shape) -> Any:
    strides = reshape_strides(specs[0].shape, specs[0].strides, shape)
    return shape if strides is None else (shape, strides)


_reshape = view(
    "reshape",
    "shape",
    _reshaped,
    lambda x, shape: x.reshape(shape),
    (lambda g, x_spec: reshape(g, x_spec.shape),),
    "The elements of ``x`` in another shape; a view where strides allow, else a copy.",
)


def _flipped(op: Any, specs: Specs, axes: Shape) -> Any:
    x = specs[0]
    return x.shape, tuple(-s if i in axes else s for i, s in enumerate(x.strides))


_flip = view(
    "flip",
    "axes",
    _flipped,
    # Indexing with an ellipsis, since np.flip gives a scalar for a 0-d array.
    lambda x, axes: x[(*(slice(None, None, -1 if i in axes else 1) for i in range(x.ndim)), ...)],
    (lambda g, axes: _flip(g, axes),),
    "``x`` with the order along some axes reversed.",
)


copy = row(
    "copy",
    "copy",
    "x",
    shape=rules.same,
    dtype=rules.unchanged,
    numpy=lambda x: np.array(x, order="C"),
    vjp=(lambda g: g,),
    accepts=ALL,
    exact=True,
    doc="A row-major copy of ``x`` that shares no memory with it.",
)


@given_tensors
def contiguous(x: RudaTensor, /) -> RudaTensor:
    """``x`` itself when its elements lie row-major without gaps, else a copy where they do."""
    return x if x.spec.contiguous else copy(x)


def zeros_of(spec: Spec, like: RudaTensor) -> RudaTensor:
    """Zeros of the shape of ``spec`` in the dtype and on the device of ``like``."""
    full = TABLE["full"].call
    return full(0, spec.shape, like.spec.dtype, like.spec.client.device)


@given_tensors
def reshape(x: RudaTensor, /, shape: Any, *sizes: Any, copy: bool | None = None) -> RudaTensor:
    """The elements of ``x``, read row-major, in another shape; one size may be -1.

    The sizes come as one sequence, or one by one.

    A view where strides allow, else a copy. ``copy=True`` always copies, ``copy=False`` raises
    ``ShapeError`` where only a copy would do.

    >>> reshape(ruda.asarray([1, 2, 3, 4]), (2, -1)).shape
    (2, 2)
    """
    target = infer_shape((shape, *sizes) if sizes else shape, x.spec.size, "reshape")
    if copy:
        return _reshape(_copy(x), target)
    if copy is False and reshape_strides(x.spec.shape, x.spec.strides, target) is None:
        hint = "copy=None"
        raise ShapeError("reshape", "needs a copy, which copy=False forbids", x.spec, target, hint)
    return _reshape(x, target)


_copy = copy


@given_tensors
def permute_dims(x: RudaTensor, /, axes: Sequence[int]) -> RudaTensor:
    """``x`` with axis ``axes[i]`` at place ``i``; a view.

    >>> permute_dims(ruda.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    if not isinstance(axes, Sequence):
        got = f"{axes!r:.60} of type {type(axes).__name__}"
        raise DTypeError("permute_dims", "axes is not a sequence", got, "a tuple of integers")
    order = tuple(normalize_axis(a, x.spec.ndim, "permute_dims") for a in axes)
    if sorted(order) != list(range(x.spec.ndim)):
        expected = f"each of 0 to {x.spec.ndim - 1} once"
        raise AxisError("permute_dims", "not an order of the axes", tuple(axes), expected)
    return _permute(x, order)


def broadcast_to(x: RudaTensor, /, shape: Any) -> RudaTensor:
    """``x`` repeated to ``shape`` along axes of length 1 and new leading ones; a view.

    >>> broadcast_to(ruda.asarray([1, 2]), (3, 2)).tolist()
    [[1, 2], [1, 2], [1, 2]]
    """
    return _expand(x, normalize_shape(shape, "broadcast_to"))


@given_tensors
def broadcast_arrays(*arrays: RudaTensor) -> list[RudaTensor]:
    """All ``arrays`` as views of the one shape they broadcast to."""
    shape = broadcast_shapes("broadcast_arrays", *(a.shape for a in arrays))
    return [broadcast_to(a, shape) for a in arrays]


@given_tensors
def expand_dims(x: RudaTensor, /, axis: Any = 0) -> RudaTensor:
    """``x`` with axes of length 1 at ``axis`` (one or several) of the result; a view.

    >>> expand_dims(ruda.ones((2, 3)), axis=1).shape
    (2, 1, 3)
    """
    shape = list(x.spec.shape)
    given = (axis,) if not isinstance(axis, Sequence) else axis
    for place in normalize_axes(given, len(shape) + len(given), "expand_dims"):
        shape.insert(place, 1)
    return _reshape(x, tuple(shape))


@given_tensors
def squeeze(x: RudaTensor, /, axis: Any = None) -> RudaTensor:
    """``x`` without the axes ``axis``, which must have length 1 (None: all of those); a view.

    >>> squeeze(ruda.ones((2, 1, 3)), axis=1).shape
    (2, 3)
    """
    if axis is None:
        axes: Shape = tuple(i for i, n in enumerate(x.spec.shape) if n == 1)
    else:
        axes = normalize_axes(axis, x.spec.ndim, "squeeze")
    if any(x.spec.shape[a] != 1 for a in axes):
        expected = f"axes of length 1 of {x.spec.shape}"
        raise ShapeError("squeeze", "an axis is longer than 1", axis, expected)
    return _reshape(x, tuple(n for i, n in enumerate(x.spec.shape) if i not in axes))


@given_tensors
def flip(x: RudaTensor, /, *, axis: Any = None) -> RudaTensor:
    """``x`` with the order along ``axis`` (one, several, or None for all) reversed; a view.

    >>> flip(ruda.asarray([1, 2, 3])).tolist()
    [3, 2, 1]
    """
    return _flip(x, normalize_axes(axis, x.spec.ndim, "flip"))


@given_tensors
def matrix_transpose(x: RudaTensor, /) -> RudaTensor:
    """``x [..., m, n]`` as ``[..., n, m]``; a view."""
    rank = x.spec.ndim
    if rank < 2:
        raise ShapeError("matrix_transpose", "needs two axes", x.spec.shape, "[..., m, n]")
    return _permute(x, (*range(rank - 2), rank - 1, rank - 2))


@composite
@given_tensors
def moveaxis(x: RudaTensor, source: Any, destination: Any, /) -> RudaTensor:
    """``x`` with the axes ``source`` at the places ``destination``, the others in their order.

    >>> moveaxis(ruda.ones((2, 3, 4)), -1, 0).shape
    (4, 2, 3)
    """
    rank = x.ndim
    take = tuple(source) if isinstance(source, Sequence) else (source,)
    put = tuple(destination) if isinstance(destination, Sequence) else (destination,)
    src = [normalize_axis(a, rank, "moveaxis") for a in take]
    dst = [normalize_axis(a, rank, "moveaxis") for a in put]
    if len(set(src)) != len(src) or len(set(dst)) != len(dst) or len(src) != len(dst):
        expected = "as many different axes on both sides"
        raise AxisError("moveaxis", "axes do not pair up", f"{source} to {destination}", expected)
    order = [a for a in range(rank) if a not in src]
    for place, axis in sorted(zip(dst, src, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, order)


@given_tensors
def permute(x: RudaTensor, /, *axes: Any) -> RudaTensor:
    """``permute_dims`` with the axes one by one or as one sequence; a view."""
    return permute_dims(x, axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes)


@given_tensors
def swapaxes(x: RudaTensor, axis1: int, axis2: int, /) -> RudaTensor:
    """``x`` with two axes exchanged; a view.

    >>> swapaxes(ruda.zeros((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    first, second = (normalize_axis(a, x.spec.ndim, "swapaxes") for a in (axis1, axis2))
    order = list(range(x.spec.ndim))
    order[first], order[second] = second, first
    return _permute(x, tuple(order))


@given_tensors
def transpose(x: RudaTensor, axis1: int = -2, axis2: int = -1, /) -> RudaTensor:
    """``swapaxes``, of the last two axes unless others are named; a view.

    >>> transpose(ruda.ones((2, 3, 4)), 0, 1).shape
    (3, 2, 4)
    """
    return swapaxes(x, axis1, axis2)


def transposed(x: RudaTensor, /) -> RudaTensor:
    """``x.T``: a matrix transposed; a view. Raises ``ShapeError`` unless ``x`` has two axes."""
    if x.spec.ndim != 2:
        hint = "x.mT, or permute_dims"
        raise ShapeError("T", "not a matrix", x.spec.shape, "two axes", hint)
    return _permute(x, (1, 0))


@given_tensors
def flatten(x: RudaTensor, /, start: int = 0, end: int = -1) -> RudaTensor:
    """``x`` with the axes ``start`` to ``end``, that one included, made one; a 0-d tensor 1-d.

    >>> flatten(ruda.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """
    shape = x.spec.shape or (1,)
    first, last = (normalize_axis(a, len(shape), "flatten") for a in (start, end))
    if first > last:
        raise AxisError("flatten", "the axes are out of order", (start, end))
    merged = math.prod(shape[first : last + 1])
    return _reshape(x, (*shape[:first], merged, *shape[last + 1 :]))


@given_tensors
def unflatten(x: RudaTensor, axis: int, sizes: Any, /) -> RudaTensor:
    """``x`` with ``axis`` divided into axes of ``sizes``, one of which may be -1; a view.

    >>> unflatten(ruda.zeros((2, 12)), 1, (3, -1)).shape
    (2, 3, 4)
    """
    place = normalize_axis(axis, x.spec.ndim, "unflatten")
    shape = x.spec.shape
    inner = infer_shape(sizes, shape[place], "unflatten")
    return _reshape(x, (*shape[:place], *inner, *shape[place + 1 :]))
