"""Whether values agree within a tolerance."""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import float64
from ruda.ops.arith import absolute, add, multiply, subtract
from ruda.ops.compare import equal, isfinite, isnan, less_equal, logical_and, logical_or
from ruda.ops.conversion import asarray
from ruda.ops.promotion import result_type
from ruda.ops.reduce import all
from ruda.tensor.tensor import RudaTensor


def isclose(
    x1: Any, x2: Any, /, *, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False
) -> RudaTensor:
    """Where ``abs(x1 - x2) <= atol + rtol * abs(x2)``; equal infinities are close.

    Integers are compared in float64. NaN is close to NaN only with ``equal_nan``.

    >>> isclose(ruda.asarray([1.0, 2.0]), ruda.asarray([1.0, 2.1])).tolist()
    [True, False]
    """
    if not result_type(x1, x2).is_inexact:
        # Differences of unsigned integers would wrap around.
        x1, x2 = asarray(x1, dtype=float64), asarray(x2, dtype=float64)
    allowed = add(multiply(absolute(x2), rtol), atol)
    near = less_equal(absolute(subtract(x1, x2)), allowed)
    close = logical_or(equal(x1, x2), logical_and(isfinite(x2), near))
    if equal_nan:
        close = logical_or(close, logical_and(isnan(x1), isnan(x2)))
    return close


def allclose(
    x1: Any, x2: Any, /, *, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether every element of ``x1`` is close to ``x2``, as a Python bool.

    >>> allclose(ruda.asarray([1.0, 2.0]), ruda.asarray([1.0, 2.00001]))
    True
    """
    return bool(all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)))
