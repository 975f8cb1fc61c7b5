"""Products of matrices and vectors: one row that every other contraction is lowered to.

A low-precision product accumulates in float32 and is rounded once. Sources of the gradients:
M. Giles, "An extended collection of matrix derivative results for forward and reverse mode
algorithmic differentiation", 2008, section 2.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import NUMERIC, DType, as_dtype
from ruda.core.errors import DTypeError, ShapeError
from ruda.core.precision import precision as _precision
from ruda.core.shapes import Shape, broadcast_shapes, index, normalize_axis
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.complexes import conj
from ruda.ops.movement import expand_dims, matrix_transpose, moveaxis, permute_dims, reshape
from ruda.ops.movement import squeeze as _squeeze
from ruda.ops.rules import Specs
from ruda.ops.table import composite, row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _multiplied(op: Any, specs: Specs, *_: Any) -> Shape:
    x, y = specs[0].shape, specs[1].shape
    got = f"{x} and {y}"
    if not x or not y:
        expected = "at least one axis on both sides"
        raise ShapeError("matmul", "a 0-d operand", got, expected, "multiply for a scalar")
    if x[-1] != y[max(len(y) - 2, 0)]:
        expected = "x [..., m, k] and y [..., k, n]"
        hint = "y.mT" if y[-1] == x[-1] else None
        raise ShapeError("matmul", "the inner sizes differ", got, expected, hint)
    batch = broadcast_shapes("matmul", x[:-2], y[:-2])
    return (*batch, *x[-2:-1], *(y[-1:] if len(y) > 1 else ()))


def adjoint(x: RudaTensor) -> RudaTensor:
    """``x [..., m, n]`` transposed and conjugated; a view when ``x`` is real."""
    return conj(matrix_transpose(x))


def _x_cotangent(g: Any, y: Any, x_spec: Spec) -> Any:
    """``g yᴴ``; a vector stands for the row or column that ``matmul`` made of it."""
    if y.ndim == 1:
        return (expand_dims(g, -1) if x_spec.ndim > 1 else g) * conj(y)
    if x_spec.ndim == 1:
        return _squeeze(_matmul(conj(y), expand_dims(g, -1)), -1)
    return _matmul(g, adjoint(y))


def _y_cotangent(g: Any, x: Any, y_spec: Spec) -> Any:
    """``xᴴ g``; for a matrix shared by a batch one product of all rows, not a sum of products."""
    if x.ndim == 1:
        wide = y_spec.ndim > 1
        return (expand_dims(conj(x), -1) * expand_dims(g, -2)) if wide else g * conj(x)
    if y_spec.ndim <= 2:
        rows = math.prod(x.shape[:-1])
        x = reshape(x, (rows, x.shape[-1]))
        g = reshape(g, (rows, *g.shape[-1:]) if y_spec.ndim == 2 else (rows,))
    return _matmul(adjoint(x), g)


_COLUMNS: dict[str, Any] = {
    "shape": _multiplied,
    "numpy": lambda x, y, *_: np.matmul(x, y),
    "vjp": (_x_cotangent, _y_cotangent),
    "accepts": NUMERIC,
    "cast": "low",
    "bound": "compute",
}

_matmul = row(
    "library",
    "matmul",
    "x y",
    dtype=rules.promote,
    doc="Product of matrices, batched over the leading axes, which broadcast.",
    **_COLUMNS,
)


def _typed(op: Any, specs: Specs, dtype: DType) -> tuple[Any, Any]:
    meet, _ = rules.promote(op, specs)
    wide = dtypes.promote(meet, dtype) if dtype.kind == meet.kind else None
    if wide is None or (dtype.is_integer and wide is not dtype):
        expected = "an integer dtype that holds the operands'" if meet.is_integer else meet.kind
        hint = "casting the operands with astype"
        raise DTypeError("matmul", f"out_dtype does not fit {meet}", dtype, expected, hint)
    return wide, dtype


_matmul_as = row(
    "library",
    "matmul_as",
    "x y",
    "dtype",
    dtype=_typed,
    doc="``matmul`` accumulated and returned in another dtype of the same kind.",
    **_COLUMNS,
)


def matmul(
    x: RudaTensor,
    y: RudaTensor,
    /,
    *,
    out: RudaTensor | None = None,
    out_dtype: Any = None,
    precision: str | None = None,
) -> RudaTensor:
    """Matrix product of ``x [..., m, k]`` and ``y [..., k, n]``: ``[..., m, n]``.

    Leading axes broadcast. A 1-d ``x`` is one row and a 1-d ``y`` one column, and that axis is not
    in the result. Any numeric dtypes, promoted; half types accumulate in float32 and are rounded
    once. ``out_dtype`` is the dtype of accumulation and result, of the same kind (int8 operands
    with ``out_dtype="int32"``). ``precision`` is ``ruda.precision(matmul=...)`` for this call:
    ``"ieee"`` or ``"tf32"``. Raises ``ShapeError`` where inner sizes differ or an operand is 0-d.

    >>> matmul(ruda.asarray([[1, 2], [3, 4]]), ruda.asarray([1, 10])).tolist()
    [21, 43]
    """
    if precision is not None:
        with _precision(matmul=precision):
            return matmul(x, y, out=out, out_dtype=out_dtype)
    if out_dtype is None:
        return _matmul(x, y, out=out)
    return _matmul_as(x, y, as_dtype(out_dtype, "matmul"), out=out)


@composite
@given_tensors
def vecdot(x: RudaTensor, y: RudaTensor, /, *, axis: int = -1) -> RudaTensor:
    """Sum over ``axis`` of ``conj(x) * y``; the other axes broadcast, counted from the right.

    Raises ``ShapeError`` where the lengths along ``axis`` differ.

    >>> vecdot(ruda.asarray([1, 2, 3]), ruda.asarray([4, 5, 6])).item()
    32
    """
    from_right = axis_from_right("vecdot", x, y, axis)
    if x.shape[from_right] != y.shape[from_right]:
        got, expected = f"{x.shape} and {y.shape}", f"equal lengths along axis {axis}"
        raise ShapeError("vecdot", "the contracted lengths differ", got, expected)
    rows = expand_dims(conj(moveaxis(x, from_right, -1)), -2)
    columns = expand_dims(moveaxis(y, from_right, -1), -1)
    return _squeeze(_matmul(rows, columns), (-2, -1))


def axis_from_right(op: str, x: RudaTensor, y: RudaTensor, axis: int) -> int:
    """``axis`` of the broadcast shape as a negative number, which both operands must have."""
    low, high = sorted((x.ndim, y.ndim))
    return normalize_axis(normalize_axis(axis, high, op) - high, low, op) - low


@composite
@given_tensors
def tensordot(x: RudaTensor, y: RudaTensor, /, *, axes: Any = 2) -> RudaTensor:
    """Sum of products over pairs of axes of ``x`` and ``y``; the free axes of ``x`` come first.

    ``axes`` is the number of last axes of ``x`` that meet the first of ``y``, or two sequences of
    equal length. Raises ``ShapeError`` where paired lengths differ.

    >>> tensordot(ruda.ones((2, 3, 4)), ruda.ones((3, 4, 5))).shape
    (2, 5)
    """
    left, right = _paired_axes(x, y, axes)
    free_x = [i for i in range(x.ndim) if i not in left]
    free_y = [i for i in range(y.ndim) if i not in right]
    kept_x, kept_y = [x.shape[i] for i in free_x], [y.shape[i] for i in free_y]
    inner = math.prod(x.shape[i] for i in left)
    rows = reshape(permute_dims(x, (*free_x, *left)), (math.prod(kept_x), inner))
    columns = reshape(permute_dims(y, (*right, *free_y)), (inner, math.prod(kept_y)))
    return reshape(_matmul(rows, columns), (*kept_x, *kept_y))


def _paired_axes(x: RudaTensor, y: RudaTensor, axes: Any) -> tuple[list[int], list[int]]:
    if isinstance(axes, Sequence):
        if len(axes) != 2 or len(axes[0]) != len(axes[1]):
            expected = "two sequences of equal length, or an integer"
            raise ShapeError("tensordot", "axes do not pair up", axes, expected)
        left = [normalize_axis(a, x.ndim, "tensordot") for a in axes[0]]
        right = [normalize_axis(a, y.ndim, "tensordot") for a in axes[1]]
    else:
        count = index(axes, "tensordot", "axes")
        if not 0 <= count <= min(x.ndim, y.ndim):
            expected = f"0 to {min(x.ndim, y.ndim)}"
            raise ShapeError("tensordot", "more axes than an operand has", count, expected)
        left, right = list(range(x.ndim - count, x.ndim)), list(range(count))
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ShapeError("tensordot", "an axis is named twice", axes)
    if [x.shape[i] for i in left] != [y.shape[i] for i in right]:
        got, expected = f"{x.shape} and {y.shape} over {axes}", "equal lengths of paired axes"
        raise ShapeError("tensordot", "the contracted lengths differ", got, expected)
    return left, right


@composite
@given_tensors
def outer(x: RudaTensor, y: RudaTensor, /) -> RudaTensor:
    """Every product of an element of ``x [m]`` with one of ``y [n]``: ``[m, n]``.

    >>> outer(ruda.asarray([1, 2]), ruda.asarray([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError("outer", "takes vectors", f"{x.shape} and {y.shape}", "[m] and [n]")
    return expand_dims(x, 1) * y
