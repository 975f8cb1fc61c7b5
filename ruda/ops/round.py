"""Rounding to whole numbers. Integers are whole already, and the slope is zero everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.dtypes import NUMERIC, REAL
from ruda.ops import rules
from ruda.ops.movement import zeros_of
from ruda.ops.table import unary


def _flat(g: Any, x_spec: Any) -> Any:
    return zeros_of(x_spec, g)


def _nearest(x: Any) -> Any:
    # rint turns integers into floats, which would lose the low bits of int64.
    return np.rint(x) if x.dtype.kind in "fc" else np.positive(x)


floor = unary(
    "floor",
    np.floor,
    "ruda_floor(x)",
    _flat,
    "The greatest whole number not above ``x``.",
    dtype=rules.promote,
    accepts=REAL,
)
ceil = unary(
    "ceil",
    np.ceil,
    "ruda_ceil(x)",
    _flat,
    "The least whole number not below ``x``.",
    dtype=rules.promote,
    accepts=REAL,
)
trunc = unary(
    "trunc",
    np.trunc,
    "ruda_trunc(x)",
    _flat,
    "``x`` without its fraction: the nearest whole number towards zero.",
    dtype=rules.promote,
    accepts=REAL,
)
round = unary(
    "round",
    _nearest,
    "ruda_round(x)",
    _flat,
    "The nearest whole number, a half going to the even one; complex parts one by one.",
    dtype=rules.promote,
    accepts=NUMERIC,
)
