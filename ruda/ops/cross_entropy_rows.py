"""Cross-entropy of logits: a fused row per example, and its gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER
from ruda.core.errors import DTypeError, IndexRangeError, ShapeError
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, is_absent
from ruda.ops.cast import astype
from ruda.ops.compare import equal
from ruda.ops.counting import counts
from ruda.ops.create import arange
from ruda.ops.explog import exp
from ruda.ops.movement import expand_dims
from ruda.ops.reduce import sum
from ruda.ops.reference import rows as reference
from ruda.ops.rowwise import along, check_beside, check_rows, statistics_dtype, wide
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.statistics import logsumexp
from ruda.ops.table import fused
from ruda.tensor.tensor import RudaTensor

NAME = "cross_entropy"


def check_operands(op: Any, logits: Spec, target: Spec, weight: Spec, axis: int) -> Shape:
    """Operands that fit together; returns the shape of one value per example."""
    check_rows(op, logits, axis)
    rows = logits.shape[:axis] + logits.shape[axis + 1 :]
    if target.shape != rows:
        raise ShapeError(op.name, "the target does not fit", target.shape, rows)
    if not is_absent(weight) and weight.shape != (logits.shape[axis],):
        expected = (logits.shape[axis],)
        raise ShapeError(op.name, "one weight per class is needed", weight.shape, expected)
    return rows


def _shape(op: Any, specs: Specs, axis: int, *_: Any) -> Any:
    rows = check_operands(op, specs[0], specs[1], specs[2], axis)
    return rows, rows


def _cast(op: Any, specs: Specs, logits: int) -> Any:
    """What operands are cast to: logits at their place, the target after them."""
    x, target = specs[logits], specs[logits + 1]
    if x.dtype not in FLOAT:
        raise DTypeError(op.name, "logits of another kind", x.dtype, "a real floating dtype")
    if not target.dtype.is_integer:
        raise DTypeError(op.name, "the target is not of class indices", target.dtype, "integers")
    check_beside(op, x, weight=specs[-1])
    return tuple(None if s.weak or s is target else s.dtype for s in specs)


def dtype_rule(op: Any, specs: Specs, *_: Any) -> Any:
    """The dtype rule of ``cross_entropy``."""
    return _cast(op, specs, 0), (statistics_dtype(specs[0]),) * 2


def _backward_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    dy, x = specs[:2]
    casts = _cast(op, specs, 1)
    if not dy.weak and dy.dtype not in (x.dtype, statistics_dtype(x)):
        expected = " or ".join(dict.fromkeys((str(x.dtype), str(statistics_dtype(x)))))
        hint = f"dy.astype({str(statistics_dtype(x))!r})"
        raise DTypeError(
            op.name, "dy does not fit the dtype of the logits", dy.dtype, expected, hint
        )
    return casts, x.dtype


def _rows(logits: Any, axis: int) -> Any:
    """Logits as [N, V], a view where the layout allows."""
    if logits.ndim == 2 and axis == 1:
        return logits
    moved = np.moveaxis(logits, axis, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


def check_classes(op: str, target: Any, classes: int, ignore: int) -> None:
    """Raise unless each element of an ndarray of targets is a class or ``ignore``."""
    low, high = np.minimum.reduce, np.maximum.reduce
    if not target.size or (low(target, axis=None) >= 0 and high(target, axis=None) < classes):
        return
    bad = (target != ignore) & ((target < 0) | (target >= classes))
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        expected = f"0 to {classes - 1}, or ignore_index={ignore}"
        raise IndexRangeError(op, "no such class", f"{target[place]} at {place}", expected)


def _forward(
    logits: Any, target: Any, weight: Any, axis: int, ignore: int, smoothing: float, z_loss: float
) -> Any:
    check_classes("cross_entropy", target, logits.shape[axis], ignore)
    rows = _rows(logits, axis)
    outs = reference.cross_entropy(rows, target.reshape(-1), weight, ignore, smoothing, z_loss)
    return tuple(out.reshape(target.shape) for out in outs)


def _backward(
    dy: Any,
    logits: Any,
    target: Any,
    lse: Any,
    weight: Any,
    axis: int,
    ignore: int,
    smoothing: float,
    z_loss: float,
) -> Any:
    rows = _rows(logits, axis)
    flat = (v.reshape(-1) for v in (dy, target, lse))
    g, index, level = flat
    dx = reference.cross_entropy_backward(g, rows, index, level, weight, ignore, smoothing, z_loss)
    if rows is logits:
        return dx
    moved = dx.reshape(np.moveaxis(logits, axis, -1).shape)
    return np.moveaxis(moved, -1, axis)


def _hot(target: RudaTensor, classes: int, axis: int) -> RudaTensor:
    """Where a class is the target: bool, with the axis of classes at ``axis``."""
    place = arange(classes, dtype=target.dtype, device=target.device)
    return equal(expand_dims(target, axis), along(place, axis, target.ndim + 1))


def _class_weights(weight: Any, hot: RudaTensor, axis: int) -> Any:
    """The weight of each example's class, and all weights along the axis."""
    if weight is None:
        return 1, 1
    full = along(wide(weight), axis, hot.ndim)
    return sum(where(hot, full, 0), axis=axis), full


@fused(
    "cross_entropy_backward",
    "dy logits target lse weight",
    "axis ignore_index label_smoothing z_loss",
    shape=lambda op, specs, *_: specs[1].shape,
    takes={"dy": FLOAT, "logits": FLOAT, "target": INTEGER},
    dtype=_backward_dtype,
    numpy=_backward,
    optional=("weight",),
    cast="high",
)
def backward_row(
    dy: RudaTensor,
    logits: RudaTensor,
    target: RudaTensor,
    lse: RudaTensor,
    weight: Any,
    axis: int,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
) -> RudaTensor:
    """Gradient of the loss of each example in its logits."""
    dy, lse, classes = wide(dy), wide(lse), logits.shape[axis]
    hot = _hot(target, classes, axis)
    own, each = _class_weights(weight, hot, axis)
    spread = label_smoothing / classes
    share = dy * (1 - label_smoothing) * own
    mass = classes if weight is None else sum(wide(weight))
    slope = share + dy * (spread * mass) + dy * lse * (2 * z_loss)
    p = exp(wide(logits) - expand_dims(lse, axis))
    dx = p * expand_dims(slope, axis) - where(hot, expand_dims(share, axis), 0)
    if spread:
        dx = dx - expand_dims(dy * spread, axis) * each
    valid = expand_dims(counts(target, ignore_index), axis)
    return astype(where(valid, dx, 0), logits.dtype, copy=False)


def logits_vjp(
    g: Any,
    logits: Any,
    target: Any,
    weight: Any,
    lse: Any,
    axis: int,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
) -> Any:
    dx = None
    if g[0] is not None:
        dx = backward_row(
            g[0], logits, target, lse, weight, axis, ignore_index, label_smoothing, z_loss
        )
    if g[1] is not None:
        p = exp(wide(logits) - expand_dims(lse, axis))
        part = p * expand_dims(g[1], axis)
        dx = part if dx is None else dx + part
    return dx


def _weight_vjp(
    g: Any,
    logits: Any,
    target: Any,
    lse: Any,
    axis: int,
    ignore_index: int,
    label_smoothing: float,
) -> Any:
    if g[0] is None:
        return None
    dy = expand_dims(where(counts(target, ignore_index), g[0], 0), axis)
    surprise = dy * (expand_dims(lse, axis) - wide(logits))
    spread = label_smoothing / logits.shape[axis]
    hot = where(_hot(target, logits.shape[axis], axis), 1 - label_smoothing + spread, spread)
    return sum(surprise * hot, axis=tuple(i for i in range(logits.ndim) if i != axis))


@fused(
    NAME,
    "logits target weight",
    "axis ignore_index label_smoothing z_loss",
    "loss lse",
    shape=_shape,
    takes={"logits": FLOAT, "target": INTEGER},
    dtype=dtype_rule,
    numpy=_forward,
    vjp=(logits_vjp, None, _weight_vjp),
    optional=("weight",),
    cast="high",
)
def loss_row(
    logits: RudaTensor,
    target: RudaTensor,
    weight: Any,
    axis: int,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
) -> Any:
    """The loss of each example and the log-sum-exp of its logits, in float32 or float64."""
    x, classes = wide(logits), logits.shape[axis]
    hot = _hot(target, classes, axis)
    lse = logsumexp(x, axis=axis)
    own, each = _class_weights(weight, hot, axis)
    loss = (lse - sum(where(hot, x, 0), axis=axis)) * own * (1 - label_smoothing)
    if label_smoothing:
        mass = classes if weight is None else sum(wide(weight))
        loss = loss + (lse * mass - sum(x * each, axis=axis)) * (label_smoothing / classes)
    if z_loss:
        loss = loss + lse * lse * z_loss
    return where(counts(target, ignore_index), loss, 0), lse
