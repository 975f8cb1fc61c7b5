"""Convolutions over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ruda.core.errors import ArgumentError
from ruda.nn import init
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.ops.conv import conv1d, conv2d, conv3d
from ruda.ops.create import empty
from ruda.tensor.tensor import RudaTensor


class _Conv(Module):
    _function: Callable[..., Any]
    _rank: int

    weight: RudaTensor
    bias: RudaTensor | None

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
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            got = f"{in_channels} to {out_channels} channels in {groups} groups"
            raise ArgumentError(type(self).__name__, "channels do not divide", got)
        several = isinstance(kernel_size, tuple | list)
        kernel = tuple(kernel_size) if several else (kernel_size,) * self._rank
        if len(kernel) != self._rank:
            expected = f"an integer, or one for each of {self._rank} axes"
            raise ArgumentError(type(self).__name__, "wrong kernel size", kernel_size, expected)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups
        where = {"device": device, "dtype": dtype}
        self.weight = Parameter(empty((out_channels, in_channels // groups, *kernel), **where))
        self.register_parameter("bias", Parameter(empty(out_channels, **where)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self, generator: Any = None) -> None:
        """Draw weight and bias anew, uniform on ±1 / sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5.0), generator=generator)
        fan_in, _ = init.fans(self.weight)
        if self.bias is not None and fan_in > 0:
            bound = 1.0 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound, generator)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [N, in_channels, *S]`` to ``[N, out_channels, *windows]``."""
        settings = (self.stride, self.padding, self.dilation, self.groups)
        return type(self)._function(input, self.weight, self.bias, *settings)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        facts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
        changed = {k: getattr(self, k) for k, v in defaults.items() if getattr(self, k) != v}
        facts += [f"{name}={value!r}" for name, value in changed.items()]
        return ", ".join(facts if self.bias is not None else [*facts, "bias=False"])


class Conv1d(_Conv):
    """``[N, in_channels, L]`` correlated with kernels; see ``Conv2d``."""

    _function = staticmethod(conv1d)
    _rank = 1


class Conv2d(_Conv):
    """``[N, in_channels, H, W]`` correlated with ``weight [out, in / groups, KH, KW]``, plus bias.

    Sizes are integers or one per axis; ``padding`` may also be ``"same"`` or ``"valid"``. Weight
    and ``bias [out]`` start uniform on ±1 / sqrt(fan_in).

    >>> ruda.nn.Conv2d(3, 8, 3, padding=1)(ruda.ones((2, 3, 5, 5))).shape
    (2, 8, 5, 5)
    """

    _function = staticmethod(conv2d)
    _rank = 2


class Conv3d(_Conv):
    """``[N, in_channels, D, H, W]`` correlated with kernels; see ``Conv2d``."""

    _function = staticmethod(conv3d)
    _rank = 3
