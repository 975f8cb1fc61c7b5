"""What the rows of pooling ask of shapes and dtypes, wherever their channels stand."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape
from ruda.ops.reference.pool import pool_output_shape
from ruda.ops.rules import Specs
from ruda.ops.windows import Pairs


def pooled(
    name: str, x: Shape, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape, ceil: bool
) -> Shape:
    """The shape of a pooling over the trailing axes of ``x``; no window is an error."""
    out = pool_output_shape(x, kernel, stride, padding, dilation, ceil)
    if any(n < 1 for n in out[len(out) - len(kernel) :]):
        got = f"input {x}, kernel {kernel}, padding {padding}, dilation {dilation}"
        raise ShapeError(name, "no window fits the padded input", got, hint="a smaller kernel")
    return out


def first_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    """The dtype of the first operand; the second, which says places, keeps its own."""
    return (specs[0].dtype, None), specs[0].dtype


def placed(op: Any, specs: Specs, x_shape: Shape, *_: Any) -> Shape:
    """``x_shape``, if each gradient has its place."""
    if specs[0].shape != specs[1].shape:
        got = f"{specs[0].shape} and {specs[1].shape}"
        raise ShapeError(op.name, "gradients and places differ", got)
    return x_shape
