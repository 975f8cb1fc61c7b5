"""Batch, instance and group normalization: one row, standardising over any set of axes."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import NormalizationShapeError
from ruda.core.mode import no_grad
from ruda.core.shapes import Shape, broadcast_shapes, index
from ruda.core.spec import Spec, is_absent
from ruda.ops.activation import relu_backward
from ruda.ops.arith import rsqrt
from ruda.ops.cast import astype
from ruda.ops.movement import reshape
from ruda.ops.moving_statistics import move
from ruda.ops.reduce import unbroadcast
from ruda.ops.reference import standard as reference
from ruda.ops.rowwise import (
    COLUMNS,
    NUMBER_ERRORS,
    NormalizationArgumentError,
    autocast_wide,
    check_beside,
    check_rows,
    check_tensors,
    own_dtypes,
    positive,
    statistics_dtype,
    wide,
)
from ruda.ops.rules import Specs
from ruda.ops.scalars import real_number
from ruda.ops.statistics import mean as mean_of
from ruda.ops.table import composite, fused
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

# Autocast leaves half types as they are: between convolutions they are half of the traffic, and
# statistics and arithmetic are float32 anyway.
_COLUMNS = {**COLUMNS, "cast": None}


def _kept(shape: Shape, axes: Shape) -> Shape:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _shape(op: Any, specs: Specs, axes: Shape, eps: float) -> Any:
    x, *params = specs
    check_rows(op, x, *axes)
    for spec in params:
        if not is_absent(spec) and broadcast_shapes(op.name, spec.shape, x.shape) != x.shape:
            raise NormalizationShapeError(op.name, "a parameter does not fit", spec.shape, x.shape)
    return x.shape, _kept(x.shape, axes), _kept(x.shape, axes)


def _dtype(op: Any, specs: Specs, *_: Any) -> Any:
    x, weight, bias = specs
    check_beside(op, x, weight=weight, bias=bias)
    return own_dtypes(specs), (x.dtype, statistics_dtype(x), statistics_dtype(x))


def _backward_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    x = specs[1]
    return own_dtypes(specs), (x.dtype, statistics_dtype(x), statistics_dtype(x))


@fused(
    "standard_norm_backward",
    "dy x weight mean var",
    "axes eps affine",
    "dx dw db",
    shape=lambda op, specs, axes, eps, affine: (specs[1].shape, affine, affine),
    dtype=_backward_dtype,
    numpy=reference.standard_norm_backward,
    optional=("weight",),
    **_COLUMNS,
)
def _standard_norm_backward(
    dy: RudaTensor,
    x: RudaTensor,
    weight: Any,
    mean: RudaTensor,
    var: RudaTensor,
    axes: Shape,
    eps: float,
    affine: Shape,
) -> Any:
    """Gradients of ``standard_norm``: of the input, and of weight and bias of shape ``affine``."""
    g, rstd = wide(dy), rsqrt(wide(var) + eps)
    z = (wide(x) - mean) * rstd
    u = g if weight is None else g * wide(weight)
    centred = u - mean_of(u, axis=axes, keepdims=True)
    dx = rstd * (centred - z * mean_of(u * z, axis=axes, keepdims=True))
    return astype(dx, x.dtype, copy=False), unbroadcast(g * z, affine), unbroadcast(g, affine)


@fused(
    "standard_norm_relu_backward",
    "dy x weight bias mean var",
    "axes eps affine",
    "dx dw db",
    shape=lambda op, specs, axes, eps, affine: (specs[1].shape, affine, affine),
    dtype=_backward_dtype,
    numpy=reference.standard_norm_relu_backward,
    optional=("weight", "bias"),
    **_COLUMNS,
)
def _standard_norm_relu_backward(
    dy: RudaTensor,
    x: RudaTensor,
    weight: Any,
    bias: Any,
    mean: RudaTensor,
    var: RudaTensor,
    axes: Shape,
    eps: float,
    affine: Shape,
) -> Any:
    """Gradients of ``relu(standard_norm(x, weight, bias))``, by its input alone."""
    y = (wide(x) - mean) * rsqrt(wide(var) + eps)
    if weight is not None:
        y = y * wide(weight)
    if bias is not None:
        y = y + wide(bias)
    g = relu_backward(dy, astype(y, x.dtype, copy=False))
    return _standard_norm_backward(g, x, weight, mean, var, axes, eps, affine)


def _vjp(
    g: Any, x: Any, weight: Any, bias_spec: Spec, mean: Any, var: Any, axes: Shape, eps: float
) -> Any:
    dx = dw = db = None
    if g[0] is not None:
        # Without parameters nobody takes their gradients: sums as they come cheapest.
        affine = mean.shape if is_absent(bias_spec) else bias_spec.shape
        affine = affine if weight is None else weight.shape
        dx, dw, db = _standard_norm_backward(g[0], x, weight, mean, var, axes, eps, affine)
    count = x.size // mean.size if mean.size else 1
    for part in (
        None if g[1] is None else g[1] / count,
        None if g[2] is None else (wide(x) - mean) * (g[2] * (2 / count)),
    ):
        if part is not None:
            dx = part if dx is None else dx + part
    return dx, dw, db


@fused(
    "standard_norm",
    "x weight bias",
    "axes eps",
    "y mean var",
    shape=_shape,
    dtype=_dtype,
    numpy=reference.standard_norm,
    vjp=_vjp,
    optional=("weight", "bias"),
    **_COLUMNS,
)
def standard_norm(x: RudaTensor, weight: Any, bias: Any, axes: Shape, eps: float) -> Any:
    """``x`` standardised over ``axes``, scaled and shifted; and its mean and biased variance."""
    rows = wide(x)
    mean = mean_of(rows, axis=axes, keepdims=True)
    centred = rows - mean
    var = mean_of(centred * centred, axis=axes, keepdims=True)
    y = centred * rsqrt(var + eps)
    if weight is not None:
        y = y * wide(weight)
    if bias is not None:
        y = y + wide(bias)
    return astype(y, x.dtype, copy=False), mean, var


def _channels(name: str, x: RudaTensor, least: int, axis: int = 1, **params: Any) -> list[Any]:
    """Each parameter ``[C]`` in a shape that broadcasts along ``axis``, None as it is."""
    check_tensors(name, **params)
    if x.ndim < least:
        axes = "[N, C, *S]" if least == 2 else "[N, C, *S] with a spatial axis"
        raise NormalizationShapeError(name, "too few axes", x.shape, axes)
    out = []
    for param, value in params.items():
        if value is not None and value.shape != (x.shape[axis],):
            got, expected = value.shape, (x.shape[axis],)
            raise NormalizationShapeError(name, f"{param} does not fit the channels", got, expected)
        placed = (-1,) + (1,) * (x.ndim - 1 - axis)
        # In the last place it broadcasts as it is.
        out.append(value if value is None or len(placed) == 1 else reshape(value, placed))
    return out


@composite
@given_tensors
def batch_norm(
    input: RudaTensor,
    running_mean: RudaTensor | None = None,
    running_var: RudaTensor | None = None,
    weight: RudaTensor | None = None,
    bias: RudaTensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
    *,
    layout: str = "nchw",
) -> RudaTensor:
    """Standardise ``input [N, C, *S]`` per channel, then scale and shift by ``weight``, ``bias``.

    While ``training`` by the statistics of the batch, which also move the running ones in place:
    ``running += momentum * (batch - running)``, with the unbiased variance; a momentum that is a
    0-d tensor may change from step to step. Otherwise by the running statistics. All parameters are
    ``[C]``; dtypes as ``layer_norm``, and the result of a half type is one also under
    ``autocast``. With ``layout="nhwc"`` the channels are the last axis. Ioffe and Szegedy, "Batch
    Normalization", 2015.

    Raises ``NormalizationShapeError`` also for a batch with one value per channel.
    """
    name, number = "batch_norm", positive("batch_norm", "eps", eps)
    axis = _axis_of(name, input, layout)
    running = {"running_mean": running_mean, "running_var": running_var}
    mean, var, w, b = _channels(name, input, 2, axis, **running, weight=weight, bias=bias)
    if not training:
        if mean is None or var is None:
            hint = "training=True"
            raise NormalizationArgumentError(name, "needs running statistics", hint=hint)
        return _by_running(input, mean, var, w, b, number)
    y, batch_mean, batch_var, count = _by_batch(name, input, w, b, axis, number)
    _move(name, running_mean, batch_mean, momentum)
    _move(name, running_var, batch_var, momentum, count / (count - 1))
    return y


def counted_batch_norm(
    input: RudaTensor,
    running: tuple[RudaTensor, RudaTensor, RudaTensor],
    weight: RudaTensor | None,
    bias: RudaTensor | None,
    momentum: float | None,
    eps: float,
    layout: str,
) -> RudaTensor:
    """``batch_norm`` while training, which moves running mean, variance and count of batches.

    Without a momentum all batches weigh the same.
    """
    name, number = "batch_norm", positive("batch_norm", "eps", eps)
    axis = _axis_of(name, input, layout)
    w, b = _channels(name, input, 2, axis, weight=weight, bias=bias)
    share = None if momentum is None else _share(name, momentum)
    y, mean, var, count = _by_batch(name, input, w, b, axis, number)
    with no_grad():
        move(running, (mean, var), count, share)
    return y


def _axis_of(name: str, x: RudaTensor, layout: str) -> int:
    """The axis of channels."""
    if layout not in ("nchw", "nhwc"):
        raise NormalizationArgumentError(name, "unknown layout", repr(layout), "nchw or nhwc")
    return 1 if layout == "nchw" else max(x.ndim - 1, 0)


def _by_batch(name: str, x: RudaTensor, weight: Any, bias: Any, axis: int, eps: float) -> Any:
    """``x`` by its own statistics, these, and how many values each of them is made of."""
    count = x.size // max(1, x.shape[axis])
    if count < 2:
        expected = "more than one value per channel while training"
        raise NormalizationShapeError(name, "no variance", x.shape, expected)
    axes = tuple(i for i in range(x.ndim) if i != axis)
    return *standard_norm(x, weight, bias, axes, eps), count


def _by_running(
    x: RudaTensor, mean: RudaTensor, var: RudaTensor, weight: Any, bias: Any, eps: float
) -> RudaTensor:
    scale = rsqrt(wide(var) + eps)
    if weight is not None:
        scale = scale * wide(weight)
    y = (wide(x) - wide(mean)) * scale
    if bias is not None:
        y = y + wide(bias)
    return astype(y, x.dtype, copy=False)


def _share(name: str, momentum: Any) -> Any:
    return real_number(name, "momentum", momentum, 0, 1, errors=NUMBER_ERRORS)


def _move(name: str, running: Any, batch: RudaTensor, momentum: Any, factor: float = 1.0) -> None:
    """``running += momentum * (factor * batch - running)`` in place, off the tape."""
    if running is None:
        return
    if momentum.__class__ is not RudaTensor:
        momentum = _share(name, momentum)
    with no_grad():
        found = reshape(batch, running.shape) * (factor * momentum)
        running.assign(astype(running * (1 - momentum) + found, running.dtype, copy=False))


@composite
@given_tensors
def instance_norm(
    input: RudaTensor,
    running_mean: RudaTensor | None = None,
    running_var: RudaTensor | None = None,
    weight: RudaTensor | None = None,
    bias: RudaTensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> RudaTensor:
    """``batch_norm`` with statistics of each sample: of ``input [N, C, *S]`` over ``S``.

    Running statistics move by the average over the batch. Ulyanov et al., "Instance
    Normalization", 2016.
    """
    name, number = "instance_norm", positive("instance_norm", "eps", eps)
    mean, var, w, b = _channels(
        name, input, 3, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    if not use_input_stats:
        if mean is None or var is None:
            hint = "use_input_stats=True"
            raise NormalizationArgumentError(name, "needs running statistics", hint=hint)
        return _by_running(input, mean, var, w, b, number)
    count = input.size // max(1, input.shape[0] * input.shape[1])
    if count == 1:
        expected = "more than one spatial element"
        raise NormalizationShapeError(name, "no variance", input.shape, expected)
    y, own_mean, own_var = standard_norm(input, w, b, tuple(range(2, input.ndim)), number)
    _move(name, running_mean, mean_of(own_mean, axis=0), momentum)
    _move(name, running_var, mean_of(own_var, axis=0), momentum, count / max(1, count - 1))
    return y


@composite
def group_norm(
    input: RudaTensor,
    num_groups: int,
    weight: RudaTensor | None = None,
    bias: RudaTensor | None = None,
    eps: float = 1e-5,
) -> RudaTensor:
    """Standardise ``input [N, C, *S]`` over groups of channels; ``weight``, ``bias [C]`` as usual.

    Dtypes and errors as ``layer_norm``. Wu and He, "Group Normalization", 2018.

    >>> group_norm(ruda.asarray([[[1.0, 3.0], [10.0, 30.0]]]), 2).shape
    (1, 2, 2)
    """
    name, groups = "group_norm", index(num_groups, "group_norm", "num_groups")
    number = positive(name, "eps", eps)
    _channels(name, input, 2, weight=weight, bias=bias)
    input = autocast_wide(input)
    if groups < 1 or input.shape[1] % groups:
        expected = f"a divisor of {input.shape[1]} channels"
        raise NormalizationArgumentError(name, "num_groups does not fit", groups, expected)
    split = (input.shape[0], groups, input.shape[1] // groups, *input.shape[2:])
    inner = (1, *split[1:3], *(1 for _ in split[3:]))
    w, b = (None if p is None else reshape(p, inner) for p in (weight, bias))
    y = standard_norm(reshape(input, split), w, b, tuple(range(2, len(split))), number)[0]
    return reshape(y, input.shape)
