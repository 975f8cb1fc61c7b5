"""Pooling over windows, and its inverse for maxima."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.nn.function_layer import FunctionLayer
from ruda.ops.adaptive_pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from ruda.ops.pool import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from ruda.ops.power_pool import (
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from ruda.tensor.tensor import RudaTensor


class _MaxPool(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        layout: str = "nchw",
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            return_indices=return_indices,
            ceil_mode=ceil_mode,
            layout=layout,
        )


class MaxPool1d(_MaxPool):
    """The maximum of each window of ``[N, C, L]``; see ``MaxPool2d``."""

    _function = staticmethod(max_pool1d)


class MaxPool2d(_MaxPool):
    """The maximum of each window of ``[N, C, H, W]``; ``stride`` is the kernel size unless given.

    With ``layout="nhwc"`` input and result are ``[N, H, W, C]``.

    >>> ruda.nn.MaxPool2d(2)(ruda.ones((1, 3, 4, 4))).shape
    (1, 3, 2, 2)
    """

    _function = staticmethod(max_pool2d)


class MaxPool3d(_MaxPool):
    """The maximum of each window of ``[N, C, D, H, W]``; see ``MaxPool2d``."""

    _function = staticmethod(max_pool3d)


class _MaxUnpool(FunctionLayer):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__(kernel_size=kernel_size, stride=stride, padding=padding)

    def forward(  # type: ignore[override]
        self, input: RudaTensor, indices: RudaTensor, output_size: Sequence[int] | None = None
    ) -> Any:
        """Maxima ``input`` back at the ``indices`` that the pooling returned."""
        return type(self)._function(input, indices, **self.settings, output_size=output_size)


class MaxUnpool1d(_MaxUnpool):
    """Maxima back where ``MaxPool1d`` found them, zeros elsewhere."""

    _function = staticmethod(max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """Maxima back where ``MaxPool2d`` with ``return_indices`` found them, zeros elsewhere."""

    _function = staticmethod(max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """Maxima back where ``MaxPool3d`` found them, zeros elsewhere."""

    _function = staticmethod(max_unpool3d)


class _AvgPool(FunctionLayer):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )


class AvgPool1d(_AvgPool):
    """The average of each window of ``[N, C, L]``; see ``AvgPool2d``."""

    _function = staticmethod(avg_pool1d)


class AvgPool2d(_AvgPool):
    """The average of each window of ``[N, C, H, W]``, at strides of the kernel size by default."""

    _function = staticmethod(avg_pool2d)


class AvgPool3d(_AvgPool):
    """The average of each window of ``[N, C, D, H, W]``; see ``AvgPool2d``."""

    _function = staticmethod(avg_pool3d)


class _LPPool(FunctionLayer):
    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(
            norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode
        )


class LPPool1d(_LPPool):
    """``sum(x ** p) ** (1 / p)`` of each window of ``[N, C, L]``, ``p = norm_type``."""

    _function = staticmethod(lp_pool1d)


class LPPool2d(_LPPool):
    """``sum(x ** p) ** (1 / p)`` of each window of ``[N, C, H, W]``, ``p = norm_type``."""

    _function = staticmethod(lp_pool2d)


class LPPool3d(_LPPool):
    """``sum(x ** p) ** (1 / p)`` of each window of ``[N, C, D, H, W]``, ``p = norm_type``."""

    _function = staticmethod(lp_pool3d)


class _AdaptivePool(FunctionLayer):
    def __init__(self, output_size: Any) -> None:
        super().__init__(output_size=output_size)


class AdaptiveAvgPool1d(_AdaptivePool):
    """Averages of ``[N, C, L]`` over as many windows as ``output_size`` says."""

    _function = staticmethod(adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptivePool):
    """Averages of ``[N, C, H, W]`` over as many windows per axis as ``output_size`` says.

    >>> ruda.nn.AdaptiveAvgPool2d(1)(ruda.ones((2, 3, 5, 7))).shape
    (2, 3, 1, 1)
    """

    _function = staticmethod(adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptivePool):
    """Averages of ``[N, C, D, H, W]`` over as many windows per axis as ``output_size`` says."""

    _function = staticmethod(adaptive_avg_pool3d)


class AdaptiveMaxPool1d(_AdaptivePool):
    """Maxima of ``[N, C, L]`` over as many windows as ``output_size`` says."""

    _function = staticmethod(adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptivePool):
    """Maxima of ``[N, C, H, W]`` over as many windows per axis as ``output_size`` says."""

    _function = staticmethod(adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptivePool):
    """Maxima of ``[N, C, D, H, W]`` over as many windows per axis as ``output_size`` says."""

    _function = staticmethod(adaptive_max_pool3d)
