"""Deformable convolution: columns read between the pixels, then one product for each group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ruda.ops.reference.conv import conv_output_shape
from ruda.ops.reference.pixels import gathered, linear_taps
from ruda.ops.reference.windows import Array, Padding


def deform_conv2d(
    x: Array,
    offset: Array,
    w: Array,
    mask: Array | None,
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
    offset_groups: int,
) -> Array:
    """Correlate x [N, C, H, W] with w [O, C / groups, KH, KW] at positions moved by ``offset``.

    offset [N, 2 * G * KH * KW, OH, OW] holds (dy, dx) for each of G offset groups and places of the
    kernel, mask [N, G * KH * KW, OH, OW] a factor for each; the result is [N, O, OH, OW].
    """
    n, channels = x.shape[:2]
    kernel, share = w.shape[2:], channels // offset_groups
    counts = conv_output_shape(x.shape, w.shape, stride, padding, dilation)[2:]
    moves = offset.reshape(n * offset_groups, *kernel, 2, *counts)
    taps = []
    for axis in (0, 1):
        places = np.arange(kernel[axis]) * dilation[axis]
        starts = np.arange(counts[axis]) * stride[axis] - padding[axis][0]
        base = _along(places, axis) + _along(starts, axis + 2)
        positions = base + moves[:, :, :, axis]
        taps.append(linear_taps(_lines(positions), x.shape[2 + axis]))
    columns = gathered(x.reshape(n * offset_groups, share, *x.shape[2:]), taps)
    if mask is not None:
        columns *= _lines(mask.reshape(n * offset_groups, *kernel, *counts))[:, None]
    depth = w.shape[1] * kernel[0] * kernel[1]
    rows = columns.reshape(n, groups, depth, counts[0] * counts[1])
    kernels = w.reshape(groups, w.shape[0] // groups, depth)
    return np.matmul(kernels, rows).reshape(n, w.shape[0], *counts)


def _along(values: Array, axis: int) -> Array:
    return values.reshape([-1 if i == axis else 1 for i in range(4)])


def _lines(x: Array) -> Array:
    """[rows, KH, KW, OH, OW] as [rows, KH * KW * OH * OW]."""
    return x.reshape(x.shape[0], int(np.prod(x.shape[1:])))
