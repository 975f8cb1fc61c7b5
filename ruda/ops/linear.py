"""The affine map of neural networks, as a product with a transposed weight."""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import float32
from ruda.core.errors import DTypeError, ShapeError
from ruda.core.mode import MODE
from ruda.ops.cast import astype
from ruda.ops.matmul import matmul
from ruda.ops.movement import matrix_transpose
from ruda.ops.table import composite
from ruda.tensor.tensor import RudaTensor


@composite
def linear(input: RudaTensor, weight: RudaTensor, bias: RudaTensor | None = None) -> RudaTensor:
    """``input [..., in]`` times ``weight [out, in]`` transposed, plus ``bias [out]``.

    One float dtype among all three; under ``autocast`` the product and the result are low. Raises
    ``ShapeError`` or ``DTypeError``.

    >>> linear(ruda.ones((2, 3)), ruda.ones((4, 3)), ruda.ones(4)).shape
    (2, 4)
    """
    _check(input, weight, bias)
    out = matmul(input, matrix_transpose(weight))
    if bias is None:
        return out
    # Only autocast makes the dtypes differ here.
    return out + astype(bias, out.dtype, copy=False)


def _check(x: Any, weight: RudaTensor, bias: RudaTensor | None) -> None:
    if weight.ndim != 2 or not x.shape or x.shape[-1] != weight.shape[1]:
        got, expected = (
            f"input {x.shape}, weight {weight.shape}",
            "input [..., in], weight [out, in]",
        )
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
