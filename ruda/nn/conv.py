"""Convolutions over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from ruda.core.errors import ArgumentError
from ruda.core.shapes import Shape
from ruda.nn import init
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.ops.conv import conv1d, conv2d, conv3d
from ruda.ops.create import empty
from ruda.ops.deform import deform_conv2d
from ruda.ops.tiling import pad
from ruda.ops.windows import padding_pairs, per_axis
from ruda.tensor.tensor import RudaTensor

# The names of layers for what fills the borders, and those of ``pad``.
BORDERS = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "circular"}


def kernel_shape(name: str, kernel_size: Any, rank: int) -> Shape:
    """A kernel size as one integer for each axis."""
    several = isinstance(kernel_size, tuple | list)
    kernel = tuple(kernel_size) if several else (kernel_size,) * rank
    if len(kernel) != rank:
        expected = f"an integer, or one for each of {rank} axes"
        raise ArgumentError(name, "wrong kernel size", kernel_size, expected)
    return kernel


class ConvLayer(Module):
    """What convolutions and transposed ones share: channels, kernels, their start and their text.

    ``_defaults`` are the settings that the text leaves out where they are these.
    """

    _function: Callable[..., Any]
    _rank: int
    _defaults: ClassVar[dict[str, Any]]

    weight: RudaTensor
    bias: RudaTensor | None

    def _set_channels(
        self, in_channels: int, out_channels: int, kernel_size: Any, groups: int
    ) -> None:
        if groups < 1 or in_channels % groups or out_channels % groups:
            got = f"{in_channels} to {out_channels} channels in {groups} groups"
            raise ArgumentError(type(self).__name__, "channels do not divide", got)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_shape(type(self).__name__, kernel_size, self._rank)
        self.groups = groups

    def _set_weights(self, shape: Shape, bias: bool, where: dict[str, Any]) -> None:
        self.weight = Parameter(empty(shape, **where))
        offset = Parameter(empty(self.out_channels, **where)) if bias else None
        self.register_parameter("bias", offset)
        self.reset_parameters()

    def reset_parameters(self, generator: Any = None) -> None:
        """Draw weight and bias anew, uniform on ±1 / sqrt(fan_in) of the weight as it lies."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5.0), generator=generator)
        fan_in, _ = init.fans(self.weight)
        if self.bias is not None and fan_in > 0:
            bound = 1.0 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound, generator)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        facts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        changed = {k: getattr(self, k) for k, v in self._defaults.items() if getattr(self, k) != v}
        facts += [f"{name}={value!r}" for name, value in changed.items()]
        return ", ".join(facts if self.bias is not None else [*facts, "bias=False"])


class _Conv(ConvLayer):
    _defaults: ClassVar = {
        "stride": 1,
        "padding": 0,
        "dilation": 1,
        "groups": 1,
        "padding_mode": "zeros",
        "layout": "nchw",
    }

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        layout: str = "nchw",
    ) -> None:
        super().__init__()
        self._set_channels(in_channels, out_channels, kernel_size, groups)
        if padding_mode not in BORDERS:
            got, expected = repr(padding_mode), f"one of {tuple(BORDERS)}"
            raise ArgumentError(type(self).__name__, "unknown padding mode", got, expected)
        self.layout = layout
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.padding_mode = padding_mode
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self._set_weights(shape, bias, {"device": device, "dtype": dtype})

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [N, in_channels, *S]`` to ``[N, out_channels, *windows]``."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = self._bordered(input), 0
        settings = (self.stride, padding, self.dilation, self.groups)
        out: RudaTensor = type(self)._function(
            input, self.weight, self.bias, *settings, layout=self.layout
        )
        return out

    def _bordered(self, x: RudaTensor) -> RudaTensor:
        """``x`` with the padding that ``padding_mode`` finds at its borders."""
        name, rank = type(self).__name__, self._rank
        if self.padding == "same":
            spread = per_axis(self.dilation, rank, name, "dilation")
            reach = [d * (k - 1) for d, k in zip(spread, self.kernel_size, strict=True)]
            pairs = tuple((n // 2, n - n // 2) for n in reach)
        else:
            pairs = padding_pairs(0 if self.padding == "valid" else self.padding, rank, name)
        first = self.layout == "nchw"
        leading = ((0, 0),) * (x.ndim - rank - (not first))
        return pad(x, leading + pairs + ((0, 0),) * (not first), mode=BORDERS[self.padding_mode])


class Conv1d(_Conv):
    """``[N, in_channels, L]`` correlated with kernels; see ``Conv2d``."""

    _function = staticmethod(conv1d)
    _rank = 1


class Conv2d(_Conv):
    """``[N, in_channels, H, W]`` correlated with ``weight [out, in / groups, KH, KW]``, plus bias.

    Sizes are integers or one per axis; ``padding`` may also be ``"same"`` or ``"valid"``, and is
    filled as ``padding_mode`` says: ``zeros``, ``reflect``, ``replicate`` or ``circular``. Weight
    and ``bias [out]`` start uniform on ±1 / sqrt(fan_in). With ``layout="nhwc"`` input and result
    are ``[N, H, W, channels]``; the weight keeps its shape.

    >>> ruda.nn.Conv2d(3, 8, 3, padding=1)(ruda.ones((2, 3, 5, 5))).shape
    (2, 8, 5, 5)
    """

    _function = staticmethod(conv2d)
    _rank = 2


class Conv3d(_Conv):
    """``[N, in_channels, D, H, W]`` correlated with kernels; see ``Conv2d``."""

    _function = staticmethod(conv3d)
    _rank = 3


class DeformConv2d(_Conv):
    """``Conv2d`` whose kernels read where ``offset`` moves them; see ``F.deform_conv2d``.

    >>> layer = ruda.nn.DeformConv2d(3, 8, 3, padding=1)
    >>> layer(ruda.ones((2, 3, 5, 5)), ruda.zeros((2, 18, 5, 5))).shape
    (2, 8, 5, 5)
    """

    _rank = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        offset_groups: int = 1,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        super().__init__(*sizes, bias, device=device, dtype=dtype)
        self.offset_groups = offset_groups

    def forward(  # type: ignore[override]
        self, input: RudaTensor, offset: RudaTensor, mask: RudaTensor | None = None
    ) -> RudaTensor:
        """``input [N, in, H, W]`` with ``offset [N, 2 * offset_groups * KH * KW, *windows]``."""
        settings = (self.stride, self.padding, self.dilation, mask, self.groups)
        return deform_conv2d(
            input, offset, self.weight, self.bias, *settings, offset_groups=self.offset_groups
        )
