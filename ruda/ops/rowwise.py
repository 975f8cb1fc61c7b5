"""What softmax, norms and losses share: checks of their operands, and arithmetic in float32.

Half inputs are computed in float32 and rounded once at the end; parameters beside them may stay
float32.
"""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import FLOAT, DType, compute_of
from ruda.core.errors import (
    ArgumentError,
    NormalizationDTypeError,
    NormalizationError,
    NormalizationShapeError,
)
from ruda.core.mode import MODE
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, is_absent
from ruda.ops.cast import astype
from ruda.ops.movement import reshape
from ruda.ops.rules import Specs
from ruda.ops.scalars import real_number
from ruda.tensor.tensor import RudaTensor


class NormalizationArgumentError(NormalizationError, ArgumentError):
    """An eps, momentum or number of groups that no normalization has."""


# The columns that rows of normalization have in common.
COLUMNS: dict[str, Any] = {
    "accepts": FLOAT,
    "dtype_error": NormalizationDTypeError,
    "cast": "high",
}


NUMBER_ERRORS = (NormalizationDTypeError, NormalizationArgumentError)


def wide(x: RudaTensor) -> RudaTensor:
    """A half ``x`` in float32, any other as it is."""
    return astype(x, compute_of(x.dtype), copy=False)


def rounded(y: RudaTensor, like: RudaTensor) -> RudaTensor:
    """``y``, computed from ``wide`` values, in the dtype of ``like``; autocast leaves it wide."""
    fits = y.spec.dtype is like.spec.dtype or MODE.get().cast is not None
    return y if fits else astype(y, like.spec.dtype)


def autocast_wide(x: RudaTensor) -> RudaTensor:
    """``x`` as a row that autocast casts up would get it."""
    return x if MODE.get().cast is None else wide(x)


def statistics_dtype(spec: Spec) -> DType:
    """The dtype of statistics of a tensor: float32 for half types, else its own."""
    return compute_of(spec.dtype)


def own_dtypes(specs: Specs) -> tuple[DType | None, ...]:
    """Each operand's own dtype, to be cast to; None for one that is not given."""
    return tuple(None if spec.weak else spec.dtype for spec in specs)


def check_rows(op: Any, x: Spec, *axes: int) -> None:
    """Raise unless each of ``axes`` of ``x`` has elements to normalise over."""
    if any(x.shape[axis] == 0 for axis in axes):
        raise NormalizationShapeError(op.name, "the normalised axis is empty", x.shape)


def check_beside(op: Any, x: Spec, **params: Spec) -> None:
    """Raise unless each parameter has the dtype of ``x``, or float32 beside a half ``x``."""
    for name, spec in params.items():
        if is_absent(spec):
            continue
        if spec.dtype not in (x.dtype, compute_of(x.dtype)):
            what = f"{name} does not fit the dtype of the input"
            expected = " or ".join(dict.fromkeys((str(x.dtype), str(compute_of(x.dtype)))))
            hint = f"{name}.astype({str(x.dtype)!r})"
            raise NormalizationDTypeError(op.name, what, spec.dtype, expected, hint)


def check_parameter(op: Any, shape: Shape, **params: Spec) -> None:
    """Raise unless each parameter that is given has ``shape``."""
    for name, spec in params.items():
        if not is_absent(spec) and spec.shape != shape:
            raise NormalizationShapeError(op.name, f"{name} does not fit", spec.shape, shape)


def along(param: RudaTensor, axis: int, ndim: int) -> RudaTensor:
    """``param [n]`` in a shape that broadcasts along ``axis`` of ``ndim`` axes."""
    return reshape(param, (-1,) + (1,) * (ndim - axis - 1))


def positive(op: str, name: str, value: Any) -> float:
    """``value`` as a finite float above 0, or an error that names it."""
    return real_number(op, name, value, 0, ends="()", errors=NUMBER_ERRORS)


def check_tensors(op: str, **params: Any) -> None:
    """Raise unless each parameter is a tensor or None."""
    for name, value in params.items():
        if value is not None and value.__class__ is not RudaTensor:
            is_shape = isinstance(value, int | tuple)
            hint = "axis= for the axes to normalise over" if is_shape else None
            got = f"{value!r:.60} of type {type(value).__name__}"
            raise NormalizationDTypeError(op, f"{name} is no tensor", got, "a tensor or None", hint)
