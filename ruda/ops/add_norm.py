"""A residual added and the sum normalised, in one pass that returns both.

The norm sees the sum before it is rounded to a half type.
"""

from __future__ import annotations

from typing import Any

from ruda.core.errors import NormalizationDTypeError, NormalizationShapeError
from ruda.core.shapes import normalize_axis
from ruda.ops.cast import astype
from ruda.ops.norm import (
    layer_dtype,
    layer_shape,
    layer_vjp,
    rms_dtype,
    rms_shape,
    rms_vjp,
)
from ruda.ops.reference import rows as reference
from ruda.ops.rowwise import COLUMNS, check_tensors, positive, wide
from ruda.ops.rules import Specs
from ruda.ops.table import TABLE, fused
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_layer_row, _rms_row = TABLE["layer_norm"].call, TABLE["rms_norm"].call


def _summed(op: Any, specs: Specs) -> Specs:
    """The specs that the norm alone sees: those of the sum, which has the spec of ``x``."""
    x, residual, *params = specs
    if x.shape != residual.shape:
        raise NormalizationShapeError(op.name, "residual does not fit", residual.shape, x.shape)
    if x.dtype is not residual.dtype:
        hint = f"residual.astype({str(x.dtype)!r})"
        what = "residual has another dtype"
        raise NormalizationDTypeError(op.name, what, residual.dtype, x.dtype, hint)
    return x, *params


def _shape(norm: Any) -> Any:
    def rule(op: Any, specs: Specs, axis: int, eps: float) -> Any:
        y, *statistics = norm(op, _summed(op, specs), axis, eps)
        return y, y, *statistics

    return rule


def _dtype(norm: Any) -> Any:
    def rule(op: Any, specs: Specs, axis: int, eps: float) -> Any:
        (x, *params), (y, *statistics) = norm(op, _summed(op, specs), axis, eps)
        return (x, x, *params), (y, y, *statistics)

    return rule


def _as(like: RudaTensor, x: RudaTensor) -> RudaTensor:
    return astype(x, like.dtype, copy=False)


def _with(part: Any, dx: Any) -> Any:
    return dx if part is None else part if dx is None else dx + part


def _layer_vjp(g: Any, total: Any, weight: Any, mean: Any, rstd: Any, axis: int) -> Any:
    dx = dw = db = None
    if any(part is not None for part in (g[0], g[2], g[3])):
        dx, dw, db = layer_vjp((g[0], g[2], g[3]), total, weight, mean, rstd, axis)
    dx = _with(g[1], dx)
    return dx, dx, dw, db


def _rms_vjp(g: Any, total: Any, weight: Any, rstd: Any, axis: int) -> Any:
    dx = dw = None
    if g[0] is not None or g[2] is not None:
        dx, dw = rms_vjp((g[0], g[2]), total, weight, rstd, axis)
    dx = _with(g[1], dx)
    return dx, dx, dw


def _layer_reference(x: Any, residual: Any, weight: Any, bias: Any, axis: int, eps: float) -> Any:
    total = x + residual
    y, mean, rstd = reference.layer_norm(total, weight, bias, eps, axis)
    return y, total, mean, rstd


def _rms_reference(x: Any, residual: Any, weight: Any, axis: int, eps: float) -> Any:
    total = x + residual
    y, rstd = reference.rms_norm(total, weight, eps, axis)
    return y, total, rstd


@fused(
    "add_layer_norm",
    "x residual weight bias",
    "axis eps",
    "y total mean rstd",
    shape=_shape(layer_shape),
    dtype=_dtype(layer_dtype),
    numpy=_layer_reference,
    vjp=_layer_vjp,
    optional=("weight", "bias"),
    **COLUMNS,
)
def _add_layer_norm(
    x: RudaTensor, residual: RudaTensor, weight: Any, bias: Any, axis: int, eps: float
) -> Any:
    """``layer_norm`` of ``x + residual``; the sum; and the statistics."""
    total = wide(x) + wide(residual)
    w, b = (None if p is None else wide(p) for p in (weight, bias))
    y, mean, rstd = _layer_row(total, w, b, axis, eps)
    return _as(x, y), _as(x, total), mean, rstd


@fused(
    "add_rms_norm",
    "x residual weight",
    "axis eps",
    "y total rstd",
    shape=_shape(rms_shape),
    dtype=_dtype(rms_dtype),
    numpy=_rms_reference,
    vjp=_rms_vjp,
    optional=("weight",),
    **COLUMNS,
)
def _add_rms_norm(x: RudaTensor, residual: RudaTensor, weight: Any, axis: int, eps: float) -> Any:
    """``rms_norm`` of ``x + residual``; the sum; and the statistic."""
    total = wide(x) + wide(residual)
    y, rstd = _rms_row(total, None if weight is None else wide(weight), axis, eps)
    return _as(x, y), _as(x, total), rstd


@given_tensors
def add_layer_norm(
    x: RudaTensor,
    residual: RudaTensor,
    weight: RudaTensor | None = None,
    bias: RudaTensor | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-5,
) -> tuple[RudaTensor, RudaTensor]:
    """``layer_norm(x + residual, weight, bias)`` and ``x + residual``, in one pass.

    ``residual`` has the shape and dtype of ``x``; the rest as ``layer_norm``.

    >>> y, total = add_layer_norm(ruda.asarray([0.0, 1.0]), ruda.asarray([1.0, 2.0]), eps=1e-9)
    >>> y.tolist(), total.tolist()
    ([-1.0, 1.0], [1.0, 3.0])
    """
    name = "add_layer_norm"
    check_tensors(name, residual=residual, weight=weight, bias=bias)
    place, number = normalize_axis(axis, x.ndim, name), positive(name, "eps", eps)
    y, total, *_ = _add_layer_norm(x, residual, weight, bias, place, number)
    return y, total


@given_tensors
def add_rms_norm(
    x: RudaTensor,
    residual: RudaTensor,
    weight: RudaTensor | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-6,
) -> tuple[RudaTensor, RudaTensor]:
    """``rms_norm(x + residual, weight)`` and ``x + residual``, in one pass.

    ``residual`` has the shape and dtype of ``x``; the rest as ``rms_norm``.
    """
    name = "add_rms_norm"
    check_tensors(name, residual=residual, weight=weight)
    place, number = normalize_axis(axis, x.ndim, name), positive(name, "eps", eps)
    y, total, _ = _add_rms_norm(x, residual, weight, place, number)
    return y, total
