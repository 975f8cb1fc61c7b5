"""Layers whose input size is left out: the first call reads it from its input.

From then on the layer is an ordinary one, of the class it stands for. Its parameters do not exist
before, so the first call comes before ``to``, ``state_dict``, optimizers and compiled steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ruda.core.errors import ShapeError
from ruda.core.mode import state_changed
from ruda.nn.conv import Conv1d, Conv2d, Conv3d
from ruda.nn.linear import Linear
from ruda.nn.module import Module
from ruda.nn.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from ruda.tensor.tensor import RudaTensor

# What a layer has been given before it knew its size.
_KEPT = ("_before", "_after", "_backward", "_ruda_version", "training")


class _Lazy(Module):
    """Keeps the arguments of ``_made`` until the axis ``_axis`` of an input gives the first one."""

    _made: ClassVar[Callable[..., Module]]
    _axis: ClassVar[int]

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__()
        self.args = args
        self.settings = settings

    def forward(self, input: RudaTensor) -> Any:
        """Becomes the layer for inputs like this one, and calls it."""
        if not -input.ndim <= self._axis < input.ndim:
            expected = f"more than {-self._axis - 1 if self._axis < 0 else self._axis} axes"
            raise ShapeError(type(self).__name__, "too few axes", input.shape, expected)
        where = {"device": input.device, **self.settings}
        made = type(self)._made(input.shape[self._axis], *self.args, **where)
        state_changed(self, "args", made)
        kept = {name: value for name, value in vars(self).items() if name in _KEPT}
        vars(self).clear()
        vars(self).update(vars(made) | kept)
        object.__setattr__(self, "__class__", type(made))
        return self.forward(input)

    def extra_repr(self) -> str:
        """The arguments so far."""
        named = [f"{name}={value!r}" for name, value in self.settings.items()]
        return ", ".join(["?", *map(repr, self.args), *named])


class LazyLinear(_Lazy):
    """``Linear`` that takes ``in_features`` from the last axis of its first input.

    >>> layer = ruda.nn.LazyLinear(3)
    >>> layer(ruda.ones((2, 5))).shape, layer
    ((2, 3), Linear(5, 3, bias=True, 18 parameters))
    """

    _made, _axis = Linear, -1


class LazyConv1d(_Lazy):
    """``Conv1d`` that takes ``in_channels`` from its first input ``[N, C, L]`` or ``[C, L]``."""

    _made, _axis = Conv1d, -2


class LazyConv2d(_Lazy):
    """``Conv2d`` that takes ``in_channels`` from its first input ``[N, C, H, W]``.

    >>> ruda.nn.LazyConv2d(8, 3, padding=1)(ruda.ones((1, 3, 5, 5))).shape
    (1, 8, 5, 5)
    """

    _made, _axis = Conv2d, -3


class LazyConv3d(_Lazy):
    """``Conv3d`` that takes ``in_channels`` from its first input ``[N, C, D, H, W]``."""

    _made, _axis = Conv3d, -4


class LazyBatchNorm1d(_Lazy):
    """``BatchNorm1d`` that takes ``num_features`` from its first input ``[N, C, *]``."""

    _made, _axis = BatchNorm1d, 1


class LazyBatchNorm2d(_Lazy):
    """``BatchNorm2d`` that takes ``num_features`` from its first input ``[N, C, H, W]``."""

    _made, _axis = BatchNorm2d, 1


class LazyBatchNorm3d(_Lazy):
    """``BatchNorm3d`` that takes ``num_features`` from its first input ``[N, C, D, H, W]``."""

    _made, _axis = BatchNorm3d, 1
