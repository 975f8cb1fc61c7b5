"""Layer and root-mean-square normalization along one axis.

The rows return their statistics beside the result: backward reads them, and since they are outputs
like any other, gradients that reach them are passed on, which makes every order exact.
"""

from __future__ import annotations

from typing import Any

from ruda.core.errors import NormalizationShapeError
from ruda.core.shapes import Shape, normalize_axes, normalize_axis
from ruda.core.spec import is_absent
from ruda.ops.arith import rsqrt
from ruda.ops.cast import astype
from ruda.ops.movement import expand_dims, reshape, squeeze
from ruda.ops.reduce import sum
from ruda.ops.reference import rows as reference
from ruda.ops.rowwise import (
    COLUMNS,
    along,
    autocast_wide,
    check_beside,
    check_parameter,
    check_rows,
    check_tensors,
    own_dtypes,
    positive,
    statistics_dtype,
    wide,
)
from ruda.ops.rules import Specs
from ruda.ops.standard_norm import standard_norm
from ruda.ops.statistics import mean as mean_of
from ruda.ops.table import fused
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _others(x: RudaTensor, axis: int) -> Shape:
    return tuple(i for i in range(x.ndim) if i != axis)


def layer_shape(op: Any, specs: Specs, axis: int, eps: float) -> Any:
    """The shape rule of ``layer_norm``: output and statistics."""
    x, weight, bias = specs
    check_rows(op, x, axis)
    check_parameter(op, (x.shape[axis],), weight=weight, bias=bias)
    rows = _without(x.shape, axis)
    return x.shape, rows, rows


def layer_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    """The dtype rule of ``layer_norm``."""
    x, weight, bias = specs
    check_beside(op, x, weight=weight, bias=bias)
    wide_dtype = statistics_dtype(x)
    return own_dtypes(specs), (x.dtype, wide_dtype, wide_dtype)


def _layer_backward_shape(op: Any, specs: Specs, axis: int) -> Any:
    n = specs[1].shape[axis]
    return specs[1].shape, (n,), (n,)


def _backward_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    # Gradients of parameters stay wide: the engine rounds them once, to the parameter's dtype.
    x, wide_dtype = specs[1], statistics_dtype(specs[1])
    return own_dtypes(specs), (x.dtype, *(wide_dtype for _ in op.outs[1:]))


@fused(
    "layer_norm_backward",
    "dy x weight mean rstd",
    "axis",
    "dx dw db",
    shape=_layer_backward_shape,
    dtype=_backward_dtype,
    numpy=reference.layer_norm_backward,
    optional=("weight",),
    **COLUMNS,
)
def _layer_norm_backward(
    dy: RudaTensor, x: RudaTensor, weight: Any, mean: RudaTensor, rstd: RudaTensor, axis: int
) -> Any:
    """Gradients of ``layer_norm``: of the input, the weight and the bias."""
    g, scale = wide(dy), expand_dims(rstd, axis)
    z = (wide(x) - expand_dims(mean, axis)) * scale
    u = g if weight is None else g * along(wide(weight), axis, x.ndim)
    centred = u - mean_of(u, axis=axis, keepdims=True)
    dx = scale * (centred - z * mean_of(u * z, axis=axis, keepdims=True))
    others = _others(x, axis)
    return astype(dx, x.dtype, copy=False), sum(g * z, axis=others), sum(g, axis=others)


def layer_vjp(g: Any, x: Any, weight: Any, mean: Any, rstd: Any, axis: int) -> Any:
    """Gradients of input, weight and bias from those of output and statistics."""
    dx = dw = db = None
    if g[0] is not None:
        dx, dw, db = _layer_norm_backward(g[0], x, weight, mean, rstd, axis)
    n = x.shape[axis]
    for part in (
        None if g[1] is None else expand_dims(g[1] / n, axis),
        None if g[2] is None else _scale_gradient(g[2], wide(x), mean, rstd, axis),
    ):
        if part is not None:
            dx = part if dx is None else dx + part
    return dx, dw, db


def _scale_gradient(g: Any, x: Any, mean: Any, rstd: Any, axis: int) -> Any:
    """From the gradient of ``rstd = (mean((x - mean)²) + eps) ** -1/2`` to that of ``x``."""
    centred = x if mean is None else x - expand_dims(mean, axis)
    return centred * expand_dims(g * rstd * rstd * rstd / -x.shape[axis], axis)


@fused(
    "layer_norm",
    "x weight bias",
    "axis eps",
    "y mean rstd",
    shape=layer_shape,
    dtype=layer_dtype,
    numpy=lambda x, weight, bias, axis, eps: reference.layer_norm(x, weight, bias, eps, axis),
    vjp=layer_vjp,
    optional=("weight", "bias"),
    **COLUMNS,
)
def _layer_norm(x: RudaTensor, weight: Any, bias: Any, axis: int, eps: float) -> Any:
    """``x`` standardised along ``axis``, scaled and shifted; and its statistics."""
    rows = wide(x)
    mean = mean_of(rows, axis=axis, keepdims=True)
    centred = rows - mean
    rstd = rsqrt(mean_of(centred * centred, axis=axis, keepdims=True) + eps)
    y = centred * rstd
    if weight is not None:
        y = y * along(wide(weight), axis, x.ndim)
    if bias is not None:
        y = y + along(wide(bias), axis, x.ndim)
    return astype(y, x.dtype, copy=False), squeeze(mean, axis), squeeze(rstd, axis)


def rms_shape(op: Any, specs: Specs, axis: int, eps: float) -> Any:
    """The shape rule of ``rms_norm``: output and statistic."""
    x, weight = specs
    check_rows(op, x, axis)
    check_parameter(op, (x.shape[axis],), weight=weight)
    return x.shape, _without(x.shape, axis)


def rms_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    """The dtype rule of ``rms_norm``."""
    check_beside(op, specs[0], weight=specs[1])
    return own_dtypes(specs), (specs[0].dtype, statistics_dtype(specs[0]))


def _rms_backward_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    # Rounded once, to the parameter's dtype, by what adds it up.
    x, weight = specs[1:3]
    dw = statistics_dtype(x) if is_absent(weight) else weight.dtype
    return own_dtypes(specs), (x.dtype, dw)


@fused(
    "rms_norm_backward",
    "dy x weight rstd",
    "axis",
    "dx dw",
    shape=lambda op, specs, axis: (specs[1].shape, (specs[1].shape[axis],)),
    dtype=_rms_backward_dtype,
    numpy=reference.rms_norm_backward,
    optional=("weight",),
    **COLUMNS,
)
def _rms_norm_backward(
    dy: RudaTensor, x: RudaTensor, weight: Any, rstd: RudaTensor, axis: int
) -> Any:
    """Gradients of ``rms_norm``: of the input and the weight."""
    g, scale = wide(dy), expand_dims(rstd, axis)
    z = wide(x) * scale
    u = g if weight is None else g * along(wide(weight), axis, x.ndim)
    dx = scale * (u - z * mean_of(u * z, axis=axis, keepdims=True))
    dw = sum(g * z, axis=_others(x, axis))
    if weight is not None:
        dw = astype(dw, weight.dtype, copy=False)
    return astype(dx, x.dtype, copy=False), dw


def rms_vjp(g: Any, x: Any, weight: Any, rstd: Any, axis: int) -> Any:
    """Gradients of input and weight from those of output and statistic."""
    dx = dw = None
    if g[0] is not None:
        dx, dw = _rms_norm_backward(g[0], x, weight, rstd, axis)
    if g[1] is not None:
        part = _scale_gradient(g[1], wide(x), None, rstd, axis)
        dx = part if dx is None else dx + part
    return dx, dw


@fused(
    "rms_norm",
    "x weight",
    "axis eps",
    "y rstd",
    shape=rms_shape,
    dtype=rms_dtype,
    numpy=lambda x, weight, axis, eps: reference.rms_norm(x, weight, eps, axis),
    vjp=rms_vjp,
    optional=("weight",),
    **COLUMNS,
)
def _rms_norm(x: RudaTensor, weight: Any, axis: int, eps: float) -> Any:
    """``x`` over its root mean square along ``axis``, scaled; and the reciprocal of the latter."""
    rows = wide(x)
    rstd = rsqrt(mean_of(rows * rows, axis=axis, keepdims=True) + eps)
    y = rows * rstd
    if weight is not None:
        y = y * along(wide(weight), axis, x.ndim)
    return astype(y, x.dtype, copy=False), squeeze(rstd, axis)


@given_tensors
def layer_norm(
    x: RudaTensor,
    weight: RudaTensor | None = None,
    bias: RudaTensor | None = None,
    *,
    axis: Any = -1,
    eps: float = 1e-5,
) -> RudaTensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` along ``axis``; shape and dtype stay.

    Real floating dtypes; statistics and arithmetic are float32 for half types, beside which
    ``weight`` and ``bias`` may stay float32. They have the length of the axis; with several axes
    their lengths in order. Ba et al., "Layer Normalization", 2016.

    Raises ``NormalizationShapeError``, ``NormalizationDTypeError`` or
    ``NormalizationArgumentError``, all of them ``NormalizationError``.

    >>> layer_norm(ruda.asarray([1.0, 3.0]), eps=1e-9).tolist()
    [-1.0, 1.0]
    """
    check_tensors("layer_norm", weight=weight, bias=bias)
    number = positive("layer_norm", "eps", eps)
    if isinstance(axis, tuple | list):
        return _over_axes("layer_norm", x, weight, bias, axis, number)
    return _layer_norm(x, weight, bias, normalize_axis(axis, x.ndim, "layer_norm"), number)[0]


def _over_axes(
    name: str, x: RudaTensor, weight: Any, bias: Any, axis: Any, eps: float
) -> RudaTensor:
    axes = normalize_axes(axis, x.ndim, name)
    shape = tuple(n for i, n in enumerate(x.shape) if i in axes)
    placed = tuple(n if i in axes else 1 for i, n in enumerate(x.shape))
    for param, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != shape:
            raise NormalizationShapeError(name, f"{param} does not fit", value.shape, shape)
    w, b = (None if p is None else reshape(p, placed) for p in (weight, bias))
    return standard_norm(autocast_wide(x), w, b, axes, eps)[0]


@given_tensors
def rms_norm(
    x: RudaTensor, weight: RudaTensor | None = None, *, axis: int = -1, eps: float = 1e-6
) -> RudaTensor:
    """``x / sqrt(mean(x²) + eps) * weight`` along ``axis``; dtypes and errors as ``layer_norm``.

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    >>> rms_norm(ruda.asarray([3.0, 4.0])).tolist()
    [0.848..., 1.131...]
    """
    check_tensors("rms_norm", weight=weight)
    number = positive("rms_norm", "eps", eps)
    return _rms_norm(x, weight, normalize_axis(axis, x.ndim, "rms_norm"), number)[0]
