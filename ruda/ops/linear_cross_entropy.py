"""Cross-entropy of a linear map's outputs, a block of rows at a time.

The logits of all rows never exist together. A mean or sum that is recorded makes its gradients
going forward; all else goes by the rows without a sum.
"""

from __future__ import annotations

from ruda.core.dtypes import float16, int64
from ruda.core.errors import ShapeError
from ruda.core.mode import MODE
from ruda.core.shapes import index
from ruda.ops.counting import counts, mean_counted
from ruda.ops.cross_entropy import check_reduction
from ruda.ops.linear_cross_entropy_rows import NAME, loss_row
from ruda.ops.linear_cross_entropy_sum import sum_row
from ruda.ops.movement import reshape
from ruda.ops.reduce import sum
from ruda.ops.rowwise import rounded
from ruda.ops.scalars import real_number
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _is_float16(hidden: RudaTensor) -> bool:
    """Whether products are in float16: gradients are then scaled before they are rounded."""
    return (MODE.get().cast or hidden.dtype) is float16


@given_tensors
def linear_cross_entropy(
    hidden: RudaTensor,
    weight: RudaTensor,
    target: RudaTensor,
    *,
    bias: RudaTensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> RudaTensor:
    """``cross_entropy(hidden @ weight.T + bias, target)`` without ever holding all logits.

    ``hidden [..., H]`` and ``weight [V, H]`` of one float dtype, ``target [...]`` of class indices,
    ``bias [V]``; the options are those of ``cross_entropy``. Forward and backward compute the
    logits of a block of rows at a time, in float32 for half types. Where a mean or sum is recorded
    for backward, the gradients are computed at once and backward multiplies them.

    Raises ``ShapeError``, ``IndexRangeError`` for a target out of range, ``DTypeError``,
    ``ArgumentError``.

    >>> hidden, weight = ruda.ones((3, 2)), ruda.zeros((4, 2))
    >>> linear_cross_entropy(hidden, weight, ruda.asarray([0, 1, 3])).item()
    1.3862943649291992
    """
    check_reduction(NAME, reduction)
    smoothing = real_number(NAME, "label_smoothing", label_smoothing, 0, 1)
    rates = smoothing, real_number(NAME, "z_loss", z_loss, 0, ends="[)")
    ignore = index(ignore_index, NAME, "ignore_index")
    if not hidden.ndim or target.shape != hidden.shape[:-1]:
        got = f"hidden {hidden.shape}, target {target.shape}"
        raise ShapeError(NAME, "the target does not fit", got, "hidden [..., H], target [...]")
    rows = reshape(hidden, (target.size, hidden.shape[-1]))
    classes = reshape(target, (target.size,))
    tracked = tuple(x is not None and x.node is not None for x in (rows, weight, bias))
    if reduction != "none" and any(tracked) and MODE.get().grad and not _is_float16(rows):
        count = sum(counts(classes, ignore), dtype=int64) if reduction == "mean" else None
        return rounded(
            sum_row(rows, weight, classes, bias, count, ignore, *rates, tracked)[0], hidden
        )
    loss, _ = loss_row(rows, weight, classes, bias, ignore, *rates)
    if reduction == "none":
        return rounded(reshape(loss, target.shape), hidden)
    if reduction == "mean":
        return rounded(mean_counted(loss, classes, None, ignore), hidden)
    return rounded(sum(loss), hidden)
