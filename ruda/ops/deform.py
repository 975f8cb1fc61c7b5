"""Deformable convolution: each place of the kernel reads where a learned offset moves it."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.dtypes import FLOAT
from ruda.core.errors import ConvDTypeError, ConvShapeError
from ruda.core.shapes import Shape, index
from ruda.core.spec import is_absent
from ruda.ops import pixels, rules
from ruda.ops.cast import astype
from ruda.ops.conv import add_bias, check_bias
from ruda.ops.conv_rows import ConvArgumentError
from ruda.ops.create import arange
from ruda.ops.matmul import matmul
from ruda.ops.movement import moveaxis, reshape
from ruda.ops.reference import deform as reference
from ruda.ops.reference.conv import conv_output_shape
from ruda.ops.rowwise import wide
from ruda.ops.rules import Specs
from ruda.ops.table import FALLBACK, fused
from ruda.ops.windows import Pairs, padding_pairs, per_axis
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _shape(
    op: Any,
    specs: Specs,
    stride: Shape,
    padding: Pairs,
    dilation: Shape,
    groups: int,
    offset_groups: int,
) -> Shape:
    x, offset, w, mask = (spec.shape for spec in specs)
    if len(x) != 4 or len(w) != 4:
        expected = "input [N, C, H, W] and weight [O, C / groups, KH, KW]"
        raise ConvShapeError(op.name, "ranks do not fit", f"{x} and {w}", expected)
    if w[1] * groups != x[1] or w[0] % groups or x[1] % offset_groups:
        got = f"input {x}, weight {w}, groups={groups}, offset groups={offset_groups}"
        expected = f"a weight [O, {x[1] // groups}, KH, KW] and channels that divide"
        raise ConvShapeError(op.name, "channels do not fit", got, expected)
    out = conv_output_shape(x, w, stride, padding, dilation)
    if any(n < 1 for n in out[2:]) or 0 in w[2:] or 0 in x[2:]:
        got = f"input {x}, weight {w}, padding {padding}, dilation {dilation}"
        raise ConvShapeError(op.name, "no window fits the padded input", got, hint="more padding")
    places = offset_groups * w[2] * w[3]
    for name, found, count in (("offset", offset, 2 * places), ("mask", mask, places)):
        if name == "mask" and is_absent(specs[3]):
            continue
        expected_shape = (x[0], count, *out[2:])
        if found != expected_shape:
            raise ConvShapeError(op.name, f"{name} does not fit", found, expected_shape)
    return out


@fused(
    "deform_conv2d",
    "x offset weight mask",
    "stride padding dilation groups offset_groups",
    shape=_shape,
    dtype=rules.one_dtype,
    numpy=reference.deform_conv2d,
    accepts=FLOAT,
    optional=("mask",),
    dtype_error=ConvDTypeError,
    cast="low",
    bound="compute",
    cuda=FALLBACK("a gather by computed places and a product by the library"),
)
def _deform_conv2d(
    x: RudaTensor,
    offset: RudaTensor,
    weight: RudaTensor,
    mask: Any,
    stride: Shape,
    padding: Pairs,
    dilation: Shape,
    groups: int,
    offset_groups: int,
) -> RudaTensor:
    """Correlation of ``x`` with ``weight`` at positions moved by ``offset``, times ``mask``."""
    n, channels, *sizes = x.shape
    kernel = weight.shape[2:]
    counts = conv_output_shape(x.shape, weight.shape, stride, padding, dilation)[2:]
    rows, length = n * offset_groups, math.prod(kernel) * math.prod(counts)
    moves = reshape(wide(offset), (rows, *kernel, 2, *counts))
    starts = tuple(low for low, _ in padding)
    positions = [
        reshape(
            moves[:, :, :, axis]
            + _places(axis, kernel[axis], dilation[axis], 0, x)
            + _places(axis + 2, counts[axis], stride[axis], starts[axis], x),
            (rows, length),
        )
        for axis in (0, 1)
    ]
    image = reshape(wide(x), (rows, channels // offset_groups, *sizes))
    columns = pixels.linear(image, positions)
    if mask is not None:
        columns = columns * reshape(wide(mask), (rows, length))
    depth = math.prod(weight.shape[1:])
    matrix = reshape(moveaxis(columns, 0, 1), (n, groups, depth, math.prod(counts)))
    kernels = reshape(wide(weight), (groups, weight.shape[0] // groups, depth))
    out = reshape(matmul(kernels, matrix), (n, weight.shape[0], *counts))
    return astype(out, x.dtype, copy=False)


def _places(axis: int, count: int, step: int, start: int, x: RudaTensor) -> RudaTensor:
    """``step * i - start`` along one of four axes."""
    whole = arange(-start, -start + count * step, step, dtype="int64", device=x.device)
    line = astype(whole, wide(x).dtype)
    return reshape(line, tuple(-1 if i == axis else 1 for i in range(4)))


@given_tensors
def deform_conv2d(
    input: RudaTensor,
    offset: RudaTensor,
    weight: RudaTensor,
    bias: RudaTensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    mask: RudaTensor | None = None,
    groups: int = 1,
    offset_groups: int = 1,
) -> RudaTensor:
    """Correlate ``input [N, C, H, W]`` with ``weight [O, C / groups, KH, KW]`` at moved positions.

    ``offset [N, 2 * offset_groups * KH * KW, OH, OW]`` holds (dy, dx) in pixels for each place of
    the kernel; pixels between are linear, outside are zeros. ``mask [N, offset_groups * KH * KW,
    OH, OW]`` multiplies what is read (version 2). ``bias [O]``; the result is ``[N, O, OH, OW]``.
    Other arguments and errors as ``conv2d``; one real float dtype. Dai et al., "Deformable
    Convolutional Networks", 2017; Zhu et al., "Deformable ConvNets v2", 2019.

    >>> x, w = ruda.ones((1, 1, 3, 3)), ruda.ones((1, 1, 2, 2))
    >>> deform_conv2d(x, ruda.zeros((1, 8, 2, 2)), w).tolist()
    [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    name = "deform_conv2d"
    steps = per_axis(stride, 2, name, "stride", error=ConvArgumentError)
    spread = per_axis(dilation, 2, name, "dilation", error=ConvArgumentError)
    pairs = padding_pairs(padding, 2, name, ConvArgumentError)
    counts = [index(groups, name, "groups"), index(offset_groups, name, "offset_groups")]
    if min(counts) < 1:
        raise ConvArgumentError(name, "groups are too small", counts, "at least 1")
    check_bias(name, bias, weight.dtype, weight.shape[0])
    out: RudaTensor = _deform_conv2d(input, offset, weight, mask, steps, pairs, spread, *counts)
    return add_bias(out, bias, 2)
