"""Reductions over one axis, several, or all: sums, products, extremes, truth, positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import ARITHMETIC, BOOL, REAL, as_dtype
from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape, normalize_axes, normalize_axis
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.compare import equal, isnan, logical_or
from ruda.ops.complexes import conj
from ruda.ops.movement import broadcast_to, expand_dims, permute_dims, reshape
from ruda.ops.rules import Specs
from ruda.ops.scan import cumprod
from ruda.ops.select import where
from ruda.ops.table import row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

# References call ``reduce`` of the ufunc and not np.sum, np.max and so on, which add a layer of
# Python that takes longer than a small sum, and in whose name a warning would be given.


def unreduced(g: RudaTensor, x_spec: Spec, axes: Shape, keepdims: bool) -> RudaTensor:
    """``g`` shown in the shape that it was reduced from."""
    if not keepdims and axes:
        g = expand_dims(g, axes)
    return broadcast_to(g, x_spec.shape)


def unbroadcast(g: RudaTensor, shape: Shape) -> RudaTensor:
    """``g`` summed over the axes that broadcasting from ``shape`` added or stretched."""
    lead = g.ndim - len(shape)
    axes = tuple(i for i, n in enumerate(g.shape) if i < lead or (shape[i - lead] == 1 and n != 1))
    return reshape(sum(g, axis=axes) if axes else g, shape)


def merged(x: RudaTensor, axes: Shape) -> RudaTensor:
    """``x`` with ``axes`` as one last axis, the others in their order."""
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    length = math.prod(x.shape[a] for a in axes)
    return reshape(permute_dims(x, (*kept, *axes)), (*(x.shape[a] for a in kept), length))


def unmerged(x: RudaTensor, axes: Shape, shape: Shape) -> RudaTensor:
    """What ``merged`` would bring to the form of ``x``, a tensor of ``shape``."""
    order = (*(a for a in range(len(shape)) if a not in axes), *axes)
    parts = reshape(x, tuple(shape[a] for a in order))
    return permute_dims(parts, tuple(order.index(a) for a in range(len(shape))))


def _accumulated(op: Any, specs: Specs, axes: Shape, keepdims: bool, dtype: Any) -> Any:
    return rules.accumulated(op, specs, dtype)


_sum = row(
    "reduction",
    "sum",
    "x",
    "axes keepdims dtype",
    shape=rules.reduced,
    dtype=_accumulated,
    numpy=lambda x, axes, keepdims, dtype: np.add.reduce(x, axis=axes, keepdims=keepdims),
    vjp=(lambda g, x_spec, axes, keepdims: unreduced(g, x_spec, axes, keepdims),),
    accepts=ARITHMETIC,
    cast="high",
    doc="Sum over ``axes``.",
)


@given_tensors
def sum(
    x: RudaTensor,
    /,
    axis: Any = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    out: RudaTensor | None = None,
) -> RudaTensor:
    """Sum over ``axis``: one, several, or None for all; 0 where there is nothing to add.

    Half types add up in float32; integers narrower than 64 bits give int64 or uint64 unless
    ``dtype`` says otherwise.

    >>> sum(ruda.asarray([[1, 2], [3, 4]]), axis=0).tolist()
    [4, 6]
    """
    kind = None if dtype is None else as_dtype(dtype, "sum")
    return _sum(x, normalize_axes(axis, x.ndim, "sum"), bool(keepdims), kind, out=out)


def _prod_cotangent(g: Any, x: Any, axes: Shape, keepdims: bool) -> Any:
    """``g`` times the product of all other elements: of those before and those after.

    Without a division, so that zeros among the elements need no special case.
    """
    line = merged(x, axes)
    before, after = (cumprod(line, -1, exclusive=True, reverse=r) for r in (False, True))
    return unreduced(g, x.spec, axes, keepdims) * conj(unmerged(before * after, axes, x.shape))


_prod = row(
    "reduction",
    "prod",
    "x",
    "axes keepdims dtype",
    shape=rules.reduced,
    dtype=_accumulated,
    numpy=lambda x, axes, keepdims, dtype: np.multiply.reduce(x, axis=axes, keepdims=keepdims),
    vjp=(_prod_cotangent,),
    accepts=ARITHMETIC,
    cast="high",
    doc="Product over ``axes``.",
)


@given_tensors
def prod(
    x: RudaTensor,
    /,
    axis: Any = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    out: RudaTensor | None = None,
) -> RudaTensor:
    """Product over ``axis``: one, several, or None for all; 1 where there is nothing to multiply.

    Dtypes as in ``sum``. The gradient is exact where elements are zero.

    >>> prod(ruda.asarray([[1, 2], [3, 4]]), axis=1).tolist()
    [2, 12]
    """
    kind = None if dtype is None else as_dtype(dtype, "prod")
    return _prod(x, normalize_axes(axis, x.ndim, "prod"), bool(keepdims), kind, out=out)


def nonempty(op: Any, specs: Specs, axes: Shape, keepdims: bool, *_: Any) -> Shape:
    """The shape of a reduction that has no value for nothing: no axis may be empty."""
    shape = specs[0].shape
    if 0 in (shape[a] for a in axes):
        expected = f"at least one element along axes {axes}"
        raise ShapeError(op.name, "nothing to choose from", shape, expected)
    return rules.reduced(op, specs, axes, keepdims)


def extreme_cotangent(g: Any, x: Any, out: Any, axes: Shape, keepdims: bool) -> Any:
    """``g`` in equal shares to the elements that attain the extreme (the NaNs, if there are any).

    A tie has no derivative; equal shares are the subgradient that treats its elements alike.
    """
    attained = logical_or(equal(x, unreduced(out, x.spec, axes, keepdims)), isnan(x))
    count = sum(attained, axis=axes, keepdims=True)
    shares = (g if keepdims or not axes else expand_dims(g, axes)) / count
    return where(attained, broadcast_to(shares, x.shape), 0.0)


def _extreme(name: str, numpy: Any, doc: str) -> Any:
    return row(
        "reduction",
        name,
        "x",
        "axes keepdims",
        shape=nonempty,
        dtype=rules.promote,
        numpy=lambda x, axes, keepdims: numpy(x, axis=axes, keepdims=keepdims),
        vjp=(extreme_cotangent,),
        accepts=BOOL + REAL,
        doc=doc,
    )


_max = _extreme("max", np.maximum.reduce, "Largest element over ``axes``.")
_min = _extreme("min", np.minimum.reduce, "Smallest element over ``axes``.")


@given_tensors
def max(
    x: RudaTensor,
    /,
    axis: Any = None,
    *,
    keepdims: bool = False,
    out: RudaTensor | None = None,
) -> RudaTensor:
    """Largest element over ``axis``: one, several, or None for all; NaN if there is one.

    Elements that tie share the gradient equally. Raises ``ShapeError`` for an empty axis.

    >>> max(ruda.asarray([[1, 5], [7, 3]]), axis=1).tolist()
    [5, 7]
    """
    return _max(x, normalize_axes(axis, x.ndim, "max"), bool(keepdims), out=out)


@given_tensors
def min(
    x: RudaTensor,
    /,
    axis: Any = None,
    *,
    keepdims: bool = False,
    out: RudaTensor | None = None,
) -> RudaTensor:
    """Smallest element over ``axis``: one, several, or None for all; NaN if there is one.

    Elements that tie share the gradient equally. Raises ``ShapeError`` for an empty axis.

    >>> min(ruda.asarray([[1, 5], [7, 3]]), axis=1).tolist()
    [1, 3]
    """
    return _min(x, normalize_axes(axis, x.ndim, "min"), bool(keepdims), out=out)


def _position(name: str, numpy: Any, doc: str) -> Any:
    return row(
        "reduction",
        name,
        "x",
        "axes keepdims",
        shape=nonempty,
        dtype=lambda op, specs, axes, keepdims: (specs[0].dtype, dtypes.int64),
        numpy=lambda x, axes, keepdims: numpy(
            x, axis=axes[0] if len(axes) == 1 else None, keepdims=keepdims
        ),
        accepts=BOOL + REAL,
        doc=doc,
    )


# ``axes`` is one axis or all of them.
_argmax = _position("argmax", np.argmax, "Index of the largest element over ``axes``.")
_argmin = _position("argmin", np.argmin, "Index of the smallest element over ``axes``.")


def _one_or_all(axis: Any, rank: int, op: str) -> Shape:
    return tuple(range(rank)) if axis is None else (normalize_axis(axis, rank, op),)


@given_tensors
def argmax(x: RudaTensor, /, axis: int | None = None, *, keepdims: bool = False) -> RudaTensor:
    """Index of the largest element along ``axis``, or in row-major order over all: int64.

    The lowest index of a tie; the first NaN if there is one. Raises ``ShapeError`` for an empty
    axis.

    >>> argmax(ruda.asarray([[1, 5], [7, 3]]), axis=1).tolist()
    [1, 0]
    """
    return _argmax(x, _one_or_all(axis, x.ndim, "argmax"), bool(keepdims))


@given_tensors
def argmin(x: RudaTensor, /, axis: int | None = None, *, keepdims: bool = False) -> RudaTensor:
    """Index of the smallest element along ``axis``, or in row-major order over all: int64.

    The lowest index of a tie; the first NaN if there is one. Raises ``ShapeError`` for an empty
    axis.

    >>> argmin(ruda.asarray([[1, 5], [7, 3]]), axis=1).tolist()
    [0, 1]
    """
    return _argmin(x, _one_or_all(axis, x.ndim, "argmin"), bool(keepdims))


def _truth(name: str, numpy: Any, dtype: Any, doc: str) -> Any:
    return row(
        "reduction",
        name,
        "x",
        "axes keepdims",
        shape=rules.reduced,
        dtype=dtype,
        numpy=lambda x, axes, keepdims: numpy(x, axis=axes, keepdims=keepdims),
        accepts=ARITHMETIC,
        exact=True,
        doc=doc,
    )


def _counted(op: Any, specs: Specs, *_: Any) -> Any:
    return None, dtypes.int64


_any = _truth("any", np.any, rules.boolean, "Whether some element over ``axes`` is nonzero.")
_all = _truth("all", np.all, rules.boolean, "Whether every element over ``axes`` is nonzero.")
_count_nonzero = _truth(
    "count_nonzero",
    lambda x, axis, keepdims: np.add.reduce(x != 0, axis=axis, keepdims=keepdims),
    _counted,
    "How many elements over ``axes`` are nonzero.",
)


@given_tensors
def any(
    x: RudaTensor,
    /,
    axis: Any = None,
    *,
    keepdims: bool = False,
    out: RudaTensor | None = None,
) -> RudaTensor:
    """Whether some element over ``axis`` is nonzero, as NaN is; False where there is none.

    >>> any(ruda.asarray([[0, 1], [0, 0]]), axis=1).tolist()
    [True, False]
    """
    return _any(x, normalize_axes(axis, x.ndim, "any"), bool(keepdims), out=out)


@given_tensors
def all(
    x: RudaTensor,
    /,
    axis: Any = None,
    *,
    keepdims: bool = False,
    out: RudaTensor | None = None,
) -> RudaTensor:
    """Whether every element over ``axis`` is nonzero, as NaN is; True where there is none.

    >>> all(ruda.asarray([[2, 1], [0, 1]]), axis=1).tolist()
    [True, False]
    """
    return _all(x, normalize_axes(axis, x.ndim, "all"), bool(keepdims), out=out)


@given_tensors
def count_nonzero(x: RudaTensor, /, axis: Any = None, *, keepdims: bool = False) -> RudaTensor:
    """How many elements over ``axis`` (one, several, or None for all) are nonzero: int64.

    >>> count_nonzero(ruda.asarray([[0, 1], [2, 3]]), axis=0).tolist()
    [1, 2]
    """
    return _count_nonzero(x, normalize_axes(axis, x.ndim, "count_nonzero"), bool(keepdims))
