"""The three sides of a convolution in any layout, by the strategy that was asked for.

``direct`` adds one product for each place of the kernel, ``implicit_gemm`` multiplies tiles of
columns. ``auto`` takes ``direct`` for outputs and data gradients where no channels are joined and
they lie last: then copying columns would be most of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.ops.reference import conv, conv_channels_last, conv_direct
from ruda.ops.reference.windows import Array, Padding


def chosen(strategy: str, layout: str, depthwise: bool) -> str:
    """The strategy that runs: ``auto`` decided."""
    if strategy != "auto":
        return strategy
    return "direct" if depthwise and layout == "nhwc" else "implicit_gemm"


def forward(
    x: Array,
    w: Array,
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
    layout: str,
    strategy: str,
) -> Array:
    """Correlate; shapes as in ``conv`` for "nchw", with the channels last for "nhwc"."""
    settings: Any = (stride, padding, dilation, groups)
    if chosen(strategy, layout, _depthwise(w, layout)) == "direct":
        a, b = _first(x, layout), _first(w, layout)
        shape = conv.conv_output_shape(a.shape, b.shape, stride, padding, dilation)
        out = np.zeros(_last_shape(shape, layout), np.result_type(x, w))
        conv_direct.add_forward(_first(out, layout), a, b, *settings)
        return out
    if layout == "nhwc":
        return conv_channels_last.conv_forward(x, w, *settings)
    return conv.conv_forward(x, w, *settings)


def data_backward(
    g: Array,
    w: Array,
    x_shape: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
    layout: str,
    strategy: str,
) -> Array:
    """Transpose ``forward`` in ``x``, which has ``x_shape``."""
    settings: Any = (stride, padding, dilation, groups)
    if chosen(strategy, layout, _depthwise(w, layout)) == "direct":
        dx = np.zeros(x_shape, np.result_type(g, w))
        a, b, c = (_first(array, layout) for array in (dx, g, w))
        conv_direct.add_data_backward(a, b, c, *settings)
        return dx
    if layout == "nhwc":
        return conv_channels_last.conv_data_backward(g, w, x_shape, *settings)
    return conv.conv_data_backward(g, w, x_shape, *settings)


def weight_backward(
    g: Array,
    x: Array,
    w_shape: Sequence[int],
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
    layout: str,
    strategy: str,
) -> Array:
    """Transpose ``forward`` in ``w``, which has ``w_shape``."""
    settings: Any = (stride, padding, dilation, groups)
    # The direct sum over positions is slower than columns even for depthwise kernels.
    if chosen(strategy, layout, depthwise=False) == "direct":
        dw = np.zeros(w_shape, np.result_type(g, x))
        a, b, c = (_first(array, layout) for array in (dw, g, x))
        conv_direct.add_weight_backward(a, b, c, *settings)
        return dw
    if layout == "nhwc":
        return conv_channels_last.conv_weight_backward(g, x, w_shape, *settings)
    return conv.conv_weight_backward(g, x, w_shape, *settings)


def _depthwise(w: Array, layout: str) -> bool:
    return bool(w.shape[1 if layout == "nchw" else -1] == 1)


def _first(x: Array, layout: str) -> Array:
    return x if layout == "nchw" else np.moveaxis(x, -1, 1)


def _last_shape(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """A channels-first shape in ``layout``."""
    return tuple(shape) if layout == "nchw" else (shape[0], *shape[2:], shape[1])
