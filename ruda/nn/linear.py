"""The affine and the bilinear layer, and the layer that does nothing."""

from __future__ import annotations

import math
from typing import Any

from ruda.nn import init
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.ops.bilinear import bilinear
from ruda.ops.create import empty
from ruda.ops.linear import linear
from ruda.tensor.tensor import RudaTensor


class Linear(Module):
    """``x [..., in_features]`` to ``[..., out_features]``: ``x @ weight.mT + bias``.

    ``weight [out_features, in_features]`` and ``bias [out_features]`` (absent with ``bias=False``)
    start uniform on ±1 / sqrt(in_features).

    >>> ruda.nn.Linear(3, 2)(ruda.ones((5, 3))).shape
    (5, 2)
    """

    weight: RudaTensor
    bias: RudaTensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        where = {"device": device, "dtype": dtype}
        self.weight = Parameter(empty((out_features, in_features), **where))
        self.register_parameter("bias", Parameter(empty(out_features, **where)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self, generator: Any = None) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5.0), generator=generator)
        if self.bias is not None and self.in_features > 0:
            bound = 1.0 / math.sqrt(self.in_features)
            init.uniform_(self.bias, -bound, bound, generator)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [..., in_features]`` to ``[..., out_features]``."""
        return linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """``[..., in1]`` and ``[..., in2]`` to ``[..., out]`` by ``weight [out, in1, in2]``, plus bias.

    Both start uniform on ±1 / sqrt(in1).

    >>> ruda.nn.Bilinear(2, 3, 4)(ruda.ones((5, 2)), ruda.ones((5, 3))).shape
    (5, 4)
    """

    weight: RudaTensor
    bias: RudaTensor | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        where = {"device": device, "dtype": dtype}
        self.weight = Parameter(empty((out_features, in1_features, in2_features), **where))
        self.register_parameter("bias", Parameter(empty(out_features, **where)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self, generator: Any = None) -> None:
        """Draw weight and bias anew."""
        bound = 1.0 / math.sqrt(max(self.in1_features, 1))
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                init.uniform_(parameter, -bound, bound, generator)

    def forward(self, input1: RudaTensor, input2: RudaTensor) -> RudaTensor:
        """``input1 [..., in1]`` and ``input2 [..., in2]`` to ``[..., out]``."""
        return bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        sizes = f"{self.in1_features}, {self.in2_features}, {self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class Identity(Module):
    """Gives back what it is given; takes any arguments when made, to stand in for other layers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """``input`` itself."""
        return input
