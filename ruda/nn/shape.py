"""Layers that move elements and compute nothing, or little: shapes, borders, sizes, columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.nn.function_layer import FunctionLayer
from ruda.nn.module import Module
from ruda.ops.columns import col2im, im2col
from ruda.ops.movement import flatten, unflatten
from ruda.ops.pixel_shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle
from ruda.ops.resize import interpolate
from ruda.tensor.tensor import RudaTensor


class Flatten(Module):
    """The axes ``start_axis`` to ``end_axis`` made one; all but the batch unless given.

    >>> ruda.nn.Flatten()(ruda.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        super().__init__()
        self.start_axis = start_axis
        self.end_axis = end_axis

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input`` with those axes joined."""
        return flatten(input, self.start_axis, self.end_axis)


class Unflatten(Module):
    """``axis`` split into axes of ``sizes``, of which one may be -1.

    >>> ruda.nn.Unflatten(1, (2, -1))(ruda.ones((3, 8))).shape
    (3, 2, 4)
    """

    def __init__(self, axis: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.axis = axis
        self.sizes = tuple(sizes)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input`` with that axis split."""
        return unflatten(input, self.axis, self.sizes)

    def extra_repr(self) -> str:
        """The axis and the sizes."""
        return f"axis={self.axis}, sizes={self.sizes}"


class PixelShuffle(FunctionLayer):
    """``[*, C * r², H, W]`` to ``[*, C, H * r, W * r]`` with ``r = upscale_factor``."""

    _function = staticmethod(pixel_shuffle)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor=upscale_factor)


class PixelUnshuffle(FunctionLayer):
    """``[*, C, H * r, W * r]`` to ``[*, C * r², H, W]`` with ``r = downscale_factor``."""

    _function = staticmethod(pixel_unshuffle)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor=downscale_factor)


class ChannelShuffle(FunctionLayer):
    """The channels of ``[N, C, *S]`` in turn from each of ``groups`` groups."""

    _function = staticmethod(channel_shuffle)

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)


class Unfold(FunctionLayer):
    """Windows of ``[N, C, H, W]`` as columns ``[N, C * KH * KW, windows]``.

    >>> ruda.nn.Unfold(2)(ruda.ones((1, 3, 4, 5))).shape
    (1, 12, 12)
    """

    _function = staticmethod(im2col)

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)


class Fold(FunctionLayer):
    """Columns ``[N, C * KH * KW, windows]`` added up into ``[N, C, *output_size]``."""

    _function = staticmethod(col2im)

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__(
            output_size=output_size,
            kernel_size=kernel_size,
            dilation=dilation,
            padding=padding,
            stride=stride,
        )


class Upsample(FunctionLayer):
    """``[N, C, *S]`` resized to ``size`` or by ``scale_factor``; see ``F.interpolate``.

    >>> ruda.nn.Upsample(scale_factor=2, mode="bilinear")(ruda.ones((1, 3, 4, 5))).shape
    (1, 3, 8, 10)
    """

    _function = staticmethod(interpolate)

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__(
            size=size,
            scale_factor=scale_factor,
            mode=mode,
            align_corners=align_corners,
            recompute_scale_factor=recompute_scale_factor,
        )
