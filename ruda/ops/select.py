"""Choosing between values, or a point between them, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import BOOL, FLOAT, REAL
from ruda.core.errors import DTypeError
from ruda.core.spec import promote_specs
from ruda.ops import rules
from ruda.ops.compare import greater, greater_equal, less, less_equal, logical_and, logical_or
from ruda.ops.reference import blend
from ruda.ops.table import TABLE, row
from ruda.tensor.tensor import RudaTensor


def _chosen(op: Any, specs: rules.Specs) -> Any:
    cond = specs[0].dtype
    if cond.kind != "bool":
        raise DTypeError("where", "the condition is not bool", cond, "bool", "cond != 0")
    dtype = promote_specs(specs[1:])
    return (dtypes.bool_, dtype, dtype), dtype


where = row(
    "ternary",
    "where",
    "cond x y",
    shape=rules.broadcast,
    dtype=_chosen,
    numpy=blend.where,
    expr="cond ? x : y",
    vjp=(None, lambda g, cond: where(cond, g, 0), lambda g, cond: where(cond, 0, g)),
    accepts=dtypes.ARITHMETIC,
    exact=True,
    doc="``where(cond, x, y)``: ``x`` where the bool ``cond`` holds, else ``y``; all broadcast.",
)

lerp = row(
    "ternary",
    "lerp",
    "x y weight",
    shape=rules.broadcast,
    dtype=rules.promote,
    numpy=lambda x, y, weight: x + (y - x) * weight,
    expr="x + (y - x) * weight",
    vjp=(
        lambda g, weight: g * (1 - weight),
        lambda g, weight: g * weight,
        lambda g, x, y: g * (y - x),
    ),
    accepts=FLOAT,
    doc="``lerp(x, y, weight)``: the point ``x + (y - x) * weight`` on the way from x to y.",
)

_clip = row(
    "ternary",
    "clip",
    "x low high",
    shape=rules.broadcast,
    dtype=rules.promote,
    numpy=lambda x, low, high: np.minimum(np.maximum(x, low), high),
    expr="ruda_min(ruda_max(x, low), high)",
    vjp=(
        lambda g, x, low, high: where(
            logical_and(greater_equal(x, low), less_equal(x, high)), g, 0
        ),
        lambda g, x, low, high: where(logical_and(less(x, low), less_equal(low, high)), g, 0),
        lambda g, x, low, high: where(logical_or(greater(x, high), greater(low, high)), g, 0),
    ),
    accepts=BOOL + REAL,
    doc="``x`` moved into the interval from ``low`` to ``high``.",
)


def clip(x: Any, /, min: Any = None, max: Any = None, *, out: Any = None) -> RudaTensor:
    """``x`` moved into the interval from ``min`` to ``max``, each a scalar, a tensor or None.

    All three broadcast and meet in one dtype. NaN stays NaN, and where ``min > max`` the result is
    ``max``. The gradient goes to ``x`` inside the interval, its ends included, else to the bound.

    >>> clip(ruda.asarray([-2.0, 0.5, 9.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    if min is None and max is None:
        return TABLE["positive"].call(x, out=out)
    if min is not None and max is not None:
        return _clip(x, min, max, out=out)
    if _is_whole(x) and _is_whole(max if min is None else min):
        # Integers have no infinity to stand for the missing bound, and no gradient to send to it.
        name, bound = ("minimum", max) if min is None else ("maximum", min)
        return TABLE[name].call(x, bound, out=out)
    low, high = (-math.inf if min is None else min), (math.inf if max is None else max)
    return _clip(x, low, high, out=out)


def _is_whole(value: Any) -> bool:
    if hasattr(value, "dtype"):
        return dtypes.as_dtype(value.dtype, "clip").kind in ("bool", "int", "uint")
    return isinstance(value, int)
