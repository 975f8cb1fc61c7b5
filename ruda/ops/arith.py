"""Elementwise arithmetic.

Integers follow NumPy: results wrap around, and a quotient or remainder by zero is zero. Booleans
add as "or" and multiply as "and"; where NumPy counts with them (``//``, ``%``, ``**``) they are
int8, and where it refuses (``-``, ``+mask``, ``sign``) so does ruda.
"""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import BOOL, FLOAT, NUMERIC, REAL
from ruda.core.errors import ArgumentError, DTypeError
from ruda.ops import rules
from ruda.ops.compare import equal, greater, less, logical_and, signbit
from ruda.ops.complexes import conj, real
from ruda.ops.movement import zeros_of
from ruda.ops.round import floor
from ruda.ops.select import where
from ruda.ops.table import TABLE, binary, unary
from ruda.tensor.tensor import RudaTensor


def _number(op: Any, specs: rules.Specs, *_: Any) -> Any:
    """As ``promote``, but two bools do not meet."""
    dtype, out = rules.promote(op, specs)
    if dtype.kind == "bool":
        got = " and ".join(str(s.dtype) for s in specs)
        hint = "logical_xor, logical_not or astype"
        raise DTypeError(op.name, "bool is not a number here", got, "a numeric dtype", hint)
    return dtype, out


def _counted(op: Any, specs: rules.Specs, *_: Any) -> Any:
    """As ``promote``, but bools count in int8."""
    dtype, out = rules.promote(op, specs)
    return (dtypes.int8, dtypes.int8) if dtype.kind == "bool" else (dtype, out)


add = binary(
    "add", np.add, "x + y", (lambda g: g, lambda g: g), "Sum of ``x`` and ``y``, elementwise."
)
subtract = binary(
    "subtract",
    np.subtract,
    "x - y",
    (lambda g: g, lambda g: negative(g)),
    "Difference of ``x`` and ``y``, elementwise; two bools have none.",
    dtype=_number,
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
    (lambda g, y: g / conj(y), lambda g, y, out: -(g * conj(out / y))),
    "Quotient of ``x`` and ``y``; integers give the default float.",
    dtype=rules.floating,
    domain=(0.5, 2.0),
)
floor_divide = binary(
    "floor_divide",
    np.floor_divide,
    "ruda_floor_divide(x, y)",
    (lambda g, x_spec: zeros_of(x_spec, g), lambda g, y_spec: zeros_of(y_spec, g)),
    "The greatest integer not above ``x / y``; 0 for an integer divided by zero.",
    dtype=_counted,
    accepts=BOOL + REAL,
    domain=(0.5, 2.0),
)
remainder = binary(
    "remainder",
    np.remainder,
    "ruda_remainder(x, y)",
    (lambda g: g, lambda g, x, y: -(g * floor(x / y))),
    "``x - y * floor(x / y)``, with the sign of ``y``; 0 for an integer divided by zero.",
    dtype=_counted,
    accepts=BOOL + REAL,
    domain=(0.5, 2.0),
)
negative = unary(
    "negative",
    np.negative,
    "-x",
    lambda g: negative(g),
    "``-x``, elementwise; unsigned integers wrap around.",
    dtype=rules.promote,
    accepts=NUMERIC,
)
positive = unary(
    "positive",
    np.positive,
    "x",
    lambda g: g,
    "A copy of ``x``.",
    dtype=rules.promote,
    accepts=NUMERIC,
)


def _sign_slope(g: RudaTensor, x: RudaTensor, out: RudaTensor) -> Any:
    """Zero for a real sign; a complex one only turns, so the radial part of ``g`` is lost."""
    if out.dtype.kind != "complex":
        return zeros_of(x.spec, g)
    size = absolute(x)
    inverse = where(equal(size, 0), 0.0, 1 / where(equal(size, 0), 1.0, size))
    return (g - out * real(g * conj(out))) * inverse


sign = unary(
    "sign",
    np.sign,
    "ruda_sign(x)",
    _sign_slope,
    "-1, 0 or 1 by the sign of ``x``, NaN for NaN; ``x / abs(x)`` for a complex ``x``, 0 at 0.",
    dtype=rules.promote,
    accepts=NUMERIC,
    domain=(0.5, 2.0),
)
absolute = unary(
    "abs",
    np.abs,
    "ruda_abs(x)",
    lambda g, x: g * sign(x),
    "The magnitude of ``x``, real for a complex ``x``; the gradient at 0 is 0.",
    dtype=rules.real_part,
    domain=(0.5, 2.0),
)
abs = absolute
square = unary(
    "square",
    np.square,
    "x * x",
    lambda g, x: g * conj(x + x),
    "``x * x``, elementwise.",
    dtype=_counted,
)
sqrt = unary(
    "sqrt",
    np.sqrt,
    "sqrt(x)",
    lambda g, out: g / conj(out + out),
    "Square root, NaN below zero; the principal one of a complex ``x``.",
    domain=(0.1, 4.0),
)
rsqrt = unary(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    "rsqrt(x)",
    lambda g, x, out: g * conj(out / x) * -0.5,
    "``1 / sqrt(x)``, elementwise.",
    domain=(0.5, 4.0),
)
reciprocal = unary(
    "reciprocal",
    np.reciprocal,
    "1 / x",
    lambda g, out: -(g * conj(out * out)),
    "``1 / x``, elementwise; integers give the default float.",
    domain=(0.5, 2.0),
)


def _power(x: Any, y: Any) -> Any:
    if y.dtype.kind in "iu":
        if y.dtype.kind == "i" and (y < 0).any():
            hint = "a float dtype for the base"
            raise ArgumentError("pow", "an integer to a negative power", y.min(), hint=hint)
        return np.power(x, y)
    # One small exponent for all elements is common, and a product is far cheaper than a power.
    simple = _SIMPLE_POWERS.get(y.item()) if y.ndim == 0 else None
    return np.power(x, y) if simple is None else simple(x)


def _root(x: Any) -> Any:
    """``x ** 0.5``, which differs from sqrt at -0.0 and at minus infinity."""
    if x.dtype.kind == "c":
        return np.power(x, 0.5)
    return np.sqrt(np.where(x == -np.inf, np.inf, x)) + x.dtype.type(0)


_SIMPLE_POWERS: dict[Any, Any] = {
    0: np.ones_like,
    1: np.positive,
    2: np.square,
    3: lambda x: x * x * x,
    4: lambda x: np.square(np.square(x)),
    -1: np.reciprocal,
    -2: lambda x: np.square(np.reciprocal(x)),
    0.5: _root,
    -0.5: lambda x: np.reciprocal(_root(x)),
}


def _power_slope(g: RudaTensor, x: Any, y: Any) -> Any:
    """``g * conj(y * x ** (y - 1))``, which is 0 for ``y == 0`` also where ``x == 0``."""
    if isinstance(y, int | float | complex):
        if y == 0:
            return zeros_of(x.spec, g)
        return g * conj(y * (x if y == 2 else _pow(x, y - 1)))
    flat = logical_and(equal(x, 0), equal(y, 0))
    return g * conj(y * _pow(x, where(flat, 1, y) - 1))


def _exponent_slope(g: RudaTensor, x: Any, out: RudaTensor) -> Any:
    """``g * conj(out * log(x))``, which is 0 at ``x == 0`` for every ``y >= 0``."""
    if isinstance(x, int | float | complex):
        return g * conj(out * _scalar_log(x, out.dtype.kind == "complex"))
    x = add(x, zeros_of(out.spec, out))
    return g * conj(out * TABLE["log"].call(where(equal(x, 0), 1, x)))


def _scalar_log(x: Any, principal: bool) -> Any:
    """The logarithm of a Python scalar, 0 for 0; NaN below zero unless ``principal``."""
    if x == 0:
        return 0.0
    if principal:
        return cmath.log(x)
    return math.log(x) if x > 0 else math.nan


_pow = binary(
    "pow",
    _power,
    "ruda_pow(x, y)",
    (_power_slope, _exponent_slope),
    "``x`` to the power ``y``, elementwise.",
    dtype=_counted,
    domain=(0.5, 2.0),
)


def pow(x1: Any, x2: Any, /, *, out: Any = None) -> RudaTensor:
    """``x1`` to the power ``x2``, elementwise; the exponent 2 costs one multiplication.

    An integer to a negative integer power raises ``ArgumentError``, as it has no integer value; so
    does an exponent tensor with a negative element. The gradient for ``x1`` is right at 0 and below
    it (for whole exponents); the one for ``x2`` is 0 at ``x1 == 0`` and NaN below it.

    >>> pow(ruda.asarray([1.0, -2.0]), 3).tolist()
    [1.0, -8.0]
    """
    if x2.__class__ is int and out is None:
        if x2 == 2:
            return square(x1)
        if x2 < 0 and x1.__class__ is RudaTensor and not x1.spec.dtype.is_inexact:
            hint = "a float dtype for the base"
            raise ArgumentError("pow", "an integer to a negative power", x2, ">= 0", hint)
    return _pow(x1, x2, out=out)


def _shared(g: RudaTensor, wins: Any, ties: Any) -> Any:
    """``g`` where this operand was chosen, half of it where both were."""
    return where(ties, g * 0.5, where(wins, g, 0))


maximum = binary(
    "maximum",
    np.maximum,
    "ruda_max(x, y)",
    (
        lambda g, x, y: _shared(g, greater(x, y), equal(x, y)),
        lambda g, x, y: _shared(g, less(x, y), equal(x, y)),
    ),
    "The larger of ``x`` and ``y``, NaN if either is; equal ones share the gradient equally.",
    accepts=BOOL + REAL,
)
minimum = binary(
    "minimum",
    np.minimum,
    "ruda_min(x, y)",
    (
        lambda g, x, y: _shared(g, less(x, y), equal(x, y)),
        lambda g, x, y: _shared(g, greater(x, y), equal(x, y)),
    ),
    "The smaller of ``x`` and ``y``, NaN if either is; equal ones share the gradient equally.",
    accepts=BOOL + REAL,
)
hypot = binary(
    "hypot",
    np.hypot,
    "hypot(x, y)",
    (
        lambda g, x, out: g * (x / where(equal(out, 0), 1.0, out)),
        lambda g, y, out: g * (y / where(equal(out, 0), 1.0, out)),
    ),
    "``sqrt(x * x + y * y)`` without overflow on the way; the gradient at 0 is 0.",
    dtype=rules.floating,
    accepts=BOOL + REAL,
    domain=(0.5, 2.0),
)
copysign = binary(
    "copysign",
    np.copysign,
    "copysign(x, y)",
    (
        lambda g, x, out: where(equal(signbit(x), signbit(out)), g, -g),
        lambda g, y_spec: zeros_of(y_spec, g),
    ),
    "``x`` with the sign of ``y``, zeros and NaNs included.",
    dtype=rules.floating,
    accepts=BOOL + REAL,
    domain=(0.5, 2.0),
)
nextafter = binary(
    "nextafter",
    np.nextafter,
    "ruda_nextafter(x, y)",
    None,
    "The neighbour of ``x`` in the direction of ``y``, in the dtype of both.",
    accepts=FLOAT,
    exact=True,
)
