"""Cross-entropy of logits with classes or probabilities, and the reductions of losses."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import index, normalize_axis
from ruda.ops.counting import mean_counted
from ruda.ops.cross_entropy_ahead import ahead
from ruda.ops.cross_entropy_rows import NAME, loss_row
from ruda.ops.reduce import sum
from ruda.ops.rowwise import along, rounded, wide
from ruda.ops.scalars import real_number
from ruda.ops.softmax import log_softmax
from ruda.ops.statistics import logsumexp
from ruda.ops.statistics import mean as mean_of
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

REDUCTIONS = ("none", "mean", "sum")


@given_tensors
def cross_entropy(
    logits: RudaTensor,
    target: RudaTensor,
    *,
    axis: int = -1,
    weight: RudaTensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> RudaTensor:
    """``-log softmax(logits)[target]`` along ``axis``, the classes.

    ``logits [..., V]`` of a float dtype; ``target [...]`` of class indices, or probabilities of
    the shape and dtype of ``logits``. ``weight [V]`` scales each class; examples of
    ``ignore_index`` count nowhere; ``label_smoothing`` s moves s of the target's mass to all
    classes evenly; ``z_loss`` adds ``z_loss * logsumexp(logits) ** 2``. The ``"mean"`` divides by
    the weights of the targets counted (by the number of examples for probabilities); ``"sum"`` and
    ``"none"`` do not. Computed in float32 for half types.

    Raises ``ShapeError`` for a target that does not fit (and says so if it would with another
    axis), ``IndexRangeError`` for one out of range, ``DTypeError``, ``ArgumentError``.

    >>> cross_entropy(ruda.asarray([[0.0, 0.0]]), ruda.asarray([1])).item()
    0.6931471824645996
    """
    name = NAME
    along_axis = normalize_axis(axis, logits.ndim, name)
    smoothing = real_number(name, "label_smoothing", label_smoothing, 0, 1)
    z = real_number(name, "z_loss", z_loss, 0, ends="[)")
    check_reduction(name, reduction)
    if target.dtype.is_floating:
        return _of_probabilities(logits, target, along_axis, weight, smoothing, z, reduction)
    _check_target(logits, target, along_axis)
    ignore = index(ignore_index, name, "ignore_index")
    if reduction != "none" and weight is None:
        attrs = ignore, smoothing, z, reduction == "mean"
        found = ahead(logits, target, along_axis, *attrs)
        if found is not None:
            return found
    loss, _ = loss_row(logits, target, weight, along_axis, ignore, smoothing, z)
    if reduction == "mean":
        return rounded(mean_counted(loss, target, weight, ignore), logits)
    return rounded(loss if reduction == "none" else sum(loss), logits)


def _check_target(logits: RudaTensor, target: RudaTensor, axis: int) -> None:
    shape = logits.shape
    expected = shape[:axis] + shape[axis + 1 :]
    if target.shape == expected:
        return
    hint = None
    if axis != 1 and len(shape) > 1 and target.shape == shape[:1] + shape[2:]:
        hint = "axis=1: the target fits if the classes lie there"
    elif target.shape == shape:
        hint = f'target.argmax(axis={axis}), or target.astype("float32") if it is probabilities'
    elif target.size == math.prod(expected):
        hint = f"target.reshape({expected})"
    what = f"the target does not fit logits {shape} with classes on axis {axis}"
    raise ShapeError("cross_entropy", what, target.shape, expected, hint)


def _of_probabilities(
    logits: RudaTensor,
    target: RudaTensor,
    axis: int,
    weight: RudaTensor | None,
    smoothing: float,
    z_loss: float,
    reduction: str,
) -> RudaTensor:
    name = NAME
    if target.shape != logits.shape:
        what = "a target of probabilities does not fit"
        hint = "target.astype('int64') if these are classes"
        raise ShapeError(name, what, target.shape, logits.shape, hint)
    if target.dtype is not logits.dtype:
        hint = f"target.astype({str(logits.dtype)!r})"
        raise DTypeError(name, "the target has another dtype", target.dtype, logits.dtype, hint)
    x, p = wide(logits), wide(target)
    if smoothing:
        p = p * (1 - smoothing) + smoothing / x.shape[axis]
    terms = p * log_softmax(x, axis)
    if weight is not None:
        terms = terms * along(wide(weight), axis, x.ndim)
    loss = -sum(terms, axis=axis)
    if z_loss:
        level = logsumexp(x, axis=axis)
        loss = loss + level * level * z_loss
    return rounded(reduced(loss, reduction), logits)


def check_reduction(op: str, reduction: Any, allowed: tuple[str, ...] = REDUCTIONS) -> None:
    """Raise unless ``reduction`` is one of the allowed names."""
    if reduction not in allowed:
        expected = " or ".join(map(repr, allowed))
        raise ArgumentError(op, "unknown reduction", repr(reduction), expected)


def reduced(loss: RudaTensor, reduction: str) -> RudaTensor:
    """``loss`` itself, its mean or its sum."""
    if reduction == "none":
        return loss
    return mean_of(loss) if reduction == "mean" else sum(loss)
