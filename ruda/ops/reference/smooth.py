"""Numerically careful NumPy meanings of sigmoid, softplus, GELU and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.ops.reference.special import erf, erfc

_HALF_ROOT = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``; where exp overflows, the result is the right limit."""
    out = np.exp(-x)
    out += 1
    return np.reciprocal(out)


def log_sigmoid(x: Any) -> Any:
    """``log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|))``."""
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def softplus(x: Any) -> Any:
    """``log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))``."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def silu(x: Any) -> Any:
    """``x / (1 + exp(-x))``."""
    return x * sigmoid(x)


def silu_backward(g: Any, x: Any) -> Any:
    """``g`` times the slope of ``silu``."""
    s = sigmoid(x)
    return g * (s * (1 + x * (1 - s)))


def _normal_cdf(x: Any) -> Any:
    """The share of a normal distribution below ``x``; float64 keeps the digits of the far tail."""
    if x.dtype == np.float64:
        return 0.5 * erfc(x * -_HALF_ROOT)
    return 0.5 * (1 + erf(x * x.dtype.type(_HALF_ROOT)))


def gelu(x: Any) -> Any:
    """``x * cdf(x)``, with the cdf of the normal distribution."""
    return x * _normal_cdf(x)


def gelu_backward(g: Any, x: Any) -> Any:
    """``g`` times the slope of ``gelu``."""
    return g * (_normal_cdf(x) + x * (_DENSITY * np.exp(-0.5 * (x * x))))


def gelu_tanh(x: Any) -> Any:
    """``gelu`` with the cdf approximated by a tanh."""
    return 0.5 * x * (1 + np.tanh(_TANH_SCALE * (x + _TANH_CUBIC * (x * x * x))))


def gelu_tanh_backward(g: Any, x: Any) -> Any:
    """``g`` times the slope of ``gelu_tanh``."""
    square = x * x
    t = np.tanh(_TANH_SCALE * (x + _TANH_CUBIC * (x * square)))
    inner = _TANH_SCALE * (1 + 3 * _TANH_CUBIC * square)
    return g * (0.5 * (1 + t) + 0.5 * x * ((1 - t * t) * inner))
