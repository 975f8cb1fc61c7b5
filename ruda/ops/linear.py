"""The affine map of neural networks: a product with a transposed weight, and a bias.

One row rather than three: the bias is added where the product lies, and the gradient of the weight
comes out in the weight's own order, where that of a transposed weight would need a copy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.dtypes import NUMERIC, float32
from ruda.core.errors import DTypeError, ShapeError
from ruda.core.mode import MODE
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.complexes import conj
from ruda.ops.matmul import matmul
from ruda.ops.movement import matrix_transpose, reshape
from ruda.ops.reduce import sum
from ruda.ops.table import fused
from ruda.tensor.tensor import RudaTensor


def _dtype(op: Any, specs: tuple[Spec, ...]) -> Any:
    meet, out = rules.promote(op, tuple(s for s in specs if not s.weak))
    return tuple(None if s.weak else meet for s in specs), out


def _rows(x: RudaTensor) -> RudaTensor:
    """``x [..., n]`` as ``[rows, n]``."""
    return x if x.ndim == 2 else reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _weight_cotangent(g: RudaTensor, x: RudaTensor) -> RudaTensor:
    return matmul(matrix_transpose(_rows(g)), conj(_rows(x)))


def _bias_cotangent(g: RudaTensor) -> RudaTensor:
    return sum(g, axis=tuple(range(g.ndim - 1)))


def _reference(x: Any, w: Any, b: Any) -> Any:
    out = np.matmul(x, w.T)
    return out if b is None else np.add(out, b, out=out)


@fused(
    "linear",
    "x w b",
    shape=lambda op, specs: (*specs[0].shape[:-1], specs[1].shape[0]),
    dtype=_dtype,
    numpy=_reference,
    vjp=(lambda g, w: matmul(g, conj(w)), _weight_cotangent, _bias_cotangent),
    accepts=NUMERIC,
    optional=("b",),
    cast="low",
    bound="compute",
)
def _linear(x: RudaTensor, w: RudaTensor, b: RudaTensor | None) -> RudaTensor:
    """``x [..., in]`` times ``w [out, in]`` transposed, plus ``b [out]``."""
    out = matmul(x, matrix_transpose(w))
    return out if b is None else out + b


def linear(input: RudaTensor, weight: RudaTensor, bias: RudaTensor | None = None) -> RudaTensor:
    """``input [..., in]`` times ``weight [out, in]`` transposed, plus ``bias [out]``.

    One float dtype among all three; under ``autocast`` the product and the result are low. Raises
    ``ShapeError`` or ``DTypeError``.

    >>> linear(ruda.ones((2, 3)), ruda.ones((4, 3)), ruda.ones(4)).shape
    (2, 4)
    """
    _check(input, weight, bias)
    return _linear(input, weight, bias)


def _check(x: Any, weight: RudaTensor, bias: RudaTensor | None) -> None:
    if weight.ndim != 2 or not x.shape or x.shape[-1] != weight.shape[1]:
        got, expected = f"input {x.shape}, weight {weight.shape}", "[..., in] and [out, in]"
        raise ShapeError("linear", "the input does not fit the weight", got, expected)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError("linear", "bias does not fit the weight", bias.shape, weight.shape[:1])
    # An array has NumPy's dtype, which compares with ruda's.
    if x.dtype != weight.dtype and not _meet_low(x.dtype, weight.dtype):
        hint = f"x.astype({str(weight.dtype)!r})"
        raise DTypeError("linear", "input and weight differ in dtype", x.dtype, weight.dtype, hint)
    if bias is not None and bias.dtype is not weight.dtype:
        hint = f"bias.astype({str(weight.dtype)!r})"
        raise DTypeError("linear", "bias has another dtype", bias.dtype, weight.dtype, hint)


def _meet_low(x: Any, weight: Any) -> bool:
    """Whether autocast brings both dtypes to its own."""
    low = MODE.get().cast
    return low is not None and {x, weight} <= {low, float32}
