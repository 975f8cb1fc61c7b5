"""Transposed convolution: the data gradient of a convolution, run forward."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ConvShapeError
from ruda.core.shapes import Shape, index
from ruda.ops.conv import ConvArgumentError, add_bias, check_bias, conv_data_backward
from ruda.ops.movement import expand_dims, squeeze
from ruda.ops.table import composite
from ruda.ops.tiling import pad
from ruda.ops.windows import Pairs, padding_pairs, per_axis
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _transpose(
    name: str,
    rank: int,
    x: RudaTensor,
    w: RudaTensor,
    bias: RudaTensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> RudaTensor:
    if w.ndim != rank + 2 or x.ndim not in (rank + 1, rank + 2):
        expected = f"input [N, C, *S] or [C, *S], weight [C, O / groups, *K], {rank} spatial axes"
        raise ConvShapeError(name, "ranks do not fit", f"{x.shape} and {w.shape}", expected)
    if x.shape[-rank - 1] != w.shape[0]:
        got = f"input {x.shape}, weight {w.shape}"
        expected = f"a weight [{x.shape[-rank - 1]}, O / groups, *K]"
        raise ConvShapeError(name, "input channels do not fit the weight", got, expected)
    channels = w.shape[1] * index(groups, name, "groups")
    check_bias(name, bias, w.dtype, channels)
    batched = x if x.ndim == rank + 2 else expand_dims(x, 0)
    spatial = batched.shape[2:], w.shape[2:]
    sizes, pads, beyond = _sizes(name, *spatial, stride, padding, output_padding, dilation)
    shape = (batched.shape[0], channels, *sizes)
    out = conv_data_backward(batched, w, shape, stride, pads, dilation, groups)
    if any(beyond):
        out = pad(out, ((0, 0), (0, 0), *((0, n) for n in beyond)))
    out = add_bias(out, bias, rank)
    return out if batched is x else squeeze(out, 0)


def _sizes(
    name: str,
    sizes: Shape,
    kernel: Shape,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
) -> tuple[Shape, Pairs, Shape]:
    """The sizes of the result, the padding to crop, and how many zeros follow on each axis.

    The sizes are the least that a convolution would bring to ``sizes``, plus output padding. As
    much of that as reaches another window lessens the high padding, and what is left is zeros.
    """
    rank = len(kernel)
    steps = per_axis(stride, rank, name, "stride", error=ConvArgumentError)
    spread = per_axis(dilation, rank, name, "dilation", error=ConvArgumentError)
    extra = per_axis(output_padding, rank, name, "output_padding", 0, ConvArgumentError)
    pads = padding_pairs(padding, rank, name, ConvArgumentError)
    if any(e >= max(s, d) for e, s, d in zip(extra, steps, spread, strict=True)):
        expected = f"less than the stride {steps} or the dilation {spread}"
        raise ConvArgumentError(name, "output_padding is too large", extra, expected)
    over = tuple(max(e - s + 1, 0) for e, s in zip(extra, steps, strict=True))
    beyond = tuple(max(o - hi, 0) for o, (_, hi) in zip(over, pads, strict=True))
    pads = tuple((lo, max(hi - o, 0)) for o, (lo, hi) in zip(over, pads, strict=True))
    axes = zip(sizes, kernel, steps, pads, extra, over, spread, strict=True)
    out = tuple((n - 1) * s - sum(p) + d * (k - 1) + e - o + 1 for n, k, s, p, e, o, d in axes)
    if any(n < 1 for n in out):
        got = f"input {sizes}, kernel {kernel}, padding {pads}"
        raise ConvShapeError(name, "the padding leaves nothing", got, hint="less padding")
    return out, pads, beyond


@composite
@given_tensors
def conv_transpose1d(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> RudaTensor:
    """Spread ``input [N, C, L]`` by ``weight [C, O / groups, K]``; see ``conv_transpose2d``."""
    settings = (stride, padding, output_padding, groups, dilation)
    return _transpose("conv_transpose1d", 1, input, weight, bias, *settings)


@composite
@given_tensors
def conv_transpose2d(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> RudaTensor:
    """Spread ``input [N, C, H, W]`` by ``weight [C, O / groups, KH, KW]``: ``[N, O, *sizes]``.

    The transpose of ``conv2d`` with the same arguments: sizes are the least that it would bring to
    those of ``input``, plus ``output_padding``, which is less than the stride or the dilation.
    ``padding`` takes away from both ends, or as pairs (low, high). Dtypes and errors as ``conv2d``.

    >>> conv_transpose2d(ruda.ones((1, 2, 3, 3)), ruda.ones((2, 4, 2, 2)), stride=2).shape
    (1, 4, 6, 6)
    """
    settings = (stride, padding, output_padding, groups, dilation)
    return _transpose("conv_transpose2d", 2, input, weight, bias, *settings)


@composite
@given_tensors
def conv_transpose3d(
    input: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> RudaTensor:
    """Spread ``input [N, C, D, H, W]`` by ``weight``; see ``conv_transpose2d``."""
    settings = (stride, padding, output_padding, groups, dilation)
    return _transpose("conv_transpose3d", 3, input, weight, bias, *settings)
