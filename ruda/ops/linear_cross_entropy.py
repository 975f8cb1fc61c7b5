"""Cross-entropy of a linear map's outputs, a block of rows at a time.

The logits of all rows never exist together. A mean or sum that is recorded makes its gradients
going forward, while a block of logits is there; backward multiplies them by a number. Where each
row has a cotangent of its own (no reduction), and in float16, whose small gradients must be scaled
before they are rounded, forward keeps the log-sum-exp of each row and backward computes the logits
of a block again. Blocks hold as many rows as fit into ``ELEMENTS`` logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER, DType, bfloat16, compute_of, float16, int64
from ruda.core.errors import DTypeError, GradientError, ShapeError
from ruda.core.mode import MODE
from ruda.core.shapes import index
from ruda.core.spec import Spec, is_absent
from ruda.ops.arith import add, divide, multiply, subtract
from ruda.ops.cast import astype
from ruda.ops.class_gradient import class_gradient
from ruda.ops.counting import counts, mean_counted
from ruda.ops.create import full_like, zeros
from ruda.ops.cross_entropy import check_classes, check_reduction
from ruda.ops.getitem import getitem
from ruda.ops.join import concat
from ruda.ops.matmul import matmul
from ruda.ops.movement import broadcast_to, matrix_transpose, reshape
from ruda.ops.reduce import sum
from ruda.ops.reference import rows as reference
from ruda.ops.rowwise import check_beside, rounded, statistics_dtype, wide
from ruda.ops.rules import Specs
from ruda.ops.scalars import real_number
from ruda.ops.select import where
from ruda.ops.table import FALLBACK, TABLE, fused
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

# On a processor a block should stay in its caches; a device wants products of some size.
ELEMENTS, DEVICE_ELEMENTS = 1 << 22, 1 << 26
_NAME = "linear_cross_entropy"


def _blocks(rows: int, classes: int, elements: int | None = None) -> Iterator[slice]:
    size = max(1, (elements or ELEMENTS) // max(1, classes))
    # Whole tiles of a product.
    size -= size % 256 if size > 256 else 0
    return (slice(i, min(i + size, rows)) for i in range(0, max(rows, 1), size))


def _check(op: Any, hidden: Spec, weight: Spec, target: Spec, bias: Spec) -> None:
    got = f"hidden {hidden.shape}, weight {weight.shape}"
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1]:
        raise ShapeError(op.name, "hidden and weight do not fit", got, "[..., H] and [V, H]")
    if not weight.shape[0]:
        raise ShapeError(op.name, "there are no classes", got, "a weight [V, H] with V above 0")
    if target.shape != hidden.shape[:1]:
        raise ShapeError(op.name, "the target does not fit", target.shape, hidden.shape[:1])
    if not is_absent(bias) and bias.shape != weight.shape[:1]:
        raise ShapeError(op.name, "one bias per class is needed", bias.shape, weight.shape[:1])


def _cast(op: Any, hidden: Spec, weight: Spec, target: Spec, bias: Spec) -> tuple[Any, ...]:
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
    _check(op, *specs)
    return specs[2].shape, specs[2].shape


def _dtype(op: Any, specs: Specs, *_: Any) -> Any:
    return _cast(op, *specs), (statistics_dtype(specs[0]),) * 2


def _backward_shape(op: Any, specs: Specs, *_: Any) -> Any:
    hidden, weight, bias = specs[2], specs[3], specs[5]
    return hidden.shape, weight.shape, (0,) if is_absent(bias) else bias.shape


def _backward_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    hidden, weight, bias = specs[2], specs[3], specs[5]
    casts = _cast(op, *specs[2:6])
    kinds = tuple(None if is_absent(s) else s.dtype for s in (*specs[:2], specs[6]))
    last = hidden.dtype if is_absent(bias) else bias.dtype
    return (*kinds[:2], *casts, kinds[2]), (hidden.dtype, weight.dtype, last)


def _logits_of(hidden: Any, weight: Any, bias: Any) -> Any:
    x = hidden @ weight.T
    return x if bias is None else np.add(x, bias, out=x)


def _forward(hidden: Any, weight: Any, target: Any, bias: Any, ignore: int, *rates: float) -> Any:
    check_classes(_NAME, target, len(weight), ignore)
    outs = np.empty((2, len(hidden)), hidden.dtype)
    for block in _blocks(len(hidden), len(weight)):
        logits = _logits_of(hidden[block], weight, bias)
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
    for block in _blocks(len(hidden), len(weight)):
        x, level = _logits_of(hidden[block], weight, bias), lse[block]
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


def _is_float16(hidden: RudaTensor) -> bool:
    """Whether products are in float16: gradients are then scaled before they are rounded."""
    return (MODE.get().cast or hidden.dtype) is float16


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
def _backward_row(
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
    for block in _blocks(len(weight), len(hidden), DEVICE_ELEMENTS):
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
    dhidden, dweight, dbias = _backward_row(*g, hidden, weight, target, bias, lse, *attrs)
    return dhidden, dweight, None, None if bias is None else dbias


@fused(
    _NAME,
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
def _row(hidden: RudaTensor, weight: RudaTensor, target: RudaTensor, bias: Any, *attrs: Any) -> Any:
    """The loss of each row and the log-sum-exp of its logits, in float32 or float64."""
    row = TABLE["cross_entropy"].call
    parts = [
        row(_logits(getitem(hidden, b), weight, bias), getitem(target, b), None, 1, *attrs)
        for b in _blocks(len(hidden), len(weight), DEVICE_ELEMENTS)
    ]
    return tuple(concat(out) for out in zip(*parts, strict=True))


def _sum_shape(op: Any, specs: Specs, *attrs: Any) -> Any:
    hidden, weight, _, bias, count = specs
    _check(op, *specs[:4])
    if count.shape and not is_absent(count):
        raise ShapeError(op.name, "the count is not one number", count.shape, "()")
    shapes = hidden.shape, weight.shape, (0,) if is_absent(bias) else bias.shape
    return (), *(s if want else (0,) for s, want in zip(shapes, attrs[-1], strict=True))


def _sum_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    hidden, weight, bias = specs[0], specs[1], specs[3]
    kind = statistics_dtype(hidden)
    last = hidden.dtype if is_absent(bias) else bias.dtype
    return (*_cast(op, *specs[:4]), None), (kind, hidden.dtype, weight.dtype, last)


def _sum(
    hidden: Any, weight: Any, target: Any, bias: Any, count: Any, ignore: int, *attrs: Any
) -> Any:
    *rates, wanted = attrs
    check_classes(_NAME, target, len(weight), ignore)
    loss, one = hidden.dtype.type(0), hidden.dtype.type(1)
    factor = one if count is None else np.divide(one, hidden.dtype.type(count))
    pairs = zip((hidden, weight), wanted, strict=False)
    dhidden, dweight = (np.zeros(x.shape if want else 0, x.dtype) for x, want in pairs)
    dbias = np.zeros(len(bias) if bias is not None and wanted[2] else 0, weight.dtype)
    for block in _blocks(len(hidden), len(weight)):
        x, t = _logits_of(hidden[block], weight, bias), target[block]
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
        _, lse = _row(hidden, weight, target, bias, *attrs)
        found = _backward_row(dy, None, hidden, weight, target, bias, lse, *attrs)
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


@fused(
    "linear_cross_entropy_scaled",
    "x factor",
    "spent",
    shape=lambda op, specs, spent: specs[0].shape,
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
def _sum_row(
    hidden: RudaTensor,
    weight: RudaTensor,
    target: RudaTensor,
    bias: Any,
    count: Any,
    *attrs: Any,
) -> Any:
    """The sum of the losses over ``count``, and its gradients; length 0 where not ``wanted``."""
    *rates, wanted = attrs
    loss, lse = _row(hidden, weight, target, bias, *rates)
    count = 1 if count is None else astype(count, loss.dtype)
    dy = divide(full_like(lse, 1), count)
    found = _backward_row(dy, None, hidden, weight, target, bias, lse, *rates)
    none = (zeros(0, dtype=x.dtype, device=x.device) for x in found)
    made = (x if want else z for x, z, want in zip(found, none, wanted, strict=True))
    return divide(sum(loss), count), *made


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
    check_reduction(_NAME, reduction)
    smoothing = real_number(_NAME, "label_smoothing", label_smoothing, 0, 1)
    rates = smoothing, real_number(_NAME, "z_loss", z_loss, 0, ends="[)")
    ignore = index(ignore_index, _NAME, "ignore_index")
    if not hidden.ndim or target.shape != hidden.shape[:-1]:
        got = f"hidden {hidden.shape}, target {target.shape}"
        raise ShapeError(_NAME, "the target does not fit", got, "hidden [..., H], target [...]")
    rows = reshape(hidden, (target.size, hidden.shape[-1]))
    classes = reshape(target, (target.size,))
    tracked = tuple(x is not None and x.node is not None for x in (rows, weight, bias))
    if reduction != "none" and any(tracked) and MODE.get().grad and not _is_float16(rows):
        count = sum(counts(classes, ignore), dtype=int64) if reduction == "mean" else None
        return rounded(
            _sum_row(rows, weight, classes, bias, count, ignore, *rates, tracked)[0], hidden
        )
    loss, _ = _row(rows, weight, classes, bias, ignore, *rates)
    if reduction == "none":
        return rounded(reshape(loss, target.shape), hidden)
    if reduction == "mean":
        return rounded(mean_counted(loss, classes, None, ignore), hidden)
    return rounded(sum(loss), hidden)
