"""Losses between a prediction and a target of the same shape, and of log-probabilities.

Shapes that would broadcast raise: a ``[N, 1]`` prediction and a ``[N]`` target would silently give
an ``[N, N]`` loss. Half predictions are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

from ruda.core.errors import DTypeError, ShapeError
from ruda.core.shapes import index, normalize_axis
from ruda.ops.arith import abs, maximum
from ruda.ops.cast import astype
from ruda.ops.compare import less
from ruda.ops.counting import counts
from ruda.ops.cross_entropy import check_reduction, reduced
from ruda.ops.embed import embedding
from ruda.ops.explog import exp, log, log1p, log_sigmoid, xlogy
from ruda.ops.gather import take_along_axis
from ruda.ops.movement import expand_dims, squeeze
from ruda.ops.reduce import sum
from ruda.ops.rowwise import rounded, wide
from ruda.ops.scalars import real_number
from ruda.ops.select import where
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def matched(name: str, input: RudaTensor, target: RudaTensor, reduction: str) -> Any:
    """Prediction and target in the dtype to compute in, after checking that they fit."""
    check_reduction(name, reduction)
    if input.shape != target.shape:
        what = "prediction and target differ in shape"
        hint = "reshape: losses do not broadcast"
        raise ShapeError(name, what, f"{input.shape} and {target.shape}", "equal shapes", hint)
    a, b = wide(input), wide(target)
    if a.dtype is not b.dtype or not a.dtype.is_floating:
        got = f"{input.dtype} and {target.dtype}"
        hint = f"target.astype({str(input.dtype)!r})"
        raise DTypeError(
            name, "prediction and target differ in dtype", got, "one float dtype", hint
        )
    return a, b


def finished(loss: RudaTensor, input: RudaTensor, reduction: str) -> RudaTensor:
    """``loss`` reduced, in the dtype of ``input``."""
    return rounded(reduced(loss, reduction), input)


@composite
@given_tensors
def mse_loss(input: RudaTensor, target: RudaTensor, *, reduction: str = "mean") -> RudaTensor:
    """``(input - target)²``; ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``.

    Raises ``ShapeError`` unless the shapes are equal, ``DTypeError`` unless the dtypes are.

    >>> mse_loss(ruda.asarray([1.0, 3.0]), ruda.asarray([0.0, 0.0])).item()
    5.0
    """
    a, b = matched("mse_loss", input, target, reduction)
    difference = a - b
    return finished(difference * difference, input, reduction)


@composite
@given_tensors
def l1_loss(input: RudaTensor, target: RudaTensor, *, reduction: str = "mean") -> RudaTensor:
    """``|input - target|``; arguments and errors as ``mse_loss``.

    >>> l1_loss(ruda.asarray([0.0, 3.0]), ruda.asarray([1.0, 0.0])).item()
    2.0
    """
    a, b = matched("l1_loss", input, target, reduction)
    return finished(abs(a - b), input, reduction)


@composite
@given_tensors
def smooth_l1_loss(
    input: RudaTensor, target: RudaTensor, *, reduction: str = "mean", beta: float = 1.0
) -> RudaTensor:
    """``d² / (2 beta)`` where ``d = |input - target|`` is below ``beta``, else ``d - beta / 2``.

    Arguments and errors as ``mse_loss``; ``beta`` is at least 0.
    """
    a, b = matched("smooth_l1_loss", input, target, reduction)
    width = real_number("smooth_l1_loss", "beta", beta, 0)
    if width == 0:
        return finished(abs(a - b), input, reduction)
    distance = abs(a - b)
    near, far = distance * distance * (0.5 / width), distance - 0.5 * width
    return finished(where(less(distance, width), near, far), input, reduction)


@composite
@given_tensors
def huber_loss(
    input: RudaTensor, target: RudaTensor, *, reduction: str = "mean", delta: float = 1.0
) -> RudaTensor:
    """``d² / 2`` where ``d = |input - target|`` is below ``delta``, else ``delta (d - delta / 2)``.

    Arguments and errors as ``mse_loss``; ``delta`` is above 0. Huber, 1964.

    >>> huber_loss(ruda.asarray([0.0, 3.0]), ruda.asarray([1.0, 0.0]), reduction="none").tolist()
    [0.5, 2.5]
    """
    a, b = matched("huber_loss", input, target, reduction)
    width = real_number("huber_loss", "delta", delta, 0, ends="(]")
    distance = abs(a - b)
    near, far = distance * distance * 0.5, (distance - 0.5 * width) * width
    return finished(where(less(distance, width), near, far), input, reduction)


@composite
@given_tensors
def binary_cross_entropy(
    input: RudaTensor,
    target: RudaTensor,
    weight: RudaTensor | None = None,
    *,
    reduction: str = "mean",
) -> RudaTensor:
    """``-(target log(input) + (1 - target) log(1 - input))`` of probabilities.

    Logarithms are held at -100 or above, so that 0 and 1 give finite losses. ``weight`` broadcasts
    to the shape. Arguments and errors as ``mse_loss``.
    """
    p, t = matched("binary_cross_entropy", input, target, reduction)
    yes, no = maximum(log(p), -100), maximum(log1p(-p), -100)
    loss = -(t * yes + (1 - t) * no)
    return finished(weighted("binary_cross_entropy", loss, weight), input, reduction)


@composite
@given_tensors
def binary_cross_entropy_with_logits(
    input: RudaTensor,
    target: RudaTensor,
    weight: RudaTensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: RudaTensor | None = None,
) -> RudaTensor:
    """``binary_cross_entropy`` of ``sigmoid(input)``, without its loss of small values.

    ``pos_weight`` scales the part of ``target``; it and ``weight`` broadcast to the shape.
    """
    name = "binary_cross_entropy_with_logits"
    x, t = matched(name, input, target, reduction)
    yes = t * log_sigmoid(x)
    if pos_weight is not None:
        yes = weighted(name, yes, pos_weight)
    loss = -(yes + (1 - t) * log_sigmoid(-x))
    return finished(weighted(name, loss, weight), input, reduction)


def weighted(name: str, loss: RudaTensor, weight: RudaTensor | None) -> RudaTensor:
    """``loss`` times ``weight``, which broadcasts to it but not the other way."""
    if weight is None:
        return loss
    out = loss * wide(weight)
    if out.shape != loss.shape or out.dtype is not loss.dtype:
        expected = f"a shape that fits {loss.shape}, in {loss.dtype}"
        raise ShapeError(name, "the weight does not fit", weight.spec, expected)
    return out


@composite
@given_tensors
def kl_div(
    input: RudaTensor, target: RudaTensor, *, reduction: str = "mean", log_target: bool = False
) -> RudaTensor:
    """``target (log(target) - input)``, with log-probabilities for ``input``.

    With ``log_target`` the target is one of log-probabilities too. ``reduction`` may also be
    ``"batchmean"``: the sum over the length of the first axis, the divergence by its definition.
    Other arguments and errors as ``mse_loss``.
    """
    check_reduction("kl_div", reduction, ("none", "mean", "sum", "batchmean"))
    by_batch = reduction == "batchmean"
    reduction = "sum" if by_batch else reduction
    x, t = matched("kl_div", input, target, reduction)
    loss = exp(t) * (t - x) if log_target else xlogy(t, t) - t * x
    out = reduced(loss, reduction)
    if by_batch and x.ndim:
        out = out / x.shape[0]
    return rounded(out, input)


@composite
@given_tensors
def nll_loss(
    input: RudaTensor,
    target: RudaTensor,
    weight: RudaTensor | None = None,
    *,
    axis: int = -1,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> RudaTensor:
    """``-input[target]`` along ``axis``: cross-entropy of log-probabilities.

    ``weight [V]``, ``ignore_index`` and ``reduction`` as ``cross_entropy``; so are the errors.

    >>> nll_loss(ruda.asarray([[-1.0, -2.0], [-3.0, -4.0]]), ruda.asarray([0, 1])).item()
    2.5
    """
    name = "nll_loss"
    check_reduction(name, reduction)
    classes = normalize_axis(axis, input.ndim, name)
    rows = input.shape[:classes] + input.shape[classes + 1 :]
    if target.shape != rows:
        what = f"the target does not fit input {input.shape} with classes on axis {classes}"
        hint = (
            "axis=1" if classes != 1 and target.shape == input.shape[:1] + input.shape[2:] else None
        )
        raise ShapeError(name, what, target.shape, rows, hint)
    valid = counts(target, index(ignore_index, name, "ignore_index"))
    # A negative class would count from the end; the length itself is out of range everywhere.
    safe = where(valid, where(less(target, 0), input.shape[classes], target), 0)
    x = wide(input)
    picked = squeeze(take_along_axis(x, expand_dims(safe, classes), axis=classes), classes)
    counted = astype(valid, x.dtype) if weight is None else embedding(safe, wide(weight))
    counted = where(valid, counted, 0)
    loss = where(valid, -picked * counted, 0)
    if reduction == "mean":
        return rounded(sum(loss) / sum(counted), input)
    return finished(loss, input, reduction)
