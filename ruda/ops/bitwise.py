"""Operators on the bits of integers; bools are numbers of one bit.

A shift by the width of the dtype or more, or by a negative count, shifts every bit out: the result
is 0, or -1 for a negative number shifted right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.core.dtypes import BOOL, INTEGER, DType
from ruda.ops import rules
from ruda.ops.table import binary, unary


def _bits(
    name: str, numpy: Any, expr: str, doc: str, accepts: tuple[DType, ...] = BOOL + INTEGER
) -> Callable[..., Any]:
    return binary(name, numpy, expr, None, doc, accepts=accepts)


bitwise_and = _bits("bitwise_and", np.bitwise_and, "x & y", "The bits set in ``x`` and in ``y``.")
bitwise_or = _bits("bitwise_or", np.bitwise_or, "x | y", "The bits set in ``x`` or in ``y``.")
bitwise_xor = _bits(
    "bitwise_xor", np.bitwise_xor, "x ^ y", "The bits set in exactly one of ``x`` and ``y``."
)
bitwise_left_shift = _bits(
    "bitwise_left_shift",
    np.left_shift,
    "ruda_left_shift(x, y)",
    "The bits of ``x`` moved ``y`` places up, zeros coming in.",
    INTEGER,
)
bitwise_right_shift = _bits(
    "bitwise_right_shift",
    np.right_shift,
    "ruda_right_shift(x, y)",
    "The bits of ``x`` moved ``y`` places down, the sign coming in.",
    INTEGER,
)
bitwise_invert = unary(
    "bitwise_invert",
    np.invert,
    "ruda_invert(x)",
    None,
    "Every bit of ``x`` turned over; logical not for bools.",
    dtype=rules.promote,
    accepts=BOOL + INTEGER,
)
