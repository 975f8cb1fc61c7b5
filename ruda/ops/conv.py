"""Convolution in one to three dimensions, and its gradients as functions of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.core.dtypes import DType
from ruda.core.errors import ConvDTypeError, ConvShapeError, StrategyError
from ruda.core.shapes import Shape, index, normalize_shape
from ruda.ops import conv_rows as rows
from ruda.ops.cast import astype
from ruda.ops.conv_rows import ConvArgumentError, ConvStrategyError
from ruda.ops.movement import expand_dims, moveaxis, reshape, squeeze
from ruda.ops.reference.convolve import chosen
from ruda.ops.strategy import Explanation
from ruda.ops.table import TABLE
from ruda.ops.windows import Pairs, padding_pairs, per_axis
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

__all__ = [
    "ConvArgumentError",
    "ConvStrategyError",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_data_backward",
    "conv_forward_nhwc",
    "conv_weight_backward",
    "explain_conv",
]


@given_tensors
def conv1d(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "nchw",
    strategy: str = "auto",
) -> RudaTensor:
    """Correlate ``input [N, C, L]`` with ``weight [O, C / groups, K]``: ``[N, O, windows]``.

    See ``conv2d`` for the arguments.

    >>> conv1d(ruda.ones((1, 1, 5)), ruda.ones((1, 1, 3)), padding="same").tolist()
    [[[2.0, 3.0, 3.0, 3.0, 2.0]]]
    """
    settings = (stride, padding, dilation, groups, layout, strategy)
    return _convolve("conv1d", 1, input, weight, bias, *settings)


@given_tensors
def conv2d(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "nchw",
    strategy: str = "auto",
) -> RudaTensor:
    """Correlate ``input [N, C, H, W]`` with ``weight [O, C / groups, KH, KW]``.

    The result is ``[N, O, *windows]``; without the batch axis of ``input`` it has none either.
    ``bias [O]`` is added per channel. ``stride`` and ``dilation`` are integers or one per axis;
    ``padding`` is that, or a pair (low, high) per axis, or ``"valid"`` (none), or ``"same"``
    (as many windows as elements, unit stride only). One float or complex dtype.

    With ``layout="nhwc"`` the input is ``[N, H, W, C]`` and so is the result; the weight keeps its
    shape, so that one checkpoint serves both, and one that lies channels-last in memory is read as
    it is. ``strategy`` is ``"direct"`` (a product for each place of the kernel),
    ``"implicit_gemm"`` (products with columns that never exist as a whole), ``"vendor"`` (the
    device's library) or ``"auto"``; ``explain_conv`` says which runs. What cannot run raises.
    On a GPU ``"auto"`` makes a product of matrices of float32 windows of one pixel, ``"product"``.

    Raises ``ConvShapeError``, ``ConvDTypeError``, ``ConvArgumentError`` or ``ConvStrategyError``,
    all of them ``ConvSetupError``.

    >>> conv2d(ruda.ones((1, 1, 3, 3)), ruda.ones((2, 1, 2, 2))).shape
    (1, 2, 2, 2)
    """
    settings = (stride, padding, dilation, groups, layout, strategy)
    return _convolve("conv2d", 2, input, weight, bias, *settings)


@given_tensors
def conv3d(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "nchw",
    strategy: str = "auto",
) -> RudaTensor:
    """Correlate ``input [N, C, D, H, W]`` with ``weight [O, C / groups, KD, KH, KW]``.

    See ``conv2d`` for the arguments.
    """
    settings = (stride, padding, dilation, groups, layout, strategy)
    return _convolve("conv3d", 3, input, weight, bias, *settings)


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
    layout: str,
    strategy: str,
) -> RudaTensor:
    _rank(name, rank, x, w)
    kernel = w.shape[2:]
    attrs = _settings(name, kernel, stride, padding, dilation, groups, layout, strategy)
    check_bias(name, bias, w.dtype, w.shape[0])
    _check_channels(name, rank, x.shape, w.shape, groups, layout)
    batched = x if x.ndim == rank + 2 else expand_dims(x, 0)
    out: RudaTensor = rows.conv(batched, _in_layout(w, layout), *attrs)
    out = add_bias(out, bias, rank if layout == "nchw" else 0)
    return out if batched is x else squeeze(out, 0)


def _rank(name: str, rank: int, x: RudaTensor, w: RudaTensor) -> int:
    """``rank``, the number of spatial axes, where the operands have so many."""
    if w.ndim != rank + 2 or rank < 1 or x.ndim not in (rank + 1, rank + 2):
        expected = f"{rank} spatial axes: input [N, C, *S] or [C, *S], weight [O, C / groups, *K]"
        raise ConvShapeError(name, "ranks do not fit", f"{x.shape} and {w.shape}", expected)
    return rank


def _check_channels(name: str, rank: int, x: Shape, w: Shape, groups: int, layout: str) -> None:
    """Raise where a row would, but with the input as it was given and what may be meant by it."""
    place, wanted = (-1 - rank if layout == "nchw" else -1), w[1] * groups
    if x[place] == wanted or x[place] % groups or w[0] % groups:
        return
    hint = None
    if wanted == 1 and len(x) == rank + 1:
        hint = "x[:, None], if these are images of one channel"
    elif layout == "nchw" and x[-1] == wanted:
        hint = 'layout="nhwc", or moving the channels: ruda.moveaxis(x, -1, 1)'
    got = f"input {x}, weight {w}, groups={groups}"
    what = "input channels do not fit the weight"
    raise ConvShapeError(name, what, got, f"{wanted} in place of {x[place]}", hint)


def _in_layout(w: RudaTensor, layout: str) -> RudaTensor:
    """A weight ``[O, C / groups, *K]`` as the rows of ``layout`` read it; a view."""
    return w if layout == "nchw" else moveaxis(w, 1, -1)


def add_bias(out: RudaTensor, bias: RudaTensor | None, trailing: int) -> RudaTensor:
    """``out`` plus ``bias [O]`` along the axis of channels, which ``trailing`` axes follow."""
    if bias is None:
        return out
    # Only autocast makes the dtypes differ here.
    return out + reshape(astype(bias, out.dtype, copy=False), (-1,) + (1,) * trailing)


def check_bias(name: str, bias: RudaTensor | None, dtype: DType, channels: int) -> None:
    """Raise unless ``bias`` is None, or one element of ``dtype`` for each output channel."""
    if bias is None:
        return
    if bias.shape != (channels,):
        raise ConvShapeError(name, "bias does not fit the weight", bias.shape, (channels,))
    if bias.dtype is not dtype:
        hint = f"bias.astype({str(dtype)!r})"
        raise ConvDTypeError(name, "bias has another dtype", bias.dtype, dtype, hint)


def _settings(
    name: str,
    kernel: Shape,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    layout: str,
    strategy: str,
) -> tuple[Shape, Pairs, Shape, int, str, str]:
    rank = len(kernel)
    steps = per_axis(stride, rank, name, "stride", error=ConvArgumentError)
    spread = per_axis(dilation, rank, name, "dilation", error=ConvArgumentError)
    count = index(groups, name, "groups")
    if count < 1:
        raise ConvArgumentError(name, "groups is too small", groups, "at least 1")
    if not isinstance(padding, str):
        pairs = padding_pairs(padding, rank, name, ConvArgumentError)
    else:
        pairs = _named_padding(name, padding, kernel, steps, spread)
    _check_choice(name, "layout", layout, rows.LAYOUTS)
    _check_choice(name, "strategy", strategy, rows.STRATEGIES)
    return steps, pairs, spread, count, layout, strategy


def _check_choice(name: str, what: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConvArgumentError(name, f"unknown {what}", repr(value), f"one of {known}")


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


@given_tensors
def conv_forward_nhwc(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    strategy: str = "auto",
) -> RudaTensor:
    """Correlate ``input [N, *S, C]`` with ``weight [O, *K, C / groups]``: ``[N, *windows, O]``.

    One to three spatial axes; the weight too has its channels last, so nothing is rearranged.
    Arguments and errors as ``conv2d``.

    >>> conv_forward_nhwc(ruda.ones((1, 5, 4)), ruda.ones((2, 3, 4))).shape
    (1, 3, 2)
    """
    name = "conv_forward_nhwc"
    if weight.ndim != input.ndim or not 3 <= weight.ndim <= 5:
        got, expected = f"{input.shape} and {weight.shape}", "[N, *S, C] and [O, *K, C / groups]"
        raise ConvShapeError(name, "ranks do not fit", got, expected)
    kernel = weight.shape[1:-1]
    attrs = _settings(name, kernel, stride, padding, dilation, groups, "nhwc", strategy)
    check_bias(name, bias, weight.dtype, weight.shape[0])
    return add_bias(rows.conv(input, weight, *attrs), bias, 0)


@given_tensors
def conv_data_backward(
    g: RudaTensor,
    weight: RudaTensor,
    input_shape: Sequence[int],
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "nchw",
    strategy: str = "auto",
) -> RudaTensor:
    """Gradient of a convolution in its input, from the gradient ``g [N, O, *windows]``.

    The result has ``input_shape [N, C, *S]``; with ``layout="nhwc"`` both have their channels last.
    Differentiable to any order; arguments and errors as ``conv2d``.
    """
    name, kernel = "conv_data_backward", weight.shape[2:]
    attrs = _settings(name, kernel, stride, padding, dilation, groups, layout, strategy)
    shape = normalize_shape(input_shape, name)
    return rows.data_backward(g, _in_layout(weight, layout), shape, *attrs)


def conv_weight_backward(
    g: RudaTensor,
    input: RudaTensor,
    weight_shape: Sequence[int],
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "nchw",
    strategy: str = "auto",
) -> RudaTensor:
    """Gradient of a convolution in its weight, from the gradient ``g [N, O, *windows]``.

    The result has ``weight_shape [O, C / groups, *K]`` in either layout of ``g`` and ``input``.
    Differentiable to any order; arguments and errors as ``conv2d``.
    """
    name, shape = "conv_weight_backward", normalize_shape(weight_shape, "conv_weight_backward")
    attrs = _settings(name, shape[2:], stride, padding, dilation, groups, layout, strategy)
    if layout == "nchw":
        return rows.weight_backward(g, input, shape, *attrs)
    out: RudaTensor = rows.weight_backward(g, input, (shape[0], *shape[2:], shape[1]), *attrs)
    return moveaxis(out, -1, 1)


@given_tensors
def explain_conv(
    input: RudaTensor,
    weight: RudaTensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    *,
    layout: str = "nchw",
) -> Explanation:
    """Which strategy ``strategy="auto"`` runs for the forward of these operands, and what else can.

    ``input`` and ``weight [O, C / groups, *K]`` as for ``conv2d`` with these settings; ``groups``
    follows from both unless given. Nothing is computed. Raises what the call would raise.

    >>> explain_conv(ruda.ones((1, 3, 8, 8)), ruda.ones((4, 3, 3, 3)), stride=2).chosen
    'implicit_gemm'
    """
    name = "explain_conv"
    _check_choice(name, "layout", layout, rows.LAYOUTS)
    rank = _rank(name, weight.ndim - 2, input, weight)
    x = input if input.ndim == rank + 2 else expand_dims(input, 0)
    count = groups
    if count is None:
        count = max(1, x.shape[1 if layout == "nchw" else -1] // max(1, weight.shape[1]))
    attrs = _settings(name, weight.shape[2:], stride, padding, dilation, count, layout, "auto")
    specs = (x.spec, _in_layout(weight, layout).spec)
    plan = TABLE["conv"].lookup(specs, attrs)
    found: dict[str, bool | str] = {
        strategy: x.client.lack("conv", strategy, specs, attrs) or True
        for strategy in rows.STRATEGIES[:-1]
    }
    runs = getattr(plan.run, "strategy", None) or chosen("auto", layout, weight.shape[1] == 1)
    if found["vendor"] is True and runs != "vendor":
        found["vendor"] = _refusal(specs, attrs)
    return Explanation(runs, found)


def _refusal(specs: Any, attrs: tuple[Any, ...]) -> bool | str:
    """Why the vendor's library, which is there, does not take these operands."""
    try:
        TABLE["conv"].lookup(specs, (*attrs[:-1], "vendor"))
    except StrategyError as error:
        return error.what
    return True
