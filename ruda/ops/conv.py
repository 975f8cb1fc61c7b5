"""Convolution in one to three dimensions and its two transposes, each the gradient of the others.

Convolution, data backward and weight backward are one trilinear form seen from its three sides, so
their vjps need nothing but each other, to any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.core.dtypes import INEXACT
from ruda.core.errors import ArgumentError, ConvDTypeError, ConvSetupError, ConvShapeError
from ruda.core.shapes import Shape, index, normalize_shape
from ruda.core.spec import Spec
from ruda.ops.cast import astype
from ruda.ops.complexes import conj
from ruda.ops.movement import expand_dims, reshape, squeeze
from ruda.ops.reference import conv as reference
from ruda.ops.table import row
from ruda.ops.windows import Pairs, padding_pairs, per_axis
from ruda.tensor.tensor import RudaTensor

Specs = tuple[Spec, ...]


class ConvArgumentError(ConvSetupError, ArgumentError):
    """A stride, padding, dilation or number of groups that no convolution has."""


def _one_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    a, b = specs[0].dtype, specs[1].dtype
    if a is not b:
        first, second = op.args
        hint = f"{second}.astype({str(a)!r})"
        raise ConvDTypeError(op.name, f"{first} and {second} differ", f"{a} and {b}", a, hint)
    return a, a


def _check(name: str, x: Shape, w: Shape, groups: int) -> None:
    """Ranks and channels of an input ``[N, C, *S]`` and a weight ``[O, C / groups, *K]``."""
    if len(x) != len(w) or not 3 <= len(x) <= 5:
        expected = "input [N, C, *S] and weight [O, C / groups, *K] with 1 to 3 spatial axes"
        raise ConvShapeError(name, "ranks do not fit", f"{x} and {w}", expected)
    if x[1] % groups or w[0] % groups:
        expected = f"both divisible by groups={groups}"
        raise ConvShapeError(name, "channels do not divide", f"{x[1]} in and {w[0]} out", expected)
    if w[1] * groups != x[1]:
        got = f"input {x}, weight {w}, groups={groups}"
        expected = f"a weight [O, {x[1] // groups}, *K]"
        raise ConvShapeError(name, "input channels do not fit the weight", got, expected)


def _window_shape(
    name: str, x: Shape, w: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> Shape:
    _check(name, x, w, groups)
    out = reference.conv_output_shape(x, w, stride, padding, dilation)
    if any(n < 1 for n in out[2:]) or 0 in w[2:]:
        got = f"input {x}, weight {w}, padding {padding}, dilation {dilation}"
        raise ConvShapeError(name, "no window fits the padded input", got, hint="more padding")
    return out


def _conv_shape(op: Any, specs: Specs, *attrs: Any) -> Shape:
    return _window_shape(op.name, specs[0].shape, specs[1].shape, *attrs)


def _data_shape(op: Any, specs: Specs, x_shape: Shape, *attrs: Any) -> Shape:
    _check_gradient(op, specs[0].shape, _window_shape(op.name, x_shape, specs[1].shape, *attrs))
    return x_shape


def _weight_shape(op: Any, specs: Specs, w_shape: Shape, *attrs: Any) -> Shape:
    _check_gradient(op, specs[0].shape, _window_shape(op.name, specs[1].shape, w_shape, *attrs))
    return w_shape


def _check_gradient(op: Any, got: Shape, expected: Shape) -> None:
    if got != expected:
        raise ConvShapeError(op.name, "the gradient does not fit the output", got, expected)


_conv = row(
    "library",
    "conv",
    "x w",
    "stride padding dilation groups",
    shape=_conv_shape,
    dtype=_one_dtype,
    numpy=reference.conv_forward,
    vjp=(
        lambda g, w, x_spec, stride, padding, dilation, groups: _data_backward(
            g, conj(w), x_spec.shape, stride, padding, dilation, groups
        ),
        lambda g, x, w_spec, stride, padding, dilation, groups: _weight_backward(
            g, conj(x), w_spec.shape, stride, padding, dilation, groups
        ),
    ),
    accepts=INEXACT,
    dtype_error=ConvDTypeError,
    cast="low",
    bound="compute",
    doc="Correlate ``x [N, C, *S]`` with the kernels ``w [O, C / groups, *K]``.",
)
_data_backward = row(
    "library",
    "conv_data_backward",
    "dy w",
    "x_shape stride padding dilation groups",
    shape=_data_shape,
    dtype=_one_dtype,
    numpy=reference.conv_data_backward,
    vjp=(
        lambda g, w, stride, padding, dilation, groups: _conv(
            g, conj(w), stride, padding, dilation, groups
        ),
        lambda g, dy, w_spec, stride, padding, dilation, groups: _weight_backward(
            conj(dy), g, w_spec.shape, stride, padding, dilation, groups
        ),
    ),
    accepts=INEXACT,
    dtype_error=ConvDTypeError,
    cast="low",
    bound="compute",
    doc="Transpose of ``conv`` in its input: ``dy [N, O, *windows]`` to ``x_shape``.",
)
_weight_backward = row(
    "library",
    "conv_weight_backward",
    "dy x",
    "w_shape stride padding dilation groups",
    shape=_weight_shape,
    dtype=_one_dtype,
    numpy=reference.conv_weight_backward,
    vjp=(
        lambda g, x, stride, padding, dilation, groups: _conv(
            conj(x), g, stride, padding, dilation, groups
        ),
        lambda g, dy, x_spec, stride, padding, dilation, groups: _data_backward(
            conj(dy), g, x_spec.shape, stride, padding, dilation, groups
        ),
    ),
    accepts=INEXACT,
    dtype_error=ConvDTypeError,
    cast="low",
    bound="compute",
    doc="Transpose of ``conv`` in its kernels: ``dy``, ``x`` to ``w_shape``.",
)


def conv1d(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> RudaTensor:
    """Correlate ``input [N, C, L]`` with ``weight [O, C / groups, K]``: ``[N, O, windows]``.

    See ``conv2d`` for the arguments.

    >>> conv1d(ruda.ones((1, 1, 5)), ruda.ones((1, 1, 3)), padding="same").tolist()
    [[[2.0, 3.0, 3.0, 3.0, 2.0]]]
    """
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> RudaTensor:
    """Correlate ``input [N, C, H, W]`` with ``weight [O, C / groups, KH, KW]``.

    The result is ``[N, O, *windows]``; without the batch axis of ``input`` it has none either.
    ``bias [O]`` is added per channel. ``stride`` and ``dilation`` are integers or one per axis;
    ``padding`` is that, or a pair (low, high) per axis, or ``"valid"`` (none), or ``"same"``
    (as many windows as elements, unit stride only). One float or complex dtype.

    Raises ``ConvShapeError``, ``ConvDTypeError`` or ``ConvArgumentError``, all of them
    ``ConvSetupError``.

    >>> conv2d(ruda.ones((1, 1, 3, 3)), ruda.ones((2, 1, 2, 2))).shape
    (1, 2, 2, 2)
    """
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> RudaTensor:
    """Correlate ``input [N, C, D, H, W]`` with ``weight [O, C / groups, KD, KH, KW]``.

    See ``conv2d`` for the arguments.
    """
    return _convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _convolve(
    name: str,
    rank: int,
    x: RudaTensor,
    w: RudaTensor,
    bias: RudaTensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> RudaTensor:
    if w.ndim != rank + 2 or x.ndim not in (rank + 1, rank + 2):
        expected = f"{rank} spatial axes: input [N, C, *S] or [C, *S], weight [O, C / groups, *K]"
        raise ConvShapeError(name, "ranks do not fit", f"{x.shape} and {w.shape}", expected)
    attrs = _settings(name, rank, w.shape[2:], stride, padding, dilation, groups)
    _check_bias(name, bias, w)
    batched = x if x.ndim == rank + 2 else expand_dims(x, 0)
    out: RudaTensor = _conv(batched, w, *attrs)
    if bias is not None:
        # Only autocast makes the dtypes differ here.
        out = out + reshape(astype(bias, out.dtype, copy=False), (-1,) + (1,) * rank)
    return out if batched is x else squeeze(out, 0)


def _check_bias(name: str, bias: RudaTensor | None, w: RudaTensor) -> None:
    if bias is None:
        return
    if bias.shape != w.shape[:1]:
        raise ConvShapeError(name, "bias does not fit the weight", bias.shape, w.shape[:1])
    if bias.dtype is not w.dtype:
        hint = f"bias.astype({str(w.dtype)!r})"
        raise ConvDTypeError(name, "bias has another dtype", bias.dtype, w.dtype, hint)


def _settings(
    name: str, rank: int, kernel: Shape, stride: Any, padding: Any, dilation: Any, groups: Any
) -> tuple[Shape, Pairs, Shape, int]:
    steps = per_axis(stride, rank, name, "stride", error=ConvArgumentError)
    spread = per_axis(dilation, rank, name, "dilation", error=ConvArgumentError)
    count = index(groups, name, "groups")
    if count < 1:
        raise ConvArgumentError(name, "groups is too small", groups, "at least 1")
    if not isinstance(padding, str):
        pairs = padding_pairs(padding, rank, name, ConvArgumentError)
    else:
        pairs = _named_padding(name, padding, kernel, steps, spread)
    return steps, pairs, spread, count


def _named_padding(name: str, padding: str, kernel: Shape, stride: Shape, dilation: Shape) -> Pairs:
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding != "same":
        expected = '"same", "valid", integers or pairs'
        raise ConvArgumentError(name, "unknown padding", repr(padding), expected)
    if any(s != 1 for s in stride):
        hint = "padding as integers"
        raise ConvArgumentError(name, '"same" needs a stride of 1', stride, hint=hint)
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)


def conv_data_backward(
    g: RudaTensor,
    weight: RudaTensor,
    input_shape: Sequence[int],
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> RudaTensor:
    """Gradient of a convolution in its input, from the gradient ``g [N, O, *windows]``.

    The result has ``input_shape [N, C, *S]``. Differentiable to any order; errors as ``conv2d``.
    """
    name, rank = "conv_data_backward", weight.ndim - 2
    attrs = _settings(name, rank, weight.shape[2:], stride, padding, dilation, groups)
    return _data_backward(g, weight, normalize_shape(input_shape, name), *attrs)


def conv_weight_backward(
    g: RudaTensor,
    input: RudaTensor,
    weight_shape: Sequence[int],
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> RudaTensor:
    """Gradient of a convolution in its weight, from the gradient ``g [N, O, *windows]``.

    The result has ``weight_shape [O, C / groups, *K]``. Differentiable to any order; errors as
    ``conv2d``.
    """
    name, shape = "conv_weight_backward", normalize_shape(weight_shape, "conv_weight_backward")
    attrs = _settings(name, len(shape) - 2, shape[2:], stride, padding, dilation, groups)
    return _weight_backward(g, input, shape, *attrs)
