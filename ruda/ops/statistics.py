"""Moments and other statistics over one axis, several, or all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import ARITHMETIC, BOOL, REAL, as_dtype
from ruda.core.errors import ArgumentError, DTypeError
from ruda.core.shapes import Shape, normalize_axes
from ruda.ops import rules
from ruda.ops.arith import absolute, pow, sign
from ruda.ops.compare import equal, isfinite
from ruda.ops.explog import exp, log
from ruda.ops.movement import squeeze, zeros_of
from ruda.ops.reduce import extreme_cotangent, unreduced
from ruda.ops.reduce import max as _max
from ruda.ops.reduce import sum as _sum
from ruda.ops.rules import Specs
from ruda.ops.scan import log_ratio
from ruda.ops.select import where
from ruda.ops.table import fused, row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _count(shape: Shape, axes: Shape) -> int:
    return math.prod(shape[a] for a in axes)


def _averaged(op: Any, specs: Specs, axes: Shape, keepdims: bool, dtype: Any) -> Any:
    """Integers are averaged in float64, which holds their sum, and give the default float."""
    source = specs[0].dtype
    if not source.is_inexact:
        return dtypes.float64, dtype or specs[0].client.defaults.floating
    return rules.accumulated(op, specs, dtype)


_mean = row(
    "reduction",
    "mean",
    "x",
    "axes keepdims dtype",
    shape=rules.reduced,
    dtype=_averaged,
    numpy=lambda x, axes, keepdims, dtype: (
        np.add.reduce(x, axis=axes, keepdims=keepdims) / _count(x.shape, axes)
    ),
    vjp=(
        lambda g, x_spec, axes, keepdims: unreduced(
            g / _count(x_spec.shape, axes), x_spec, axes, keepdims
        ),
    ),
    accepts=ARITHMETIC,
    cast="high",
    doc="Arithmetic mean over ``axes``.",
)


@given_tensors
def mean(
    x: RudaTensor,
    /,
    axis: Any = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    out: RudaTensor | None = None,
) -> RudaTensor:
    """Arithmetic mean over ``axis``: one, several, or None for all; NaN of nothing.

    Half types add up in float32 and are rounded once; integers and bools give the default float.
    ``dtype`` is the floating dtype of accumulation and result.

    >>> mean(ruda.asarray([[1.0, 2.0], [3.0, 6.0]]), axis=1).tolist()
    [1.5, 4.5]
    """
    kind = None if dtype is None else as_dtype(dtype, "mean")
    if kind is not None and not kind.is_inexact:
        raise DTypeError("mean", "a mean is not an integer", kind, "a floating dtype")
    return _mean(x, normalize_axes(axis, x.ndim, "mean"), bool(keepdims), kind, out=out)


def _distributed(op: Any, specs: Specs, *_: Any) -> Any:
    """As ``_averaged``; the spread of complex numbers is real."""
    source = specs[0].dtype
    if not source.is_inexact:
        return dtypes.float64, specs[0].client.defaults.floating
    return source, dtypes.real_of(source)


def _spread(x: Any, axes: Shape, keepdims: Any, correction: float) -> Any:
    """Mean squared distance from the mean, in two passes so that nothing cancels."""
    count = _count(x.shape, axes)
    off = x - np.add.reduce(x, axis=axes, keepdims=True) / count
    squares = off.real**2 + off.imag**2 if np.iscomplexobj(off) else off * off
    return np.add.reduce(squares, axis=axes, keepdims=keepdims) / max(count - correction, 0.0)


def _var_cotangent(g: Any, x: Any, axes: Shape, keepdims: bool, correction: float) -> Any:
    """``2 (x - mean) / freedom``, for complex ``x`` too; that the mean moves as well adds zero."""
    freedom = _count(x.shape, axes) - correction
    scale = 2 / freedom if freedom > 0 else math.inf
    return unreduced(g * scale, x.spec, axes, keepdims) * (x - mean(x, axes, keepdims=True))


def _std_cotangent(g: Any, x: Any, out: Any, axes: Shape, keepdims: bool, correction: float) -> Any:
    """That of ``var`` over ``2 std``; zero, the least subgradient, where all elements agree."""
    safe = g / (2 * where(equal(out, 0), math.inf, out))
    return _var_cotangent(safe, x, axes, keepdims, correction)


_VAR: dict[str, Any] = {
    "shape": rules.reduced,
    "dtype": _distributed,
    "accepts": ARITHMETIC,
    "cast": "high",
}

_var = row(
    "reduction",
    "var",
    "x",
    "axes keepdims correction",
    numpy=_spread,
    vjp=(_var_cotangent,),
    doc="Variance over ``axes``, with ``correction`` degrees of freedom taken off.",
    **_VAR,
)
_std = row(
    "reduction",
    "std",
    "x",
    "axes keepdims correction",
    numpy=lambda x, axes, keepdims, correction: np.sqrt(_spread(x, axes, keepdims, correction)),
    vjp=(_std_cotangent,),
    doc="Standard deviation over ``axes``, with ``correction`` degrees of freedom taken off.",
    **_VAR,
)


@given_tensors
def var(
    x: RudaTensor,
    /,
    axis: Any = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    out: RudaTensor | None = None,
) -> RudaTensor:
    """Variance over ``axis``: the sum of ``|x - mean|^2`` over ``n - correction``.

    ``correction=1`` is the unbiased estimate. Real for complex ``x``; computed in float32 for half
    types; NaN where nothing is left to divide by.

    >>> var(ruda.asarray([1.0, 2.0, 3.0]), correction=1).item()
    1.0
    """
    axes = normalize_axes(axis, x.ndim, "var")
    return _var(x, axes, bool(keepdims), float(correction), out=out)


@given_tensors
def std(
    x: RudaTensor,
    /,
    axis: Any = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    out: RudaTensor | None = None,
) -> RudaTensor:
    """Standard deviation over ``axis``: the root of ``var``.

    Where all elements agree the gradient is zero, the least of the subgradients there.

    >>> std(ruda.asarray([1.0, 2.0, 3.0]), correction=1).item()
    1.0
    """
    axes = normalize_axes(axis, x.ndim, "std")
    return _std(x, axes, bool(keepdims), float(correction), out=out)


def _logsumexp_reference(x: Any, axes: Shape, keepdims: bool) -> Any:
    top = np.maximum.reduce(x, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, x.dtype.type(0))
    out = np.log(np.add.reduce(np.exp(x - shift), axis=axes, keepdims=True)) + shift
    return out if keepdims else np.squeeze(out, axes)


def _logsumexp_cotangent(g: Any, x: Any, out: Any, axes: Shape, keepdims: bool) -> Any:
    """``g`` times softmax; -inf elements get zero, and an infinite maximum all of ``g``."""
    weight = exp(log_ratio(x, unreduced(out, x.spec, axes, keepdims)))
    return unreduced(g, x.spec, axes, keepdims) * weight


@fused(
    "logsumexp",
    "x",
    "axes keepdims",
    shape=rules.reduced,
    dtype=rules.floating,
    numpy=_logsumexp_reference,
    vjp=(_logsumexp_cotangent,),
    accepts=BOOL + REAL,
    cast="high",
)
def _logsumexp(x: RudaTensor, axes: Shape, keepdims: bool) -> RudaTensor:
    """Logarithm of the sum of exponentials over ``axes``."""
    if 0 in (x.shape[a] for a in axes):
        return log(_sum(x, axis=axes, keepdims=keepdims))
    top = _max(x, axis=axes, keepdims=True)
    shift = where(isfinite(top), top, 0.0)
    out = log(_sum(exp(x - shift), axis=axes, keepdims=True)) + shift
    return out if keepdims else squeeze(out, axes)


@given_tensors
def logsumexp(x: RudaTensor, /, axis: Any = None, *, keepdims: bool = False) -> RudaTensor:
    """``log(sum(exp(x)))`` over ``axis`` without overflow; -inf of nothing.

    Computed in float32 for half types; integers give the default float. An element -inf counts for
    nothing and gets no gradient; an element +inf makes the result +inf.

    >>> round(logsumexp(ruda.asarray([1000.0, 1000.0])).item(), 3)
    1000.693
    """
    return _logsumexp(x, normalize_axes(axis, x.ndim, "logsumexp"), bool(keepdims))


def _magnitudes(op: Any, specs: Specs, *_: Any) -> Any:
    dtype, _ = rules.floating(op, specs)
    return dtype, dtypes.real_of(dtype)


def _norm_reference(x: Any, axes: Shape, keepdims: bool, order: float) -> Any:
    how: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    if order == 2:
        squares = x.real**2 + x.imag**2 if np.iscomplexobj(x) else x * x
        return np.sqrt(np.add.reduce(squares, **how))
    size = np.abs(x)
    if order == 0:
        return np.add.reduce(size != 0, **how)
    if order == math.inf:
        return np.maximum.reduce(size, initial=0, **how)
    if order == -math.inf:
        return np.minimum.reduce(size, initial=np.inf, **how)
    return (
        np.add.reduce(size, **how)
        if order == 1
        else np.add.reduce(size**order, **how) ** (1 / order)
    )


def _norm_cotangent(g: Any, x: Any, out: Any, axes: Shape, keepdims: bool, order: float) -> Any:
    """Zero, the least subgradient, where ``x`` or its norm is zero; equal shares of a tie."""
    if order == 0:
        return zeros_of(x.spec, x)
    if order == 1:
        return unreduced(g, x.spec, axes, keepdims) * sign(x)
    if abs(order) == math.inf:
        return extreme_cotangent(g, absolute(x), out, axes, keepdims) * sign(x)
    safe = where(equal(out, 0), math.inf, out)
    if order == 2:
        return unreduced(g / safe, x.spec, axes, keepdims) * x
    ratio = absolute(x) / unreduced(safe, x.spec, axes, keepdims)
    slope = pow(where(equal(ratio, 0), 1.0, ratio), order - 1)
    return unreduced(g, x.spec, axes, keepdims) * slope * sign(x)


_vector_norm = row(
    "reduction",
    "vector_norm",
    "x",
    "axes keepdims order",
    shape=rules.reduced,
    dtype=_magnitudes,
    numpy=_norm_reference,
    vjp=(_norm_cotangent,),
    accepts=ARITHMETIC,
    cast="high",
    doc="Vector norm over ``axes``.",
)


@given_tensors
def vector_norm(
    x: RudaTensor,
    /,
    *,
    axis: Any = None,
    keepdims: bool = False,
    ord: float = 2,
) -> RudaTensor:
    """Vector norm over ``axis`` (one, several, or None for all): ``sum(|x|^ord)^(1/ord)``.

    ``ord`` may be inf (the largest magnitude), -inf (the smallest) and 0 (how many are nonzero).
    Real for complex ``x``; half types add up in float32. At zero the gradient is zero.

    >>> vector_norm(ruda.asarray([3.0, 4.0])).item()
    5.0
    """
    axes = normalize_axes(axis, x.ndim, "vector_norm")
    if not isinstance(ord, int | float) or math.isnan(ord):
        raise ArgumentError("vector_norm", "the order is not a number", repr(ord), "a real number")
    return _vector_norm(x, axes, bool(keepdims), float(ord))


# The common name.
norm = vector_norm
