"""Losses that ask for a margin: between signs, between classes, between sets of labels.

Shapes that would broadcast raise, as in ``loss``; half predictions are computed in float32.
"""

from __future__ import annotations

from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.ops.activation import relu
from ruda.ops.compare import equal, less, logical_and, logical_not
from ruda.ops.create import arange
from ruda.ops.cross_entropy import check_reduction
from ruda.ops.embed import embedding
from ruda.ops.explog import log_sigmoid
from ruda.ops.gather import take_along_axis
from ruda.ops.loss import finished, matched, weighted
from ruda.ops.movement import expand_dims
from ruda.ops.reduce import any, sum
from ruda.ops.rowwise import wide
from ruda.ops.scalars import real_number
from ruda.ops.scan import cumsum
from ruda.ops.select import where
from ruda.ops.statistics import mean
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


@composite
@given_tensors
def hinge_embedding_loss(
    input: RudaTensor, target: RudaTensor, *, margin: float = 1.0, reduction: str = "mean"
) -> RudaTensor:
    """``input`` where ``target`` is 1, ``max(0, margin - input)`` where it is -1: of distances.

    Arguments and errors as ``mse_loss``.
    """
    x, t = matched("hinge_embedding_loss", input, target, reduction)
    gap = real_number("hinge_embedding_loss", "margin", margin)
    loss = where(equal(t, -1), 0, x) + where(equal(t, 1), 0, relu(gap - x))
    return finished(loss, input, reduction)


@composite
@given_tensors
def soft_margin_loss(
    input: RudaTensor, target: RudaTensor, *, reduction: str = "mean"
) -> RudaTensor:
    """``log(1 + exp(-target input))`` for targets 1 and -1; arguments and errors as ``mse_loss``.

    >>> round(soft_margin_loss(ruda.zeros(2), ruda.ones(2)).item(), 4)
    0.6931
    """
    x, t = matched("soft_margin_loss", input, target, reduction)
    return finished(-log_sigmoid(t * x), input, reduction)


@composite
@given_tensors
def margin_ranking_loss(
    input1: RudaTensor,
    input2: RudaTensor,
    target: RudaTensor,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
) -> RudaTensor:
    """``max(0, margin - target (input1 - input2))``: 1 wants ``input1`` higher, -1 ``input2``.

    All three have one shape; errors as ``mse_loss``.
    """
    name = "margin_ranking_loss"
    a, b = matched(name, input1, input2, reduction)
    _, t = matched(name, input1, target, reduction)
    gap = real_number(name, "margin", margin)
    return finished(relu(gap - t * (a - b)), input1, reduction)


def _classes(name: str, input: RudaTensor, reduction: str) -> RudaTensor:
    """``input [..., C]`` of one or two axes, as it is computed in."""
    check_reduction(name, reduction)
    if input.ndim not in (1, 2) or input.shape[-1] == 0:
        raise ShapeError(name, "no classes", input.shape, "input [N, C] or [C] with C above 0")
    if not input.dtype.is_floating:
        raise DTypeError(name, "input of another kind", input.dtype, "a float dtype")
    return wide(input)


def _labels(name: str, target: RudaTensor, shape: tuple[int, ...]) -> None:
    if target.shape != shape:
        raise ShapeError(name, "the target does not fit", target.shape, shape)
    if not target.dtype.is_integer:
        raise DTypeError(name, "the target is not of class indices", target.dtype, "integers")


@composite
@given_tensors
def multi_margin_loss(
    input: RudaTensor,
    target: RudaTensor,
    *,
    p: int = 1,
    margin: float = 1.0,
    weight: RudaTensor | None = None,
    reduction: str = "mean",
) -> RudaTensor:
    """``sum_j max(0, margin - input[target] + input[j])^p / C`` over the other classes ``j``.

    ``input [N, C]`` or ``[C]``, ``target [N]`` or ``[]`` of class indices, ``weight [C]`` scales
    each example by its target's. Crammer and Singer, "On the algorithmic implementation of
    multiclass kernel-based vector machines" (2001). Raises ``ArgumentError`` unless ``p`` is 1
    or 2, ``ShapeError``, ``DTypeError``, ``IndexRangeError``.
    """
    name = "multi_margin_loss"
    x = _classes(name, input, reduction)
    _labels(name, target, input.shape[:-1])
    if p not in (1, 2):
        raise ArgumentError(name, "p is not allowed", p, "1 or 2")
    own = expand_dims(target, -1)
    gap = relu(real_number(name, "margin", margin) - take_along_axis(x, own, axis=-1) + x)
    terms = gap if p == 1 else gap * gap
    if weight is not None:
        if weight.shape != input.shape[-1:]:
            what = "one weight per class is needed"
            raise ShapeError(name, what, weight.shape, input.shape[-1:])
        terms = terms * embedding(own, wide(weight))
    classes = arange(input.shape[-1], dtype=target.dtype, device=target.device)
    loss = sum(where(equal(own, classes), 0, terms), axis=-1) / input.shape[-1]
    return finished(loss, input, reduction)


@composite
@given_tensors
def multilabel_margin_loss(
    input: RudaTensor, target: RudaTensor, *, reduction: str = "mean"
) -> RudaTensor:
    """``sum_jk max(0, 1 - input[j] + input[k]) / C`` over labels ``j`` and other classes ``k``.

    ``input [N, C]`` or ``[C]``; ``target``, of the same shape, lists the labels of each example
    and ends with the first negative number. Raises ``ShapeError``, ``DTypeError``,
    ``IndexRangeError``.
    """
    name = "multilabel_margin_loss"
    x = _classes(name, input, reduction)
    _labels(name, target, input.shape)
    listed = equal(cumsum(less(target, 0), axis=-1), 0)
    safe = where(listed, target, 0)
    classes = arange(input.shape[-1], dtype=target.dtype, device=target.device)
    # [..., place in the list, class]
    hits = logical_and(expand_dims(listed, -1), equal(expand_dims(safe, -1), classes))
    others = logical_not(any(hits, axis=-2, keepdims=True))
    labels = expand_dims(take_along_axis(x, safe, axis=-1), -1)
    gap = relu(1 - labels + expand_dims(x, -2))
    counted = logical_and(expand_dims(listed, -1), others)
    loss = sum(where(counted, gap, 0), axis=(-2, -1)) / input.shape[-1]
    return finished(loss, input, reduction)


@composite
@given_tensors
def multilabel_soft_margin_loss(
    input: RudaTensor,
    target: RudaTensor,
    weight: RudaTensor | None = None,
    *,
    reduction: str = "mean",
) -> RudaTensor:
    """``binary_cross_entropy_with_logits`` averaged over the last axis, the classes.

    ``weight`` broadcasts to the shape; arguments and errors as ``mse_loss``.
    """
    name = "multilabel_soft_margin_loss"
    x, t = matched(name, input, target, reduction)
    if not x.ndim:
        raise ShapeError(name, "no classes", input.shape, "input [..., C]")
    loss = -(t * log_sigmoid(x) + (1 - t) * log_sigmoid(-x))
    return finished(mean(weighted(name, loss, weight), axis=-1), input, reduction)


@composite
@given_tensors
def hinge_loss(input: RudaTensor, target: RudaTensor, *, reduction: str = "mean") -> RudaTensor:
    """``max(0, 1 - target input)`` for targets 1 and -1; arguments and errors as ``mse_loss``."""
    x, t = matched("hinge_loss", input, target, reduction)
    return finished(relu(1 - t * x), input, reduction)
