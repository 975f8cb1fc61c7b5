"""Comparison and logic: operators whose result is bool.

Operands meet in one dtype first, so a Python integer that does not fit the tensor's dtype raises
rather than answering. Complex numbers are equal or not; they have no order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import ARITHMETIC, BOOL, REAL, DType
from ruda.ops import rules
from ruda.ops.table import binary, unary

_ORDERED = BOOL + REAL


def _truth(op: Any, specs: rules.Specs, *_: Any) -> Any:
    """Each operand becomes bool by itself: what is not zero is true."""
    return (dtypes.bool_,) * len(specs), dtypes.bool_


def _comparison(
    name: str, numpy: Any, expr: str, doc: str, accepts: tuple[DType, ...] = _ORDERED
) -> Callable[..., Any]:
    return binary(name, numpy, expr, None, doc, dtype=rules.compare, accepts=accepts)


def _logic(name: str, numpy: Any, expr: str, doc: str) -> Callable[..., Any]:
    return binary(name, numpy, expr, None, doc, dtype=_truth)


def _test(name: str, numpy: Any, doc: str, accepts: tuple[DType, ...] = ARITHMETIC) -> Any:
    expr = f"ruda_{name}(x)"
    return unary(name, numpy, expr, None, doc, dtype=rules.compare, accepts=accepts)


equal = _comparison(
    "equal", np.equal, "x == y", "Where ``x`` equals ``y``; NaN equals nothing.", ARITHMETIC
)
not_equal = _comparison(
    "not_equal", np.not_equal, "x != y", "Where ``x`` differs from ``y``.", ARITHMETIC
)
less = _comparison("less", np.less, "x < y", "Where ``x`` is below ``y``.")
less_equal = _comparison("less_equal", np.less_equal, "x <= y", "Where ``x`` is not above ``y``.")
greater = _comparison("greater", np.greater, "x > y", "Where ``x`` is above ``y``.")
greater_equal = _comparison(
    "greater_equal", np.greater_equal, "x >= y", "Where ``x`` is not below ``y``."
)

logical_and = _logic(
    "logical_and", np.logical_and, "x && y", "Where ``x`` and ``y`` are both not zero."
)
logical_or = _logic("logical_or", np.logical_or, "x || y", "Where ``x`` or ``y`` is not zero.")
logical_xor = _logic(
    "logical_xor", np.logical_xor, "x != y", "Where exactly one of ``x`` and ``y`` is not zero."
)
logical_not = unary("logical_not", np.logical_not, "!x", None, "Where ``x`` is zero.", dtype=_truth)

isnan = _test("isnan", np.isnan, "Where ``x``, or a part of it, is not a number.")
isinf = _test("isinf", np.isinf, "Where ``x``, or a part of it, is infinite.")
isfinite = _test("isfinite", np.isfinite, "Where ``x`` is neither infinite nor NaN.")
signbit = _test(
    "signbit", np.signbit, "Where the sign bit of ``x`` is set, -0.0 and -NaN included.", _ORDERED
)
