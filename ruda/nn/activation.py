"""Activations as modules, to stand in a ``Sequential``."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError
from ruda.nn import init
from ruda.nn.function_layer import FunctionLayer, PlainLayer
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.ops import activation as functions
from ruda.ops.create import empty
from ruda.ops.explog import log_sigmoid, sigmoid
from ruda.ops.hyper import tanh
from ruda.ops.softmax import log_softmax, softmax
from ruda.tensor.tensor import RudaTensor


class ReLU(PlainLayer):
    """``max(x, 0)``.

    >>> ruda.nn.ReLU()(ruda.asarray([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    _function = staticmethod(functions.relu)


class Tanh(PlainLayer):
    """The hyperbolic tangent."""

    _function = staticmethod(tanh)


class Sigmoid(PlainLayer):
    """``1 / (1 + exp(-x))``."""

    _function = staticmethod(sigmoid)


class LogSigmoid(PlainLayer):
    """``log(sigmoid(x))`` without its loss of small values."""

    _function = staticmethod(log_sigmoid)


class SiLU(PlainLayer):
    """``x * sigmoid(x)``, also called swish."""

    _function = staticmethod(functions.silu)


class Mish(PlainLayer):
    """``x * tanh(softplus(x))``."""

    _function = staticmethod(functions.mish)


class GELU(FunctionLayer):
    """``x * cdf(x)`` with the cdf of the normal distribution, exact or by ``"tanh"``."""

    _function = staticmethod(functions.gelu)

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            expected = "'none' or 'tanh'"
            raise ArgumentError("GELU", "unknown approximation", repr(approximate), expected)
        super().__init__(approximate=approximate)


class LeakyReLU(FunctionLayer):
    """``x`` where it is positive, else ``negative_slope * x``."""

    _function = staticmethod(functions.leaky_relu)

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__(negative_slope=negative_slope)


class ELU(FunctionLayer):
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``."""

    _function = staticmethod(functions.elu)

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha=alpha)


class Softplus(FunctionLayer):
    """``log(1 + exp(beta * x)) / beta``."""

    _function = staticmethod(functions.softplus)

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__(beta=beta)


class Softmax(FunctionLayer):
    """``exp(x)`` over its sum along ``axis``."""

    _function = staticmethod(softmax)

    def __init__(self, axis: int = -1) -> None:
        super().__init__(axis=axis)


class LogSoftmax(FunctionLayer):
    """The logarithm of ``Softmax`` without its loss of small values."""

    _function = staticmethod(log_softmax)

    def __init__(self, axis: int = -1) -> None:
        super().__init__(axis=axis)


class GLU(FunctionLayer):
    """The first half along ``axis`` times the sigmoid of the second half."""

    _function = staticmethod(functions.glu)

    def __init__(self, axis: int = -1) -> None:
        super().__init__(axis=axis)


class PReLU(Module):
    """``x`` where it is positive, else ``weight * x``; one trained slope, or one per channel."""

    weight: RudaTensor

    def __init__(
        self, num_parameters: int = 1, value: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        init.constant_(self.weight, value)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input``, with negative values scaled by the weight."""
        return functions.prelu(input, self.weight)
