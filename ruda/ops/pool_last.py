"""The rows of maximum pooling with channels last, ``x [N, *S, C]``.

They keep a byte for each winner, its place in the window: an index in the plane has eight, which
are as much to write and to read again as four elements of a half type.
"""

from __future__ import annotations

import math
from typing import Any

from ruda.core import dtypes
from ruda.core.dtypes import REAL
from ruda.core.shapes import Shape
from ruda.ops import rules
from ruda.ops.pool_rules import first_dtype, placed, pooled
from ruda.ops.reference import pool_last as reference
from ruda.ops.rules import Specs
from ruda.ops.table import row


def fits(kernel: Shape) -> bool:
    """Whether a place of ``kernel`` and none at all can be told apart by a byte."""
    return math.prod(kernel) <= reference.NONE


def _shape(op: Any, specs: Specs, *attrs: Any) -> Any:
    x = specs[0].shape
    shape = (*pooled(op.name, x[:-1], *attrs), x[-1])
    return shape, shape


def _coded(op: Any, specs: Specs, *_: Any) -> Any:
    value, _ = rules.promote(op, specs)
    return value, (value, dtypes.uint8)


max_pool_last = row(
    "index",
    "max_pool_last",
    "x",
    "kernel stride padding dilation ceil_mode",
    "values codes",
    shape=_shape,
    dtype=_coded,
    numpy=reference.max_pool_last,
    vjp=(
        lambda g, x_spec, codes, kernel, stride, padding, dilation: _backward(
            g[0], codes, x_spec.shape, kernel, stride, padding, dilation
        ),
    ),
    accepts=REAL,
    doc="Maximum of each window of ``x [N, *S, C]`` and its place in the window.",
)
_backward = row(
    "index",
    "max_pool_last_backward",
    "dy codes",
    "x_shape kernel stride padding dilation",
    shape=placed,
    accepts=REAL,
    takes={"codes": (dtypes.uint8,)},
    dtype=first_dtype,
    numpy=reference.max_pool_last_backward,
    vjp=(
        lambda g, codes, kernel, stride, padding, dilation: _pick(
            g, codes, kernel, stride, padding, dilation
        ),
        None,
    ),
    doc="Each gradient added to the element that won its window.",
)
_pick = row(
    "index",
    "max_pool_last_pick",
    "x codes",
    "kernel stride padding dilation",
    shape=lambda op, specs, *_: specs[1].shape,
    accepts=REAL,
    takes={"codes": (dtypes.uint8,)},
    dtype=first_dtype,
    numpy=reference.max_pool_last_pick,
    vjp=(
        lambda g, codes, x_spec, kernel, stride, padding, dilation: _backward(
            g, codes, x_spec.shape, kernel, stride, padding, dilation
        ),
        None,
    ),
    doc="The elements that won their windows; zero for a window of padding.",
)
