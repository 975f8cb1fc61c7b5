"""Softmax and its logarithm along one axis."""

from __future__ import annotations

from typing import Any

from ruda.core.shapes import Shape, normalize_axis
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.cast import astype
from ruda.ops.explog import exp, log
from ruda.ops.reduce import max, sum
from ruda.ops.reference import rows as reference
from ruda.ops.rowwise import COLUMNS, check_rows, wide
from ruda.ops.table import composite, fused
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _shape(op: Any, specs: tuple[Spec, ...], axis: int) -> Shape:
    check_rows(op, specs[0], axis)
    return specs[0].shape


_COLUMNS: dict[str, Any] = {
    "shape": _shape,
    "dtype": rules.promote,
    **COLUMNS,
}


@fused("softmax_backward", "dy y", "axis", numpy=reference.softmax_backward, **_COLUMNS)
def _softmax_backward(dy: RudaTensor, y: RudaTensor, axis: int) -> RudaTensor:
    """Gradient of ``softmax`` from its output: ``y * (dy - sum(dy * y))``."""
    g, p = wide(dy), wide(y)
    return astype(p * (g - sum(g * p, axis=axis, keepdims=True)), y.dtype, copy=False)


@fused(
    "softmax",
    "x",
    "axis",
    numpy=reference.softmax,
    vjp=(lambda g, out, axis: _softmax_backward(g, out, axis),),
    **_COLUMNS,
)
def _softmax(x: RudaTensor, axis: int) -> RudaTensor:
    """``exp(x)`` normalised to a sum of 1 along ``axis``."""
    rows = wide(x)
    e = exp(rows - max(rows, axis=axis, keepdims=True))
    return astype(e / sum(e, axis=axis, keepdims=True), x.dtype, copy=False)


@fused("log_softmax_backward", "dy y", "axis", numpy=reference.log_softmax_backward, **_COLUMNS)
def _log_softmax_backward(dy: RudaTensor, y: RudaTensor, axis: int) -> RudaTensor:
    """Gradient of ``log_softmax`` from its output: ``dy - exp(y) * sum(dy)``."""
    g = wide(dy)
    dx = g - exp(wide(y)) * sum(g, axis=axis, keepdims=True)
    return astype(dx, y.dtype, copy=False)


@fused(
    "log_softmax",
    "x",
    "axis",
    numpy=reference.log_softmax,
    vjp=(lambda g, out, axis: _log_softmax_backward(g, out, axis),),
    **_COLUMNS,
)
def _log_softmax(x: RudaTensor, axis: int) -> RudaTensor:
    """``x`` less the logarithm of the sum of ``exp(x)`` along ``axis``."""
    rows = wide(x)
    low = rows - max(rows, axis=axis, keepdims=True)
    return astype(low - log(sum(exp(low), axis=axis, keepdims=True)), x.dtype, copy=False)


@given_tensors
def softmax(x: RudaTensor, axis: int = -1) -> RudaTensor:
    """``exp(x)`` normalised to a sum of 1 along ``axis``; shape and dtype stay.

    Real floating dtypes; half types are computed in float32. A row with NaN, +inf or nothing but
    -inf becomes NaN. Raises ``NormalizationShapeError`` for an empty axis,
    ``NormalizationDTypeError`` for other dtypes.

    >>> softmax(ruda.asarray([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    return _softmax(x, normalize_axis(axis, x.ndim, "softmax"))


@given_tensors
def log_softmax(x: RudaTensor, axis: int = -1) -> RudaTensor:
    """``log(softmax(x, axis))`` without its loss of small values; see ``softmax``.

    >>> log_softmax(ruda.asarray([0.0, 1000.0])).tolist()
    [-1000.0, 0.0]
    """
    return _log_softmax(x, normalize_axis(axis, x.ndim, "log_softmax"))


@composite
def softmin(x: RudaTensor, axis: int = -1) -> RudaTensor:
    """``softmax(-x, axis)``: the smallest value weighs most; see ``softmax``."""
    return softmax(-x, axis)
