"""Transposed convolutions: layers that spread their input instead of gathering from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape
from ruda.nn.conv import ConvLayer
from ruda.ops.conv_transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d
from ruda.ops.windows import padding_pairs, per_axis
from ruda.tensor.tensor import RudaTensor


class _ConvTranspose(ConvLayer):
    _defaults: ClassVar = {
        "stride": 1,
        "padding": 0,
        "output_padding": 0,
        "dilation": 1,
        "groups": 1,
    }

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._set_channels(in_channels, out_channels, kernel_size, groups)
        self.stride = stride
        self.padding = padding
        self.output_padding = output_padding
        self.dilation = dilation
        shape = (in_channels, out_channels // groups, *self.kernel_size)
        self._set_weights(shape, bias, {"device": device, "dtype": dtype})

    def forward(self, input: RudaTensor, output_size: Sequence[int] | None = None) -> RudaTensor:
        """``input [N, in_channels, *S]`` to ``[N, out_channels, *sizes]``.

        ``output_size`` asks for these sizes, of which several lead to those of ``input``.
        """
        extra = self.output_padding
        if output_size is not None:
            extra = self._missing(input, tuple(output_size)[-self._rank :])
        settings = (self.stride, self.padding, extra, self.groups, self.dilation)
        return type(self)._function(input, self.weight, self.bias, *settings)

    def _missing(self, x: RudaTensor, wanted: Shape) -> Shape:
        """The output padding that brings the least sizes to those wanted."""
        name, rank = type(self).__name__, self._rank
        steps = per_axis(self.stride, rank, name, "stride")
        spread = per_axis(self.dilation, rank, name, "dilation")
        pads = padding_pairs(self.padding, rank, name)
        axes = zip(x.shape[x.ndim - rank :], self.kernel_size, steps, pads, spread, strict=True)
        least = tuple((n - 1) * s - sum(p) + d * (k - 1) + 1 for n, k, s, p, d in axes)
        extra = tuple(n - m for n, m in zip(wanted, least, strict=False))
        if len(wanted) != rank or any(
            not 0 <= e < max(s, d) for e, s, d in zip(extra, steps, spread, strict=True)
        ):
            expected = f"{least}, and less than a stride more"
            raise ShapeError(name, "output_size is out of reach", wanted, expected)
        return extra


class ConvTranspose1d(_ConvTranspose):
    """``[N, in_channels, L]`` spread by kernels; see ``ConvTranspose2d``."""

    _function = staticmethod(conv_transpose1d)
    _rank = 1


class ConvTranspose2d(_ConvTranspose):
    """``[N, in_channels, H, W]`` spread by ``weight [in, out / groups, KH, KW]``, plus bias.

    The transpose of ``Conv2d`` with the same settings: it brings sizes back to the least that they
    can come from, plus ``output_padding``.

    >>> ruda.nn.ConvTranspose2d(3, 8, 2, stride=2)(ruda.ones((2, 3, 5, 5))).shape
    (2, 8, 10, 10)
    """

    _function = staticmethod(conv_transpose2d)
    _rank = 2


class ConvTranspose3d(_ConvTranspose):
    """``[N, in_channels, D, H, W]`` spread by kernels; see ``ConvTranspose2d``."""

    _function = staticmethod(conv_transpose3d)
    _rank = 3
