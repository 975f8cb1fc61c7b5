"""Surrounding a tensor with a constant, its reflection, its border or itself: function, layers."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import index
from ruda.nn.module import Module
from ruda.ops.tiling import pad as surround
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "circular"}


@given_tensors
def pad(input: RudaTensor, pad: Any, mode: str = "constant", value: Any = 0) -> RudaTensor:
    """``input`` with elements added before and after its last axes.

    ``pad`` is (low, high) of each axis, the last axis first; negative widths cut off. ``mode`` is
    ``constant`` (``value``), ``reflect``, ``replicate`` or ``circular``. ``ruda.pad`` takes its
    pairs in the order of the axes. Raises ``ArgumentError`` and ``ShapeError``.

    >>> pad(ruda.ones((2, 1)), (1, 0)).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    sides = [index(n, "pad", "a width") for n in pad]
    if len(sides) % 2 or len(sides) > 2 * input.ndim:
        expected = f"pairs for at most {input.ndim} axes"
        raise ArgumentError("pad", "the widths do not fit", pad, expected)
    if mode not in _MODES:
        raise ArgumentError("pad", "unknown mode", repr(mode), f"one of {', '.join(_MODES)}")
    pairs = tuple(zip(sides[::2], sides[1::2], strict=True))[::-1]
    widths = ((0, 0),) * (input.ndim - len(pairs)) + pairs
    return surround(input, widths, mode=_MODES[mode], value=value)


class _Pad(Module):
    """``padding`` is an integer, or (low, high) of each axis, the last axis first."""

    _rank: int
    _mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        name, rank = type(self).__name__, self._rank
        sides = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * (2 * rank)
        if len(sides) != 2 * rank:
            expected = f"an integer or {2 * rank} of them"
            raise ArgumentError(name, f"padding does not fit {rank} axes", padding, expected)
        self.padding = tuple(index(n, name, "padding") for n in sides)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [N, C, *S]`` or ``[C, *S]`` with its spatial axes padded."""
        return self._padded(input)

    def _padded(self, x: RudaTensor, value: Any = 0) -> RudaTensor:
        if x.ndim < self._rank:
            expected = f"{self._rank} axes or more"
            raise ShapeError(type(self).__name__, "too few axes", x.shape, expected)
        sides = zip(self.padding[::2], self.padding[1::2], strict=True)
        widths = ((0, 0),) * (x.ndim - self._rank) + tuple(sides)[::-1]
        return surround(x, widths, mode=self._mode, value=value)

    def extra_repr(self) -> str:
        """The padding."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    _mode = "constant"

    def __init__(self, padding: Any, value: float = 0.0) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input`` surrounded by ``value``."""
        return self._padded(input, self.value)

    def extra_repr(self) -> str:
        """The padding and the value."""
        return f"{self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """``[*, L]`` surrounded by ``value``.

    >>> ruda.nn.ConstantPad1d((1, 2), 7.0)(ruda.zeros((1, 1))).tolist()
    [[7.0, 0.0, 7.0, 7.0]]
    """

    _rank = 1


class ConstantPad2d(_ConstantPad):
    """``[*, H, W]`` surrounded by ``value``."""

    _rank = 2


class ConstantPad3d(_ConstantPad):
    """``[*, D, H, W]`` surrounded by ``value``."""

    _rank = 3


class ZeroPad1d(_Pad):
    """``[*, L]`` surrounded by zeros."""

    _rank = 1
    _mode = "constant"


class ZeroPad2d(_Pad):
    """``[*, H, W]`` surrounded by zeros."""

    _rank = 2
    _mode = "constant"


class ZeroPad3d(_Pad):
    """``[*, D, H, W]`` surrounded by zeros."""

    _rank = 3
    _mode = "constant"


class ReflectionPad1d(_Pad):
    """``[*, L]`` surrounded by its reflection, without the border itself."""

    _rank = 1
    _mode = "reflect"


class ReflectionPad2d(_Pad):
    """``[*, H, W]`` surrounded by its reflection, without the border itself."""

    _rank = 2
    _mode = "reflect"


class ReflectionPad3d(_Pad):
    """``[*, D, H, W]`` surrounded by its reflection, without the border itself."""

    _rank = 3
    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """``[*, L]`` surrounded by its border elements."""

    _rank = 1
    _mode = "edge"


class ReplicationPad2d(_Pad):
    """``[*, H, W]`` surrounded by its border elements."""

    _rank = 2
    _mode = "edge"


class ReplicationPad3d(_Pad):
    """``[*, D, H, W]`` surrounded by its border elements."""

    _rank = 3
    _mode = "edge"


class CircularPad1d(_Pad):
    """``[*, L]`` surrounded by itself, as if it went round."""

    _rank = 1
    _mode = "circular"


class CircularPad2d(_Pad):
    """``[*, H, W]`` surrounded by itself, as if it went round."""

    _rank = 2
    _mode = "circular"


class CircularPad3d(_Pad):
    """``[*, D, H, W]`` surrounded by itself, as if it went round."""

    _rank = 3
    _mode = "circular"
