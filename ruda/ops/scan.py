"""Prefix operators: what has been accumulated up to each element of an axis.

``exclusive`` leaves the element itself out, ``reverse`` accumulates from the end; every scan and
every gradient of one takes linear work. G. Blelloch, "Prefix sums and their applications", 1990.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import ARITHMETIC, BOOL, INEXACT, REAL, as_dtype
from ruda.core.errors import ArgumentError, AxisError
from ruda.core.shapes import index, normalize_axis
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.arith import subtract
from ruda.ops.compare import equal, less
from ruda.ops.complexes import conj
from ruda.ops.create import full
from ruda.ops.explog import exp
from ruda.ops.index import take_along_adjoint
from ruda.ops.join import concat
from ruda.ops.reference import scan as reference
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.strides import span
from ruda.ops.table import composite, row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _accumulated(
    op: Any, specs: Specs, axis: int, exclusive: bool, reverse: bool, dtype: Any
) -> Any:
    return rules.accumulated(op, specs, dtype)


_cumsum = row(
    "scan",
    "cumsum",
    "x",
    "axis exclusive reverse dtype",
    shape=rules.same,
    dtype=_accumulated,
    numpy=lambda x, axis, exclusive, reverse, dtype: reference.scan(
        np.add.accumulate, x, axis, exclusive, reverse, 0
    ),
    vjp=(lambda g, axis, exclusive, reverse: _cumsum(g, axis, exclusive, not reverse, None),),
    accepts=ARITHMETIC,
    cast="high",
    doc="Running sum along ``axis``.",
)

# h[i] = a[i] h[i - 1] + b[i]: the scan that the gradients of the other scans are made of.
recurrence = row(
    "scan",
    "linear_recurrence",
    "a b",
    "axis exclusive reverse",
    shape=rules.broadcast,
    dtype=rules.promote,
    numpy=reference.recurrence,
    vjp=lambda g, a, b, needs, axis, exclusive, reverse: _recurrence_cotangents(
        g, a, b, needs, axis, exclusive, reverse
    ),
    accepts=INEXACT,
    cast="high",
    doc="The recurrence ``h[i] = a[i] h[i - 1] + b[i]`` along ``axis``, from ``h[-1] = 0``.",
)


def _reached(g: Any, a: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    """What a recurrence of factors ``a`` carries back: i collects each g[j] that it reached.

    The factors on the way from i to j multiply, so this is a recurrence the other way round.
    """
    a = conj(a)
    if exclusive:
        return recurrence(a, g, axis, True, not reverse)
    return g + recurrence(a, a * g, axis, True, not reverse)


def _recurrence_cotangents(
    g: Any, a: Any, b: Any, needs: Any, axis: int, exclusive: bool, reverse: bool
) -> Any:
    back = _reached(g, a, axis, exclusive, reverse)
    ga = back * conj(recurrence(a, b, axis, True, reverse)) if needs[0] else None
    return ga, back


def _cumprod_cotangent(g: Any, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    """No division, so zeros need no special case: the product before i, times what i reached."""
    before = _cumprod(x, axis, True, reverse, None)
    return conj(before) * _reached(g, x, axis, exclusive, reverse)


_cumprod = row(
    "scan",
    "cumprod",
    "x",
    "axis exclusive reverse dtype",
    shape=rules.same,
    dtype=_accumulated,
    numpy=lambda x, axis, exclusive, reverse, dtype: reference.scan(
        np.multiply.accumulate, x, axis, exclusive, reverse, 1
    ),
    vjp=(_cumprod_cotangent,),
    accepts=ARITHMETIC,
    cast="high",
    doc="Running product along ``axis``.",
)


def log_ratio(x: RudaTensor, y: RudaTensor) -> RudaTensor:
    """``x - y`` of logarithms: 0 where they are equal, -inf for ``x`` = -inf, infinite or not."""
    return where(equal(x, -math.inf), -math.inf, where(equal(x, y), 0.0, x - y))


def _cumlogsumexp_cotangent(
    g: Any, x: Any, out: Any, axis: int, exclusive: bool, reverse: bool
) -> Any:
    """Sums of ``g[j] exp(x[i] - total[j])`` over what i reached, as products of ratios up to 1."""
    other = _cumlogsumexp(x, axis, not exclusive, reverse)
    total, before = (other, out) if exclusive else (out, other)
    factors = exp(log_ratio(before, total))
    return exp(log_ratio(x, total)) * _reached(g, factors, axis, exclusive, reverse)


_cumlogsumexp = row(
    "scan",
    "cumlogsumexp",
    "x",
    "axis exclusive reverse",
    shape=rules.same,
    dtype=rules.floating,
    numpy=lambda x, axis, exclusive, reverse: reference.scan(
        np.logaddexp.accumulate, x, axis, exclusive, reverse, -np.inf
    ),
    vjp=(_cumlogsumexp_cotangent,),
    accepts=BOOL + REAL,
    cast="high",
    doc="Running logarithm of the sum of exponentials along ``axis``.",
)


def _extreme_cotangent(g: Any, indices: Any, x_spec: Spec, axis: int) -> Any:
    """Each element gets what the places where it was the extreme carry back."""
    back = where(less(indices, 0), 0.0, g[0])
    return (take_along_adjoint(back, indices, x_spec.shape, (axis,)),)


def _running(name: str, largest: bool, doc: str) -> Any:
    return row(
        "scan",
        name,
        "x",
        "axis exclusive reverse",
        "values indices",
        shape=lambda op, specs, *_: (specs[0].shape, specs[0].shape),
        dtype=lambda op, specs, *_: (specs[0].dtype, (specs[0].dtype, dtypes.int64)),
        numpy=lambda x, axis, exclusive, reverse: reference.running_extreme(
            x, axis, exclusive, reverse, largest
        ),
        vjp=lambda g, indices, x_spec, axis: _extreme_cotangent(g, indices, x_spec, axis),
        accepts=BOOL + REAL,
        doc=doc,
    )


_cummax = _running("cummax", True, "Largest element so far along ``axis``, and where it is.")
_cummin = _running("cummin", False, "Smallest element so far along ``axis``, and where it is.")


class Running(NamedTuple):
    """The running extreme ``values`` and, int64, the ``indices`` that attain it."""

    values: RudaTensor
    indices: RudaTensor


def _axis(axis: Any, rank: int, op: str) -> int:
    if axis is None:
        if rank != 1:
            expected = "an axis, unless the tensor is 1-d"
            raise AxisError(op, "needs an axis", f"None for {rank} axes", expected)
        return 0
    return normalize_axis(axis, rank, op)


def _with_initial(x: RudaTensor, axis: int, reverse: bool, value: Any) -> RudaTensor:
    """``x`` with one more element ``value`` where its accumulation starts."""
    shape = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    first = full(shape, value, dtype=x.dtype, device=x.device)
    return concat([x, first] if reverse else [first, x], axis=axis)


def _accumulate(
    scan: Any, identity: int, op: str, x: Any, axis: Any, dtype: Any, **how: bool
) -> Any:
    exclusive, initial, reverse = how["exclusive"], how["include_initial"], bool(how["reverse"])
    if exclusive and initial:
        got, hint = "exclusive and include_initial", "one of them"
        raise ArgumentError(op, "both start with the initial value", got, hint=hint)
    place = _axis(axis, x.ndim, op)
    kind = None if dtype is None else as_dtype(dtype, op)
    out = scan(x, place, bool(exclusive), reverse, kind)
    return _with_initial(out, place, reverse, identity) if initial else out


@given_tensors
def cumsum(
    x: RudaTensor,
    /,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> RudaTensor:
    """Running sum along ``axis``, which may be left out for a 1-d tensor.

    ``exclusive`` leaves each element out of its own sum, ``reverse`` adds from the end,
    ``include_initial`` puts one more element 0 where the sum starts. Dtypes as in ``sum``.

    >>> cumsum(ruda.asarray([1, 2, 3])).tolist()
    [1, 3, 6]
    >>> cumsum(ruda.asarray([1, 2, 3]), exclusive=True, reverse=True).tolist()
    [5, 3, 0]
    """
    how = {"include_initial": include_initial, "exclusive": exclusive, "reverse": reverse}
    return _accumulate(_cumsum, 0, "cumsum", x, axis, dtype, **how)


@given_tensors
def cumprod(
    x: RudaTensor,
    /,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> RudaTensor:
    """Running product along ``axis``, which may be left out for a 1-d tensor.

    Arguments and dtypes as in ``cumsum``. The gradient is exact where elements are zero.

    >>> cumprod(ruda.asarray([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    how = {"include_initial": include_initial, "exclusive": exclusive, "reverse": reverse}
    return _accumulate(_cumprod, 1, "cumprod", x, axis, dtype, **how)


# The names of the Array API.
cumulative_sum = cumsum
cumulative_prod = cumprod


@given_tensors
def cumlogsumexp(
    x: RudaTensor,
    /,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> RudaTensor:
    """Running ``log(sum(exp(x)))`` along ``axis``, which may be left out for a 1-d tensor.

    Nothing overflows on the way; -inf is the logarithm of nothing and gets no gradient.

    >>> [round(v, 3) for v in cumlogsumexp(ruda.asarray([1000.0, 1000.0])).tolist()]
    [1000.0, 1000.693]
    """
    place = _axis(axis, x.ndim, "cumlogsumexp")
    return _cumlogsumexp(x, place, bool(exclusive), bool(reverse))


@given_tensors
def cummax(
    x: RudaTensor,
    /,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> Running:
    """Largest element so far along ``axis`` and, int64, where it is: ``(values, indices)``.

    Ties give the lower index; a NaN, once met, stays. Where ``exclusive`` leaves nothing, the value
    is the dtype's lowest (-inf) and the index -1.

    >>> cummax(ruda.asarray([1, 3, 2, 3])).indices.tolist()
    [0, 1, 1, 1]
    """
    place = _axis(axis, x.ndim, "cummax")
    return Running(*_cummax(x, place, bool(exclusive), bool(reverse)))


@given_tensors
def cummin(
    x: RudaTensor,
    /,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> Running:
    """Smallest element so far along ``axis`` and, int64, where it is: ``(values, indices)``.

    Ties give the lower index; a NaN, once met, stays. Where ``exclusive`` leaves nothing, the value
    is the dtype's highest (inf) and the index -1.

    >>> cummin(ruda.asarray([3, 1, 2])).values.tolist()
    [3, 1, 1]
    """
    place = _axis(axis, x.ndim, "cummin")
    return Running(*_cummin(x, place, bool(exclusive), bool(reverse)))


@composite
@given_tensors
def diff(
    x: RudaTensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: RudaTensor | None = None,
    append: RudaTensor | None = None,
) -> RudaTensor:
    """Differences of neighbours along ``axis``, taken ``n`` times; what ``cumsum`` undoes.

    ``prepend`` and ``append`` are joined to ``x`` first. Raises ``ArgumentError`` for a negative
    ``n``.

    >>> diff(ruda.asarray([1, 4, 9])).tolist()
    [3, 5]
    """
    place, order = normalize_axis(axis, x.ndim, "diff"), index(n, "diff", "n")
    if order < 0:
        raise ArgumentError("diff", "cannot be taken a negative number of times", order)
    parts = [p for p in (prepend, x, append) if p is not None]
    out = concat(parts, axis=place) if len(parts) > 1 else x
    for _ in range(order):
        length = out.shape[place]
        after = span(out, place, min(1, length), length)
        out = subtract(after, span(out, place, 0, max(length - 1, 0)))
    return out
