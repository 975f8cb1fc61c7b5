"""Activations that clip, shrink or choose, as modules."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError, ShapeError
from ruda.nn.function_layer import FunctionLayer, PlainLayer
from ruda.nn.module import Module
from ruda.ops import activation as functions
from ruda.ops.noise import rrelu
from ruda.ops.softmax import softmax, softmin
from ruda.tensor.tensor import RudaTensor


class ReLU6(PlainLayer):
    """``x`` moved into the interval from 0 to 6."""

    _function = staticmethod(functions.relu6)


class Hardtanh(FunctionLayer):
    """``x`` moved into the interval from ``min_val`` to ``max_val``."""

    _function = staticmethod(functions.hardtanh)

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        super().__init__(min_val=min_val, max_val=max_val)


class Hardsigmoid(PlainLayer):
    """``clip(x / 6 + 1 / 2, 0, 1)``."""

    _function = staticmethod(functions.hardsigmoid)


class Hardswish(PlainLayer):
    """``x * clip(x + 3, 0, 6) / 6``."""

    _function = staticmethod(functions.hardswish)


class Hardshrink(FunctionLayer):
    """``x`` where it is further than ``lambd`` from 0, else 0."""

    _function = staticmethod(functions.hardshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Softshrink(FunctionLayer):
    """``x`` moved towards 0 by ``lambd``, at most to 0."""

    _function = staticmethod(functions.softshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Tanhshrink(PlainLayer):
    """``x - tanh(x)``."""

    _function = staticmethod(functions.tanhshrink)


class Threshold(FunctionLayer):
    """``x`` where it is above ``threshold``, else ``value``."""

    _function = staticmethod(functions.threshold)

    def __init__(self, threshold: float, value: float) -> None:
        super().__init__(threshold=threshold, value=value)


class Softsign(PlainLayer):
    """``x / (1 + abs(x))``."""

    _function = staticmethod(functions.softsign)


class CELU(FunctionLayer):
    """``x`` above 0 and ``alpha * (exp(x / alpha) - 1)`` below."""

    _function = staticmethod(functions.celu)

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha=alpha)


class SELU(PlainLayer):
    """An ``ELU`` scaled so that deep stacks keep mean 0 and variance 1."""

    _function = staticmethod(functions.selu)


class Softmin(FunctionLayer):
    """``exp(-x)`` over its sum along ``axis``."""

    _function = staticmethod(softmin)

    def __init__(self, axis: int = -1) -> None:
        super().__init__(axis=axis)


class Softmax2d(Module):
    """The softmax over the channels at each place of ``[N, C, H, W]`` or ``[C, H, W]``."""

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input``, normalised over its channels."""
        if input.ndim not in (3, 4):
            expected = "[N, C, H, W] or [C, H, W]"
            raise ShapeError("Softmax2d", "wrong rank", input.shape, expected)
        return softmax(input, -3)


class RReLU(Module):
    """``LeakyReLU`` with slopes drawn from [lower, upper) while training, else with their mean."""

    def __init__(
        self, lower: float = 1 / 8, upper: float = 1 / 3, *, generator: Any = None
    ) -> None:
        super().__init__()
        if not lower <= upper:
            got = (lower, upper)
            raise ArgumentError("RReLU", "the bounds are in disorder", got, "lower <= upper")
        self.lower = lower
        self.upper = upper
        self.generator = generator

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input``, with negative values scaled."""
        bounds = (self.lower, self.upper)
        return rrelu(input, *bounds, self.training, generator=self.generator)

    def extra_repr(self) -> str:
        """The bounds."""
        return f"lower={self.lower}, upper={self.upper}"
