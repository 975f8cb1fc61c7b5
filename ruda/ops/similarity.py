"""Distances and similarities of vectors, and the losses that compare pairs and triplets of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.core.errors import DTypeError, ShapeError
from ruda.core.shapes import normalize_axis
from ruda.ops.activation import relu
from ruda.ops.arith import maximum, minimum, sqrt
from ruda.ops.compare import equal
from ruda.ops.create import arange
from ruda.ops.cross_entropy import cross_entropy
from ruda.ops.join import concat
from ruda.ops.loss import finished, matched
from ruda.ops.matmul import matmul
from ruda.ops.movement import broadcast_arrays, matrix_transpose, reshape
from ruda.ops.reduce import sum
from ruda.ops.rowwise import rounded, wide
from ruda.ops.scalars import real_number
from ruda.ops.select import where
from ruda.ops.statistics import vector_norm
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

# Keeps the square root of a zero vector's length differentiable; PyTorch's value.
_LEAST_SQUARE = 1e-12


def _alike(name: str, a: RudaTensor, b: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
    if a.dtype is not b.dtype or not a.dtype.is_floating:
        got, hint = f"{a.dtype} and {b.dtype}", f"astype({str(a.dtype)!r})"
        raise DTypeError(name, "the vectors differ in dtype", got, "one float dtype", hint)
    return wide(a), wide(b)


@composite
@given_tensors
def cosine_similarity(
    x1: RudaTensor, x2: RudaTensor, axis: int = 1, eps: float = 1e-8
) -> RudaTensor:
    """``x1 · x2 / (max(|x1|, eps) max(|x2|, eps))`` along ``axis``; the shapes broadcast.

    >>> cosine_similarity(ruda.asarray([[1.0, 0.0]]), ruda.asarray([[1.0, 1.0]])).item()
    0.7071067690849304
    """
    a, b = broadcast_arrays(*_alike("cosine_similarity", x1, x2))
    least = real_number("cosine_similarity", "eps", eps, 0, ends="()")
    place = normalize_axis(axis, a.ndim, "cosine_similarity")
    sizes = [maximum(vector_norm(v, axis=place, keepdims=True), least) for v in (a, b)]
    return rounded(sum((a / sizes[0]) * (b / sizes[1]), axis=place), x1)


@composite
@given_tensors
def pairwise_distance(
    x1: RudaTensor, x2: RudaTensor, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> RudaTensor:
    """``|x1 - x2 + eps|`` of order ``p`` along the last axis; the shapes broadcast."""
    a, b = _alike("pairwise_distance", x1, x2)
    order = real_number("pairwise_distance", "p", p, 0)
    distance = vector_norm(a - b + eps, axis=-1, keepdims=keepdims, ord=order)
    return rounded(distance, x1)


def _check_target(name: str, target: RudaTensor, vectors: RudaTensor) -> None:
    if not vectors.ndim or target.shape != vectors.shape[:-1]:
        got = f"{target.shape} for {vectors.shape}"
        raise ShapeError(name, "the target does not fit", got, "one number per vector")


@composite
@given_tensors
def cosine_embedding_loss(
    input1: RudaTensor,
    input2: RudaTensor,
    target: RudaTensor,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
) -> RudaTensor:
    """``1 - cos`` where ``target`` is 1, ``max(0, cos - margin)`` where it is -1.

    ``input1``, ``input2`` ``[N, D]`` or ``[D]``, ``target [N]`` or ``[]`` of any real dtype.
    Raises ``ShapeError``, ``DTypeError``, ``ArgumentError``.
    """
    name = "cosine_embedding_loss"
    a, b = matched(name, input1, input2, reduction)
    _check_target(name, target, a)
    squares = (sum(a * a, axis=-1) + _LEAST_SQUARE) * (sum(b * b, axis=-1) + _LEAST_SQUARE)
    cosine = sum(a * b, axis=-1) / sqrt(squares)
    apart = relu(cosine - real_number(name, "margin", margin))
    loss = where(equal(target, 1), 1 - cosine, 0) + where(equal(target, -1), apart, 0)
    return finished(loss, input1, reduction)


@composite
@given_tensors
def contrastive_loss(
    input1: RudaTensor,
    input2: RudaTensor,
    target: RudaTensor,
    *,
    margin: float = 1.0,
    reduction: str = "mean",
) -> RudaTensor:
    """``d² / 2`` where ``target`` is 1 (alike), ``max(0, margin - d)² / 2`` where it is 0.

    ``d`` is the distance of ``input1`` and ``input2`` ``[N, D]`` or ``[D]``, ``target [N]`` or
    ``[]``. Hadsell et al., "Dimensionality reduction by learning an invariant mapping" (2006).
    Errors as ``cosine_embedding_loss``.
    """
    name = "contrastive_loss"
    a, b = matched(name, input1, input2, reduction)
    _check_target(name, target, a)
    difference = a - b
    gap = relu(real_number(name, "margin", margin) - vector_norm(difference, axis=-1))
    together = sum(difference * difference, axis=-1)
    return finished(where(equal(target, 1), together, gap * gap) * 0.5, input1, reduction)


@composite
@given_tensors
def triplet_margin_with_distance_loss(
    anchor: RudaTensor,
    positive: RudaTensor,
    negative: RudaTensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> RudaTensor:
    """``max(0, margin + d(anchor, positive) - d(anchor, negative))``.

    The three have one shape ``[N, D]`` or ``[D]``; ``d`` is ``pairwise_distance`` unless given.
    With ``swap`` the negative's distance is the smaller of those to anchor and positive: Balntas
    et al., "Learning local feature descriptors with triplets" (2016). Errors as ``mse_loss``.
    """
    name = "triplet_margin_with_distance_loss"
    a, p = matched(name, anchor, positive, reduction)
    _, n = matched(name, anchor, negative, reduction)
    distance = pairwise_distance if distance_function is None else distance_function
    gap = real_number(name, "margin", margin, 0)
    near, far = distance(a, p), distance(a, n)
    if swap:
        far = minimum(far, distance(p, n))
    return finished(relu(near - far + gap), anchor, reduction)


@composite
@given_tensors
def triplet_margin_loss(
    anchor: RudaTensor,
    positive: RudaTensor,
    negative: RudaTensor,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> RudaTensor:
    """``triplet_margin_with_distance_loss`` with ``pairwise_distance`` of order ``p``."""
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda x, y: pairwise_distance(x, y, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction,
    )


@composite
@given_tensors
def info_nce_loss(
    query: RudaTensor,
    key: RudaTensor,
    negatives: RudaTensor | None = None,
    *,
    temperature: float = 0.1,
    reduction: str = "mean",
) -> RudaTensor:
    """Cross-entropy of finding ``key[i]`` for ``query[i]`` among all keys and ``negatives``.

    ``query``, ``key`` ``[N, D]``, ``negatives [M, D]``; logits are cosines over ``temperature``.
    Van den Oord et al., "Representation learning with contrastive predictive coding" (2018).
    Raises ``ShapeError``, ``DTypeError``, ``ArgumentError``.
    """
    name = "info_nce_loss"
    q, k = matched(name, query, key, reduction)
    if q.ndim != 2:
        raise ShapeError(name, "vectors in rows are needed", query.shape, "[N, D]")
    if negatives is not None:
        if negatives.ndim != 2 or negatives.shape[1] != q.shape[1]:
            expected = f"[M, {q.shape[1]}]"
            raise ShapeError(name, "negatives do not fit", negatives.shape, expected)
        k = concat([k, _alike(name, query, negatives)[1]])
    scale = real_number(name, "temperature", temperature, 0, ends="()")
    q, k = _unit(q), _unit(k)
    target = arange(q.shape[0], dtype="int64", device=q.device)
    loss = cross_entropy(matmul(q, matrix_transpose(k)) / scale, target, reduction=reduction)
    return rounded(loss, query)


def _unit(x: RudaTensor) -> RudaTensor:
    return x / sqrt(sum(x * x, axis=-1, keepdims=True) + _LEAST_SQUARE)


@composite
@given_tensors
def gram_matrix_loss(
    input: RudaTensor, target: RudaTensor, *, reduction: str = "mean"
) -> RudaTensor:
    """``(G(input) - G(target))²`` of Gram matrices ``G(x) = x xᵀ / (C L)`` of channels.

    Both ``[N, C, *]`` with ``L`` places in the axes after the channels. Gatys et al., "Image
    style transfer using convolutional neural networks" (2016). Errors as ``mse_loss``.
    """
    name = "gram_matrix_loss"
    a, b = matched(name, input, target, reduction)
    if a.ndim < 3 or a.size == 0:
        raise ShapeError(name, "no channels of places", input.shape, "[N, C, *]")
    difference = _gram(a) - _gram(b)
    return finished(difference * difference, input, reduction)


def _gram(x: RudaTensor) -> RudaTensor:
    rows = reshape(x, (*x.shape[:2], -1))
    return matmul(rows, matrix_transpose(rows)) / (rows.shape[1] * rows.shape[2])
