"""Hyperbolic functions and their inverses."""

from __future__ import annotations

import numpy as np

from ruda.core.dtypes import INEXACT
from ruda.ops import rules
from ruda.ops.arith import sqrt
from ruda.ops.complexes import conj
from ruda.ops.reference import limits
from ruda.ops.table import fused, unary
from ruda.tensor.tensor import RudaTensor

sinh = unary("sinh", np.sinh, "sinh(x)", lambda g, x: g * conj(cosh(x)), "Hyperbolic sine.")
cosh = unary("cosh", np.cosh, "cosh(x)", lambda g, x: g * conj(sinh(x)), "Hyperbolic cosine.")
tanh = unary(
    "tanh",
    limits.tanh,
    "tanh(x)",
    lambda g, out: tanh_backward(g, out),
    "Hyperbolic tangent.",
    # A complex tanh has poles at i pi / 2 and its conjugate.
    domain=(-1.2, 1.2),
)


@fused(
    "tanh_backward",
    args="g out",
    shape=rules.broadcast,
    dtype=rules.promote,
    numpy=lambda g, out: g * np.conj(1 - out * out),
    expr="g * conj(1 - out * out)",
    accepts=INEXACT,
)
def tanh_backward(g: RudaTensor, out: RudaTensor) -> RudaTensor:
    """The gradient of ``tanh`` from its output."""
    return g * conj(1 - out * out)


asinh = unary(
    "asinh",
    np.arcsinh,
    "asinh(x)",
    lambda g, x: g / conj(sqrt(x * x + 1)),
    "Inverse hyperbolic sine.",
    domain=(-0.9, 0.9),
)
acosh = unary(
    "acosh",
    np.arccosh,
    "acosh(x)",
    lambda g, x: g / conj(sqrt(x - 1) * sqrt(x + 1)),
    "Inverse hyperbolic cosine, NaN below 1 for a real ``x``.",
    domain=(1.2, 3.0),
)
atanh = unary(
    "atanh",
    np.arctanh,
    "atanh(x)",
    lambda g, x: g / conj((1 - x) * (1 + x)),
    "Inverse hyperbolic tangent, NaN outside of [-1, 1] for a real ``x``.",
    domain=(-0.8, 0.8),
)
