"""The losses of a linear map's outputs, and their gradients from given cotangents, in blocks.

Forward keeps the log-sum-exp of each row, and backward computes the logits of a block again: where
each row has a cotangent of its own (no reduction), in float16, whose small gradients must be scaled
before they are rounded, and wherever nothing is recorded. Blocks of forward hold as many rows as
fit into ``ELEMENTS`` logits, on a device into ``DEVICE_ELEMENTS``; backward on a device
cuts classes in place of rows, as many as fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER, DType, bfloat16, compute_of, int64
from ruda.core.errors import DTypeError, ShapeError
from ruda.core.spec import Spec, is_absent
from ruda.ops.arith import add, multiply, subtract
from ruda.ops.cast import astype
from ruda.ops.class_gradient import class_gradient
from ruda.ops.counting import counts
from ruda.ops.create import zeros
from ruda.ops.cross_entropy_rows import check_classes
from ruda.ops.getitem import getitem
from ruda.ops.join import concat
from ruda.ops.matmul import matmul
from ruda.ops.movement import matrix_transpose
from ruda.ops.reduce import sum
from ruda.ops.reference import rows as reference
from ruda.ops.rowwise import check_beside, statistics_dtype, wide
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.table import FALLBACK, TABLE, fused
from ruda.tensor.tensor import RudaTensor

# On a processor a block should stay in its caches; a device wants products of some size.
ELEMENTS, DEVICE_ELEMENTS = 1 << 22, 1 << 26
NAME = "linear_cross_entropy"


def blocks(rows: int, classes: int, elements: int | None = None) -> Iterator[slice]:
    """Slices of rows whose logits fit together."""
    size = max(1, (elements or ELEMENTS) // max(1, classes))
    # Whole tiles of a product.
    size -= size % 256 if size > 256 else 0
    return (slice(i, min(i + size, rows)) for i in range(0, max(rows, 1), size))


def check(op: Any, hidden: Spec, weight: Spec, target: Spec, bias: Spec) -> None:
    """Raise ``ShapeError`` unless the operands fit."""
    got = f"hidden {hidden.shape}, weight {weight.shape}"
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1]:
        raise ShapeError(op.name, "hidden and weight do not fit", got, "[..., H] and [V, H]")
    if not weight.shape[0]:
        raise ShapeError(op.name, "there are no classes", got, "a weight [V, H] with V above 0")
    if target.shape != hidden.shape[:1]:
        raise ShapeError(op.name, "the target does not fit", target.shape, hidden.shape[:1])
    if not is_absent(bias) and bias.shape != weight.shape[:1]:
        raise ShapeError(op.name, "one bias per class is needed", bias.shape, weight.shape[:1])


def cast(op: Any, hidden: Spec, weight: Spec, target: Spec, bias: Spec) -> tuple[Any, ...]:
    """What the operands are cast to; raises ``DTypeError``."""
    x = hidden.dtype
    if x not in FLOAT:
        raise DTypeError(op.name, "hidden is of another kind", x, "a real floating dtype")
    if weight.dtype is not x:
        hint = f"weight.astype({str(x)!r})"
        raise DTypeError(op.name, "weight has another dtype", weight.dtype, x, hint)
    if not target.dtype.is_integer:
        raise DTypeError(op.name, "the target is not of class indices", target.dtype, "integers")
    check_beside(op, hidden, bias=bias)
    return x, x, None, None if is_absent(bias) else bias.dtype


def _shape(op: Any, specs: Specs, *_: Any) -> Any:
    check(op, *specs)
    return specs[2].shape, specs[2].shape


def _dtype(op: Any, specs: Specs, *_: Any) -> Any:
    return cast(op, *specs), (statistics_dtype(specs[0]),) * 2


def _backward_shape(op: Any, specs: Specs, *_: Any) -> Any:
    hidden, weight, bias = specs[2], specs[3], specs[5]
    return hidden.shape, weight.shape, (0,) if is_absent(bias) else bias.shape


def _backward_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    hidden, weight, bias = specs[2], specs[3], specs[5]
    casts = cast(op, *specs[2:6])
    kinds = tuple(None if is_absent(s) else s.dtype for s in (*specs[:2], specs[6]))
    last = hidden.dtype if is_absent(bias) else bias.dtype
    return (*kinds[:2], *casts, kinds[2]), (hidden.dtype, weight.dtype, last)


def logits_of(hidden: Any, weight: Any, bias: Any) -> Any:
    """The logits of some rows, in NumPy."""
    x = hidden @ weight.T
    return x if bias is None else np.add(x, bias, out=x)


def _forward(hidden: Any, weight: Any, target: Any, bias: Any, ignore: int, *rates: float) -> Any:
    check_classes(NAME, target, len(weight), ignore)
    outs = np.empty((2, len(hidden)), hidden.dtype)
    for block in blocks(len(hidden), len(weight)):
        logits = logits_of(hidden[block], weight, bias)
        outs[:, block] = reference.cross_entropy(logits, target[block], None, ignore, *rates)
    return outs[0], outs[1]


def _backward(
    dy: Any,
    dlse: Any,
    hidden: Any,
    weight: Any,
    target: Any,
    bias: Any,
    lse: Any,
    ignore: int,
    *rates: float,
) -> Any:
    dy = np.zeros_like(lse) if dy is None else dy
    dhidden, dweight = np.empty_like(hidden), np.zeros_like(weight)
    dbias = np.zeros(0 if bias is None else len(bias), weight.dtype)
    for block in blocks(len(hidden), len(weight)):
        x, level = logits_of(hidden[block], weight, bias), lse[block]
        given = (dy[block], x, target[block], level, None, ignore, *rates)
        dx = reference.cross_entropy_backward(*given)
        if dlse is not None:
            dx += np.exp(x - level[:, None]) * dlse[block, None]
        dhidden[block] = dx @ weight
        dweight += dx.T @ hidden[block]
        if bias is not None:
            dbias += dx.sum(axis=0)
    return dhidden, dweight, dbias


def _product_dtype(hidden: RudaTensor) -> DType:
    """What the gradient in the logits is rounded to, for products with it.

    bfloat16 reaches as far down as float32 does; most of them would be nothing in float16.
    """
    return hidden.dtype if hidden.dtype is bfloat16 else compute_of(hidden.dtype)


def _logits(hidden: RudaTensor, weight: RudaTensor, bias: RudaTensor | None) -> RudaTensor:
    kind = compute_of(hidden.dtype)
    x = matmul(hidden, matrix_transpose(weight), out_dtype=None if kind is hidden.dtype else kind)
    return x if bias is None else add(x, wide(bias))


@fused(
    "linear_cross_entropy_backward",
    "dy dlse hidden weight target bias lse",
    "ignore_index label_smoothing z_loss",
    "dhidden dweight dbias",
    shape=_backward_shape,
    takes={"hidden": FLOAT, "weight": FLOAT, "target": INTEGER},
    dtype=_backward_dtype,
    numpy=_backward,
    optional=("dy", "dlse", "bias"),
    cast="low",
    bound="compute",
    cuda=FALLBACK("chunks of products by the library, with row kernels between them"),
)
def backward_row(
    dy: Any,
    dlse: Any,
    hidden: RudaTensor,
    weight: RudaTensor,
    target: RudaTensor,
    bias: Any,
    lse: RudaTensor,
    *attrs: Any,
) -> Any:
    """Gradients in hidden states, weight and bias; that of an absent bias has length 0.

    A block of classes at a time: its part of the weight's gradient is then complete.
    """
    ignore, smoothing, z_loss = attrs
    valid, lse = counts(target, ignore), wide(lse)
    dy = multiply(lse, 0) if dy is None else where(valid, wide(dy), 0)
    slope = add(dy, multiply(multiply(dy, lse), 2 * z_loss)) if z_loss else dy
    slope = slope if dlse is None else add(slope, wide(dlse))
    share, flat = multiply(dy, 1 - smoothing), multiply(dy, smoothing / len(weight))
    kind = _product_dtype(hidden)
    x, own_class, parts = astype(hidden, kind, copy=False), astype(target, int64), []
    dhidden: Any = None
    for block in blocks(len(weight), len(hidden), DEVICE_ELEMENTS):
        w = getitem(weight, block)
        logits = _logits(hidden, w, None if bias is None else getitem(bias, block))
        place = subtract(own_class, block.start)
        dx = class_gradient(logits, place, lse, slope, share, flat, kind)
        own = matmul(dx, astype(w, kind, copy=False), out_dtype=lse.dtype)
        dhidden = own if dhidden is None else add(dhidden, own)
        dbias = None if bias is None else astype(sum(dx, axis=0, dtype=lse.dtype), bias.dtype)
        parts.append((astype(matmul(matrix_transpose(dx), x), weight.dtype, copy=False), dbias))
    dweights, dbiases = zip(*parts, strict=True)
    last = zeros(0, dtype=hidden.dtype, device=hidden.device) if bias is None else concat(dbiases)
    return astype(dhidden, hidden.dtype, copy=False), concat(dweights), last


def _vjp(
    g: Any,
    hidden: Any,
    weight: Any,
    target: Any,
    bias: Any,
    lse: Any,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
) -> Any:
    attrs = (ignore_index, label_smoothing, z_loss)
    dhidden, dweight, dbias = backward_row(*g, hidden, weight, target, bias, lse, *attrs)
    return dhidden, dweight, None, None if bias is None else dbias


@fused(
    NAME,
    "hidden weight target bias",
    "ignore_index label_smoothing z_loss",
    "loss lse",
    shape=_shape,
    takes={"hidden": FLOAT, "weight": FLOAT, "target": INTEGER},
    dtype=_dtype,
    numpy=_forward,
    vjp=_vjp,
    optional=("bias",),
    cast="low",
    bound="compute",
    cuda=FALLBACK("chunks of products by the library, with row kernels between them"),
)
def loss_row(
    hidden: RudaTensor, weight: RudaTensor, target: RudaTensor, bias: Any, *attrs: Any
) -> Any:
    """The loss of each row and the log-sum-exp of its logits, in float32 or float64."""
    row = TABLE["cross_entropy"].call
    parts = [
        row(_logits(getitem(hidden, b), weight, bias), getitem(target, b), None, 1, *attrs)
        for b in blocks(len(hidden), len(weight), DEVICE_ELEMENTS)
    ]
    return tuple(concat(out) for out in zip(*parts, strict=True))
