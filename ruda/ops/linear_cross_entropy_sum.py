"""The sum of a linear map's cross-entropies together with its gradients, made going forward.

Where a kernel makes both from a block of logits, these need not be computed again for the gradient;
backward multiplies by what arrives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER
from ruda.core.errors import GradientError, ShapeError
from ruda.core.mode import MODE
from ruda.core.spec import is_absent
from ruda.ops.arith import divide, multiply
from ruda.ops.cast import astype
from ruda.ops.create import full_like, zeros
from ruda.ops.cross_entropy_rows import check_classes
from ruda.ops.linear_cross_entropy_rows import (
    NAME,
    backward_row,
    blocks,
    cast,
    check,
    logits_of,
    loss_row,
)
from ruda.ops.movement import broadcast_to
from ruda.ops.reduce import sum
from ruda.ops.reference import rows as reference
from ruda.ops.rowwise import statistics_dtype, wide
from ruda.ops.rules import Specs
from ruda.ops.table import fused
from ruda.tensor.tensor import RudaTensor


def _sum_shape(op: Any, specs: Specs, *attrs: Any) -> Any:
    hidden, weight, _, bias, count = specs
    check(op, *specs[:4])
    if count.shape and not is_absent(count):
        raise ShapeError(op.name, "the count is not one number", count.shape, "()")
    shapes = hidden.shape, weight.shape, (0,) if is_absent(bias) else bias.shape
    return (), *(s if want else (0,) for s, want in zip(shapes, attrs[-1], strict=True))


def _sum_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    hidden, weight, bias = specs[0], specs[1], specs[3]
    kind = statistics_dtype(hidden)
    last = hidden.dtype if is_absent(bias) else bias.dtype
    return (*cast(op, *specs[:4]), None), (kind, hidden.dtype, weight.dtype, last)


def _sum(
    hidden: Any, weight: Any, target: Any, bias: Any, count: Any, ignore: int, *attrs: Any
) -> Any:
    *rates, wanted = attrs
    check_classes(NAME, target, len(weight), ignore)
    loss, one = hidden.dtype.type(0), hidden.dtype.type(1)
    factor = one if count is None else np.divide(one, hidden.dtype.type(count))
    pairs = zip((hidden, weight), wanted, strict=False)
    dhidden, dweight = (np.zeros(x.shape if want else 0, x.dtype) for x, want in pairs)
    dbias = np.zeros(len(bias) if bias is not None and wanted[2] else 0, weight.dtype)
    for block in blocks(len(hidden), len(weight)):
        x, t = logits_of(hidden[block], weight, bias), target[block]
        parts, lse = reference.cross_entropy(x, t, None, ignore, *rates)
        loss += parts.sum()
        dx = reference.cross_entropy_backward(
            np.full_like(lse, factor), x, t, lse, None, ignore, *rates
        )
        if wanted[0]:
            dhidden[block] = dx @ weight
        if wanted[1]:
            dweight += dx.T @ hidden[block]
        if len(dbias):
            dbias += dx.sum(axis=0)
    return loss if count is None else loss / hidden.dtype.type(count), dhidden, dweight, dbias


def _sum_vjp(
    g: Any,
    needs: Any,
    hidden: Any,
    weight: Any,
    target: Any,
    bias: Any,
    count: Any,
    dhidden: Any,
    dweight: Any,
    dbias: Any,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    wanted: tuple[bool, ...],
) -> Any:
    if g[0] is None or any(each is not None and each.size for each in g[1:]):
        what = "its gradients are for the tape alone, and have none of their own"
        raise GradientError("linear_cross_entropy_sum", what, hint="linear_cross_entropy")
    made = dhidden, dweight, None, dbias
    lacks = any(
        need and not want for need, want in zip((*needs[:2], needs[3]), wanted, strict=True)
    )
    if lacks or MODE.get().grad:
        # What is differentiated again has to follow from the operands.
        attrs = ignore_index, label_smoothing, z_loss
        dy = broadcast_to(g[0] if count is None else divide(g[0], count), target.shape)
        _, lse = loss_row(hidden, weight, target, bias, *attrs)
        found = backward_row(dy, None, hidden, weight, target, bias, lse, *attrs)
        return found[0], found[1], None, None if bias is None else found[2], None
    dx = (
        _times(x, g[0]) if x is not None and need else None
        for x, need in zip(made, needs[:4], strict=True)
    )
    return *dx, None


def _times(x: RudaTensor, factor: RudaTensor) -> RudaTensor:
    """A gradient times a number, in its own memory where nobody else will look at it."""
    if MODE.get().last:
        return _scaled(x, factor, True)
    return astype(multiply(wide(x), factor), x.dtype, copy=False)


def _scaled_shape(op: Any, specs: Specs, spent: bool) -> Any:
    x, factor = specs
    if factor.shape:
        raise ShapeError(op.name, "the factor is not one number", factor.shape, "()")
    return x.shape


@fused(
    "linear_cross_entropy_scaled",
    "x factor",
    "spent",
    shape=_scaled_shape,
    accepts=FLOAT,
    dtype=lambda op, specs, spent: ((None, None), specs[0].dtype),
    numpy=lambda x, factor, spent: x * factor,
    cast="low",
)
def _scaled(x: RudaTensor, factor: RudaTensor, spent: bool) -> RudaTensor:
    """``x * factor`` in the dtype of ``x``; a device may overwrite ``x`` where it is ``spent``."""
    return astype(multiply(wide(x), factor), x.dtype, copy=False)


@fused(
    "linear_cross_entropy_sum",
    "hidden weight target bias count",
    "ignore_index label_smoothing z_loss wanted",
    "loss dhidden dweight dbias",
    shape=_sum_shape,
    takes={"hidden": FLOAT, "weight": FLOAT, "target": INTEGER},
    dtype=_sum_dtype,
    numpy=_sum,
    vjp=_sum_vjp,
    optional=("bias", "count"),
    cast="low",
    bound="compute",
)
def sum_row(
    hidden: RudaTensor,
    weight: RudaTensor,
    target: RudaTensor,
    bias: Any,
    count: Any,
    *attrs: Any,
) -> Any:
    """The sum of the losses over ``count``, and its gradients; length 0 where not ``wanted``."""
    *rates, wanted = attrs
    loss, lse = loss_row(hidden, weight, target, bias, *rates)
    count = 1 if count is None else astype(count, loss.dtype)
    dy = divide(full_like(lse, 1), count)
    found = backward_row(dy, None, hidden, weight, target, bias, lse, *rates)
    none = (zeros(0, dtype=x.dtype, device=x.device) for x in found)
    made = (x if want else z for x, z, want in zip(found, none, wanted, strict=True))
    return divide(sum(loss), count), *made
