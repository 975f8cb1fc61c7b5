"""Layers that drop elements or channels at random while training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.core.errors import ArgumentError
from ruda.nn.module import Module
from ruda.ops.dropout import dropout, dropout1d, dropout2d, dropout3d
from ruda.ops.noise import alpha_dropout, feature_alpha_dropout
from ruda.tensor.tensor import RudaTensor


class _Dropout(Module):
    _function: Callable[..., Any]

    def __init__(self, p: float = 0.5, *, generator: Any = None) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(type(self).__name__, "p is no probability", p, "0 to 1")
        self.p = p
        self.generator = generator

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input`` with parts dropped while training, ``input`` itself otherwise."""
        drop = type(self)._function
        return drop(input, self.p, self.training, generator=self.generator)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"


class Dropout(_Dropout):
    """While training each element is zero with probability ``p``, else divided by ``1 - p``.

    >>> layer = ruda.nn.Dropout(0.5).eval()
    >>> layer(ruda.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    _function = staticmethod(dropout)


class Dropout1d(_Dropout):
    """As ``Dropout``, for whole channels of ``[N, C, L]`` or ``[C, L]``."""

    _function = staticmethod(dropout1d)


class Dropout2d(_Dropout):
    """As ``Dropout``, for whole channels of ``[N, C, H, W]`` or ``[C, H, W]``."""

    _function = staticmethod(dropout2d)


class Dropout3d(_Dropout):
    """As ``Dropout``, for whole channels of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""

    _function = staticmethod(dropout3d)


class AlphaDropout(_Dropout):
    """Dropout for ``SELU``: dropped elements saturate, and mean 0 and variance 1 stay so."""

    _function = staticmethod(alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """As ``AlphaDropout``, for whole channels of ``[N, C, *S]``."""

    _function = staticmethod(feature_alpha_dropout)
