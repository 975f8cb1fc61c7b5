"""Windows of images as columns, and columns added up into images: each the adjoint of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.core.dtypes import ARITHMETIC
from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape
from ruda.ops import rules
from ruda.ops.movement import expand_dims, squeeze
from ruda.ops.reference.windows import offset_slices, pad_spatial, window_count, windows_view
from ruda.ops.rules import Specs
from ruda.ops.table import row
from ruda.ops.windows import Pairs, padding_pairs, per_axis
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _counts(op: str, sizes: Shape, kernel: Shape, stride: Shape, pads: Pairs, gap: Shape) -> Shape:
    axes = zip(sizes, kernel, stride, pads, gap, strict=True)
    counts = tuple(window_count(*axis) for axis in axes)
    if any(n < 1 for n in counts):
        got = f"sizes {sizes}, kernel {kernel}, padding {pads}, dilation {gap}"
        raise ShapeError(op, "no window fits the padded input", got, hint="more padding")
    return counts


def _columns_shape(op: Any, specs: Specs, kernel: Shape, *window: Any) -> Shape:
    n, channels, *sizes = specs[0].shape
    counts = _counts(op.name, tuple(sizes), kernel, *window)
    return n, channels * math.prod(kernel), math.prod(counts)


def _image_shape(op: Any, specs: Specs, sizes: Shape, kernel: Shape, *window: Any) -> Shape:
    n, depth, length = specs[0].shape
    count = math.prod(_counts(op.name, sizes, kernel, *window))
    places = math.prod(kernel)
    if depth % places or length != count:
        expected = f"[N, C * {places}, {count}]"
        raise ShapeError(op.name, "the columns do not fit", specs[0].shape, expected)
    return (n, depth // places, *sizes)


def _read(x: Any, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape) -> Any:
    counts = _counts("im2col", x.shape[2:], kernel, stride, padding, dilation)
    shown = windows_view(pad_spatial(x, padding), kernel, stride, dilation, counts)
    return shown.reshape(x.shape[0], x.shape[1] * math.prod(kernel), math.prod(counts))


def _added(x: Any, sizes: Shape, kernel: Shape, *window: Any) -> Any:
    stride, padding, dilation = window
    counts = _counts("col2im", sizes, kernel, *window)
    places = math.prod(kernel)
    columns = x.reshape(x.shape[0], x.shape[1] // places, places, *counts)
    out = np.zeros((*columns.shape[:2], *sizes), x.dtype)
    for offset, there, here in offset_slices(sizes, counts, kernel, stride, padding, dilation):
        out[here] += columns[:, :, offset][there]
    return out


_im2col = row(
    "index",
    "im2col",
    "x",
    "kernel stride padding dilation",
    shape=_columns_shape,
    dtype=rules.unchanged,
    numpy=_read,
    vjp=(
        lambda g, x_spec, kernel, stride, padding, dilation: _col2im(
            g, x_spec.shape[2:], kernel, stride, padding, dilation
        ),
    ),
    accepts=ARITHMETIC,
    exact=True,
    doc="Windows of ``x [N, C, *S]`` as columns: ``[N, C * kernel, windows]``.",
)
_col2im = row(
    "index",
    "col2im",
    "x",
    "sizes kernel stride padding dilation",
    shape=_image_shape,
    dtype=rules.promote,
    numpy=_added,
    vjp=(
        lambda g, kernel, stride, padding, dilation: _im2col(g, kernel, stride, padding, dilation),
    ),
    accepts=ARITHMETIC,
    doc="Columns added up where ``im2col`` would have read them: its adjoint.",
)


def _window(
    op: str, rank: int, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[Shape, Shape, Pairs, Shape]:
    kernel = per_axis(kernel_size, rank, op, "kernel_size")
    steps = per_axis(stride, rank, op, "stride")
    gaps = per_axis(dilation, rank, op, "dilation")
    return kernel, steps, padding_pairs(padding, rank, op), gaps


@given_tensors
def im2col(
    input: RudaTensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> RudaTensor:
    """Windows of ``input [N, C, H, W]`` as columns ``[N, C * KH * KW, windows]``.

    The batch axis may be left out. Settings are integers or one per axis, padding also pairs.
    Raises ``ShapeError`` where no window fits, ``ArgumentError`` for settings that no window has.

    >>> im2col(ruda.asarray([[[1.0, 2.0], [3.0, 4.0]]]), (2, 1)).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    if input.ndim not in (3, 4):
        raise ShapeError("im2col", "wrong rank", input.shape, "[N, C, H, W] or [C, H, W]")
    window = _window("im2col", 2, kernel_size, dilation, padding, stride)
    if input.ndim == 4:
        return _im2col(input, *window)
    return squeeze(_im2col(expand_dims(input, 0), *window), 0)


@given_tensors
def col2im(
    input: RudaTensor,
    output_size: Sequence[int],
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> RudaTensor:
    """Columns ``[N, C * KH * KW, windows]`` added up into ``[N, C, *output_size]``.

    The adjoint of ``im2col`` with the same settings; raises ``ShapeError`` where they do not fit.

    >>> col2im(ruda.ones((2, 3)), (1, 4), (1, 2)).tolist()
    [[[1.0, 2.0, 2.0, 1.0]]]
    """
    if input.ndim not in (2, 3):
        expected = "[N, C * KH * KW, windows] or without N"
        raise ShapeError("col2im", "wrong rank", input.shape, expected)
    sizes = per_axis(output_size, 2, "col2im", "output_size")
    window = _window("col2im", 2, kernel_size, dilation, padding, stride)
    if input.ndim == 3:
        return _col2im(input, sizes, *window)
    return squeeze(_col2im(expand_dims(input, 0), sizes, *window), 0)
