"""``Parameter``, which marks a tensor as one that modules register."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import DTypeError
from ruda.tensor.marks import is_parameter, mark
from ruda.tensor.tensor import RudaTensor


class _ParameterType(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return is_parameter(value)


class Parameter(metaclass=_ParameterType):
    """``Parameter(data, requires_grad=True)`` is a leaf tensor that modules register.

    It shares the memory of ``data``; ``isinstance(x, Parameter)`` tells parameters from other
    tensors, trained or frozen. Raises ``DTypeError`` unless ``data`` is a floating tensor.

    >>> weight = ruda.nn.Parameter(ruda.zeros((2, 2)))
    >>> isinstance(weight, ruda.nn.Parameter), weight.requires_grad
    (True, True)
    """

    def __new__(cls, data: RudaTensor, requires_grad: bool = True) -> Any:
        """The marked tensor."""
        if not isinstance(data, RudaTensor):
            raise DTypeError("Parameter", "not a tensor", type(data).__name__, hint="ruda.tensor")
        leaf = data.detach() if data.node is not None else data
        return mark(leaf.requires_grad_(requires_grad))
