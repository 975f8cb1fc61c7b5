"""The rows of maximum pooling with channels last, ``x [N, *S, C]``.

They keep a byte for each winner, its place in the window: an index in the plane has eight, which
are as much to write and to read again as four elements of a half type.
"""

from __future__ import annotations

import math
from typing import Any

from ruda.core import dtypes
from ruda.core.dtypes import REAL
from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape
from ruda.ops import rules
from ruda.ops.reference import pool_last as reference
from ruda.ops.reference.pool import pool_output_shape
from ruda.ops.rules import Specs
from ruda.ops.table import row
from ruda.ops.windows import Pairs


def fits(kernel: Shape) -> bool:
    """Whether a place of ``kernel`` and none at all can be told apart by a byte."""
    return math.prod(kernel) <= reference.NONE


def _windows(
    name: str, x: Shape, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape, ceil: bool
) -> Shape:
    inner = pool_output_shape(x[:-1], kernel, stride, padding, dilation, ceil)
    if any(n < 1 for n in inner[1:]):
        got = f"input {x}, kernel {kernel}, padding {padding}, dilation {dilation}"
        raise ShapeError(name, "no window fits the padded input", got, hint="a smaller kernel")
    return (*inner, x[-1])


def _shape(op: Any, specs: Specs, *attrs: Any) -> Any:
    shape = _windows(op.name, specs[0].shape, *attrs)
    return shape, shape


def _coded(op: Any, specs: Specs, *_: Any) -> Any:
    value, _ = rules.promote(op, specs)
    return value, (value, dtypes.uint8)


def _first(op: Any, specs: Specs, *_: Any) -> Any:
    return (specs[0].dtype, None), specs[0].dtype


def _placed(op: Any, specs: Specs, x_shape: Shape, *_: Any) -> Shape:
    if specs[0].shape != specs[1].shape:
        got = f"{specs[0].shape} and {specs[1].shape}"
        raise ShapeError(op.name, "gradient and codes differ", got)
    return x_shape


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
    shape=_placed,
    accepts=REAL,
    takes={"codes": (dtypes.uint8,)},
    dtype=_first,
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
    dtype=_first,
    numpy=reference.max_pool_last_pick,
    vjp=(
        lambda g, codes, x_spec, kernel, stride, padding, dilation: _backward(
            g, codes, x_spec.shape, kernel, stride, padding, dilation
        ),
        None,
    ),
    doc="The elements that won their windows; zero for a window of padding.",
)
