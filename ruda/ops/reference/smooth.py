"""Numerically careful NumPy meanings of the sigmoid and its relatives."""

from __future__ import annotations

from typing import Any

import numpy as np


def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``; both overflows of exp end in the right limit."""
    out = np.negative(x)
    out = np.exp(out)
    out += 1
    return np.reciprocal(out)


def log_sigmoid(x: Any) -> Any:
    """``log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|))``."""
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def softplus(x: Any) -> Any:
    """``log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))``."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
