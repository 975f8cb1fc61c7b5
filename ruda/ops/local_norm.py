"""Norms without trained parameters: unit length along an axis, and over neighbouring channels."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.errors import NormalizationShapeError
from ruda.core.shapes import index
from ruda.ops.arith import maximum
from ruda.ops.movement import expand_dims, reshape, squeeze
from ruda.ops.pool import avg_pool2d
from ruda.ops.rowwise import NormalizationArgumentError, positive, rounded, wide
from ruda.ops.statistics import vector_norm
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


@composite
@given_tensors
def normalize(input: RudaTensor, p: float = 2.0, axis: Any = 1, eps: float = 1e-12) -> RudaTensor:
    """``input / max(|input|, eps)`` with the norm of order ``p`` along ``axis``, one or several.

    Half types are computed in float32. Raises ``NormalizationArgumentError`` for an eps that is
    not positive.

    >>> normalize(ruda.asarray([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    least, rows = positive("normalize", "eps", eps), wide(input)
    return rounded(rows / maximum(vector_norm(rows, axis=axis, keepdims=True, ord=p), least), input)


@composite
def local_response_norm(
    input: RudaTensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> RudaTensor:
    """``input [N, C, *S]`` over ``(k + alpha * mean(input²)) ** beta`` of ``size`` channels around.

    Channels that are not there count as zeros. Half types are computed in float32. Raises
    ``NormalizationShapeError`` without a channel axis. Krizhevsky et al., "ImageNet Classification
    with Deep Convolutional Neural Networks", 2012.
    """
    name, count = "local_response_norm", index(size, "local_response_norm", "size")
    if count < 1:
        raise NormalizationArgumentError(name, "size is too small", size, "at least 1")
    if input.ndim < 2:
        raise NormalizationShapeError(name, "too few axes", input.shape, "[N, C, *S]")
    x = wide(input)
    squares = reshape(x * x, (*input.shape[:2], math.prod(input.shape[2:])))
    padding = ((count // 2, (count - 1) // 2), (0, 0))
    means = squeeze(avg_pool2d(expand_dims(squares, 1), (count, 1), 1, padding), 1)
    return rounded(x / (reshape(means, input.shape) * alpha + k) ** beta, input)
