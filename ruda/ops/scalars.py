"""Settings that are real numbers: read from what users pass, and refused outside of an interval."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.errors import ArgumentError, DTypeError, RudaError
from ruda.tensor.operands import as_scalar

Errors = tuple[type[RudaError], type[RudaError]]


def real_number(
    op: str,
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    ends: str = "[]",
    errors: Errors = (DTypeError, ArgumentError),
) -> float:
    """``value`` as a float between ``low`` and ``high``, or an error that names it.

    ``ends`` says which ends belong to the interval; NaN lies in none. ``errors`` are raised for
    what is no real number, and for one outside.

    >>> real_number("dropout", "p", 1, 0, 1)
    1.0
    """
    no_number, outside = errors
    number = value if value.__class__ is float else as_scalar(value)
    if number is None or isinstance(number, complex):
        got = f"{value!r:.60} of type {type(value).__name__}"
        raise no_number(op, f"{name} is no real number", got, "a real scalar")
    above = low < number if ends[0] == "(" else low <= number
    below = number < high if ends[1] == ")" else number <= high
    if not (above and below):
        expected = f"a number in {ends[0]}{low:g}, {high:g}{ends[1]}"
        raise outside(op, f"{name} is not allowed", number, expected)
    return float(number)
