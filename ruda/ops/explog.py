"""Exponentials and logarithms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.dtypes import BOOL, FLOAT, REAL
from ruda.ops import rules
from ruda.ops.arith import subtract
from ruda.ops.compare import equal, isnan, logical_and
from ruda.ops.complexes import conj
from ruda.ops.reference import limits, smooth
from ruda.ops.select import where
from ruda.ops.table import binary, composite, fused, unary
from ruda.tensor.tensor import RudaTensor

_LN2, _LN10 = math.log(2), math.log(10)

exp = unary(
    "exp",
    np.exp,
    "exp(x)",
    lambda g, out: g * conj(out),
    "e to the power ``x``, elementwise.",
    cast="high",
)
expm1 = unary(
    "expm1",
    limits.expm1,
    "expm1(x)",
    lambda g, out: g * conj(out + 1),
    "``exp(x) - 1``, accurate near 0.",
    cast="high",
)
exp2 = unary(
    "exp2",
    np.exp2,
    "exp2(x)",
    lambda g, out: g * conj(out) * _LN2,
    "2 to the power ``x``, elementwise.",
    cast="high",
)
log = unary(
    "log",
    np.log,
    "log(x)",
    lambda g, x: g / conj(x),
    "Natural logarithm, NaN below zero; the principal one of a complex ``x``.",
    domain=(0.2, 4.0),
    cast="high",
)
log1p = unary(
    "log1p",
    np.log1p,
    "log1p(x)",
    lambda g, x: g / conj(x + 1),
    "``log(1 + x)``, accurate near 0.",
    domain=(-0.8, 4.0),
    cast="high",
)
log2 = unary(
    "log2",
    np.log2,
    "log2(x)",
    lambda g, x: g / conj(x * _LN2),
    "Logarithm to the base 2.",
    domain=(0.2, 4.0),
    cast="high",
)
log10 = unary(
    "log10",
    np.log10,
    "log10(x)",
    lambda g, x: g / conj(x * _LN10),
    "Logarithm to the base 10.",
    domain=(0.2, 4.0),
    cast="high",
)


def _share(x: Any, y: Any) -> Any:
    """The part of ``exp(x) + exp(y)`` that ``x`` contributes; a half of two equal infinities."""
    gap = subtract(x, y)
    return sigmoid(where(logical_and(isnan(gap), equal(x, y)), 0.0, gap))


logaddexp = binary(
    "logaddexp",
    np.logaddexp,
    "ruda_logaddexp(x, y)",
    (lambda g, x, y: g * _share(x, y), lambda g, x, y: g * _share(y, x)),
    "``log(exp(x) + exp(y))`` without overflow on the way.",
    dtype=rules.floating,
    accepts=BOOL + REAL,
    cast="high",
)
sigmoid = unary(
    "sigmoid",
    smooth.sigmoid,
    "ruda_sigmoid(x)",
    lambda g, out: sigmoid_backward(g, out),
    "``1 / (1 + exp(-x))``, elementwise, without overflow.",
    accepts=BOOL + REAL,
)


@fused(
    "sigmoid_backward",
    args="g out",
    shape=rules.broadcast,
    dtype=rules.promote,
    numpy=lambda g, out: g * (out * (1 - out)),
    expr="g * (out * (1 - out))",
    accepts=FLOAT,
)
def sigmoid_backward(g: RudaTensor, out: RudaTensor) -> RudaTensor:
    """The gradient of ``sigmoid`` from its output."""
    return g * (out * (1 - out))


log_sigmoid = unary(
    "log_sigmoid",
    smooth.log_sigmoid,
    "ruda_log_sigmoid(x)",
    lambda g, x: g * sigmoid(-x),
    "``log(sigmoid(x))``, accurate at both ends.",
    accepts=BOOL + REAL,
    cast="high",
)
logit = unary(
    "logit",
    lambda x: np.log(x) - np.log1p(-x),
    "log(x) - log1p(-x)",
    lambda g, x: g / (x * (1 - x)),
    "``log(x / (1 - x))``, the inverse of ``sigmoid``.",
    accepts=BOOL + REAL,
    domain=(0.1, 0.9),
    cast="high",
)


@composite
def xlogy(x: RudaTensor, y: RudaTensor, /) -> RudaTensor:
    """``x * log(y)``, and 0 wherever ``x`` is 0 and ``y`` is not NaN.

    >>> xlogy(ruda.asarray([0.0, 2.0]), ruda.asarray([0.0, 1.0])).tolist()
    [0.0, 0.0]
    """
    zero = logical_and(equal(x, 0), equal(y, y))
    return where(zero, 0, x * log(where(zero, 1, y)))
