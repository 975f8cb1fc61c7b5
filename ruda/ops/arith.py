"""Elementwise arithmetic."""

from __future__ import annotations

import numpy as np

from ruda.core.dtypes import NUMERIC
from ruda.ops import rules
from ruda.ops.complexes import conj
from ruda.ops.table import binary, unary

add = binary(
    "add", np.add, "x + y", (lambda g: g, lambda g: g), "Sum of ``x`` and ``y``, elementwise."
)
subtract = binary(
    "subtract",
    np.subtract,
    "x - y",
    (lambda g: g, lambda g: negative(g)),
    "Difference of ``x`` and ``y``, elementwise.",
    accepts=NUMERIC,
)
multiply = binary(
    "multiply",
    np.multiply,
    "x * y",
    (lambda g, y: g * conj(y), lambda g, x: g * conj(x)),
    "Product of ``x`` and ``y``, elementwise.",
)
divide = binary(
    "divide",
    np.divide,
    "x / y",
    (lambda g, y: g / conj(y), lambda g, x, y: -(g * conj(x / y / y))),
    "Quotient of ``x`` and ``y``; integers give the default float.",
    dtype=rules.floating,
    domain=(0.5, 2.0),
)
negative = unary(
    "negative",
    np.negative,
    "-x",
    lambda g: negative(g),
    "``-x``, elementwise.",
    dtype=rules.promote,
    accepts=NUMERIC,
)
