"""The rows of convolution: forward, data backward and weight backward, in both layouts.

They are one trilinear form seen from its three sides, so their vjps need nothing but each other, to
any order. Layout "nhwc" means channels last on every operand: x [N, *S, C], w [O, *K, C / groups].
"""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import INEXACT
from ruda.core.errors import (
    ArgumentError,
    ConvDTypeError,
    ConvSetupError,
    ConvShapeError,
    StrategyError,
)
from ruda.core.shapes import Shape
from ruda.ops.complexes import conj
from ruda.ops.reference import convolve as reference
from ruda.ops.reference.conv import conv_output_shape
from ruda.ops.rules import Specs
from ruda.ops.table import row
from ruda.ops.windows import Pairs

LAYOUTS = ("nchw", "nhwc")
STRATEGIES = ("direct", "implicit_gemm", "vendor", "auto")


class ConvArgumentError(ConvSetupError, ArgumentError):
    """A stride, padding, dilation, layout or number of groups that no convolution has."""


class ConvStrategyError(ConvSetupError, StrategyError):
    """A requested strategy that cannot run on the device."""


def first(shape: Shape, layout: str) -> Shape:
    """A shape in ``layout`` with its channels first."""
    return shape if layout == "nchw" else (shape[0], shape[-1], *shape[1:-1])


def _one_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    a, b = specs[0].dtype, specs[1].dtype
    if a is not b:
        one, other = op.args
        hint = f"{other}.astype({str(a)!r})"
        raise ConvDTypeError(op.name, f"{one} and {other} differ", f"{a} and {b}", a, hint)
    return a, a


def _check(name: str, x: Shape, w: Shape, groups: int) -> None:
    """Ranks and channels of an input ``[N, C, *S]`` and a weight ``[O, C / groups, *K]``."""
    if x[1] % groups or w[0] % groups:
        expected = f"both divisible by groups={groups}"
        raise ConvShapeError(name, "channels do not divide", f"{x[1]} in and {w[0]} out", expected)
    if w[1] * groups != x[1]:
        got = f"input {x}, weight {w}, groups={groups}"
        expected = f"an input of {w[1] * groups} channels, or a weight [O, {x[1] // groups}, *K]"
        raise ConvShapeError(name, "input channels do not fit the weight", got, expected)


def _window_shape(
    op: Any,
    specs: Specs,
    x: Shape,
    w: Shape,
    stride: Shape,
    padding: Pairs,
    dilation: Shape,
    groups: int,
    layout: str,
    strategy: str,
) -> Shape:
    """The shape of the output, in ``layout`` as ``x`` and ``w``."""
    reason = specs[0].client.lack("conv", strategy, specs, ())
    if reason is not None:
        raise ConvStrategyError(op.name, reason, repr(strategy), hint='strategy="auto"')
    if len(x) != len(w) or not 3 <= len(x) <= 5:
        expected = "input [N, C, *S] and weight [O, C / groups, *K] with 1 to 3 spatial axes"
        raise ConvShapeError(op.name, "ranks do not fit", f"{x} and {w}", expected)
    x, w = first(x, layout), first(w, layout)
    _check(op.name, x, w, groups)
    out = conv_output_shape(x, w, stride, padding, dilation)
    if any(n < 1 for n in out[2:]) or 0 in w[2:]:
        got = f"input {x}, weight {w}, padding {padding}, dilation {dilation}"
        raise ConvShapeError(op.name, "no window fits the padded input", got, hint="more padding")
    return out if layout == "nchw" else (out[0], *out[2:], out[1])


def _conv_shape(op: Any, specs: Specs, *attrs: Any) -> Shape:
    return _window_shape(op, specs, specs[0].shape, specs[1].shape, *attrs)


def _data_shape(op: Any, specs: Specs, x_shape: Shape, *attrs: Any) -> Shape:
    _check_gradient(op, specs[0].shape, _window_shape(op, specs, x_shape, specs[1].shape, *attrs))
    return x_shape


def _weight_shape(op: Any, specs: Specs, w_shape: Shape, *attrs: Any) -> Shape:
    _check_gradient(op, specs[0].shape, _window_shape(op, specs, specs[1].shape, w_shape, *attrs))
    return w_shape


def _check_gradient(op: Any, got: Shape, expected: Shape) -> None:
    if got != expected:
        raise ConvShapeError(op.name, "the gradient does not fit the output", got, expected)


conv = row(
    "library",
    "conv",
    "x w",
    "stride padding dilation groups layout strategy",
    shape=_conv_shape,
    dtype=_one_dtype,
    numpy=reference.forward,
    vjp=(
        lambda g, w, x_spec, stride, padding, dilation, groups, layout, strategy: data_backward(
            g, conj(w), x_spec.shape, stride, padding, dilation, groups, layout, strategy
        ),
        lambda g, x, w_spec, stride, padding, dilation, groups, layout, strategy: weight_backward(
            g, conj(x), w_spec.shape, stride, padding, dilation, groups, layout, strategy
        ),
    ),
    accepts=INEXACT,
    dtype_error=ConvDTypeError,
    cast="low",
    bound="compute",
    doc="Correlate ``x [N, C, *S]`` with ``w [O, C / groups, *K]``; channels last for nhwc.",
)
data_backward = row(
    "library",
    "conv_data_backward",
    "dy w",
    "x_shape stride padding dilation groups layout strategy",
    shape=_data_shape,
    dtype=_one_dtype,
    numpy=reference.data_backward,
    vjp=(
        lambda g, w, stride, padding, dilation, groups, layout, strategy: conv(
            g, conj(w), stride, padding, dilation, groups, layout, strategy
        ),
        lambda g, dy, w_spec, stride, padding, dilation, groups, layout, strategy: weight_backward(
            conj(dy), g, w_spec.shape, stride, padding, dilation, groups, layout, strategy
        ),
    ),
    accepts=INEXACT,
    dtype_error=ConvDTypeError,
    cast="low",
    bound="compute",
    doc="Transpose of ``conv`` in its input: ``dy [N, O, *windows]`` to ``x_shape``.",
)
weight_backward = row(
    "library",
    "conv_weight_backward",
    "dy x",
    "w_shape stride padding dilation groups layout strategy",
    shape=_weight_shape,
    dtype=_one_dtype,
    numpy=reference.weight_backward,
    vjp=(
        lambda g, x, stride, padding, dilation, groups, layout, strategy: conv(
            conj(x), g, stride, padding, dilation, groups, layout, strategy
        ),
        lambda g, dy, x_spec, stride, padding, dilation, groups, layout, strategy: data_backward(
            conj(dy), g, x_spec.shape, stride, padding, dilation, groups, layout, strategy
        ),
    ),
    accepts=INEXACT,
    dtype_error=ConvDTypeError,
    cast="low",
    bound="compute",
    doc="Transpose of ``conv`` in its kernels: ``dy``, ``x`` to ``w_shape``.",
)
