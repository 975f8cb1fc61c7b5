"""Trigonometric functions and their inverses, in radians."""

from __future__ import annotations

import numpy as np

from ruda.core.dtypes import BOOL, REAL
from ruda.ops import rules
from ruda.ops.arith import negative, sqrt
from ruda.ops.complexes import conj
from ruda.ops.table import binary, unary

sin = unary("sin", np.sin, "sin(x)", lambda g, x: g * conj(cos(x)), "Sine of ``x``.")
cos = unary("cos", np.cos, "cos(x)", lambda g, x: negative(g * conj(sin(x))), "Cosine of ``x``.")
tan = unary(
    "tan",
    np.tan,
    "tan(x)",
    lambda g, out: g * conj(out * out + 1),
    "Tangent of ``x``.",
    domain=(-1.2, 1.2),
)
asin = unary(
    "asin",
    np.arcsin,
    "asin(x)",
    lambda g, x: g / conj(sqrt((1 - x) * (1 + x))),
    "Inverse sine, in [-pi/2, pi/2]; NaN outside of [-1, 1] for a real ``x``.",
    domain=(-0.9, 0.9),
)
acos = unary(
    "acos",
    np.arccos,
    "acos(x)",
    lambda g, x: negative(g / conj(sqrt((1 - x) * (1 + x)))),
    "Inverse cosine, in [0, pi]; NaN outside of [-1, 1] for a real ``x``.",
    domain=(-0.9, 0.9),
)
atan = unary(
    "atan",
    np.arctan,
    "atan(x)",
    lambda g, x: g / conj(x * x + 1),
    "Inverse tangent, in [-pi/2, pi/2].",
    # A complex atan has its poles at i and -i, inside the square of the default domain.
    domain=(-0.9, 0.9),
)
atan2 = binary(
    "atan2",
    np.arctan2,
    "atan2(x, y)",
    (
        lambda g, x, y: g * (y / (x * x + y * y)),
        lambda g, x, y: negative(g * (x / (x * x + y * y))),
    ),
    "The angle of the point with ordinate ``x`` and abscissa ``y``, in [-pi, pi].",
    dtype=rules.floating,
    accepts=BOOL + REAL,
    domain=(0.5, 2.0),
)
