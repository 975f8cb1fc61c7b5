"""Layers that draw: dropout that keeps mean and variance, and slopes at random."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.errors import ArgumentError, ShapeError
from ruda.ops.activation import leaky_relu
from ruda.ops.compare import greater
from ruda.ops.create import ones, zeros
from ruda.ops.dropout import dropout
from ruda.ops.movement import reshape
from ruda.ops.random import uniform
from ruda.ops.scalars import real_number
from ruda.ops.select import where
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

# What selu tends to for very negative inputs: the value of a dropped element.
_SATURATED = -1.7580993408473766


def _saturated(x: RudaTensor, rate: float, lead: int, generator: Any) -> RudaTensor:
    """Whole slices below the first ``lead`` axes saturated, then mean and variance restored."""
    if rate == 1:
        return zeros(x.shape, dtype=x.dtype, device=x.device) * x
    shape = x.shape[:lead]
    drawn = dropout(ones(shape, dtype=x.dtype, device=x.device), rate, generator=generator)
    keep = reshape(greater(drawn, 0), shape + (1,) * (x.ndim - lead))
    scale = 1 / math.sqrt((1 - rate) * (1 + rate * _SATURATED**2))
    return where(keep, x, _SATURATED) * scale - scale * rate * _SATURATED


@composite
@given_tensors
def alpha_dropout(
    input: RudaTensor, p: float = 0.5, training: bool = True, *, generator: Any = None
) -> RudaTensor:
    """Dropout for ``selu``: dropped elements saturate, and mean 0 and variance 1 stay so.

    Raises ``ArgumentError`` unless 0 <= p <= 1. Klambauer et al., "Self-Normalizing Neural
    Networks", 2017.
    """
    rate = real_number("alpha_dropout", "p", p, 0, 1)
    if not training or rate == 0:
        return input
    return _saturated(input, rate, input.ndim, generator)


@composite
@given_tensors
def feature_alpha_dropout(
    input: RudaTensor, p: float = 0.5, training: bool = True, *, generator: Any = None
) -> RudaTensor:
    """As ``alpha_dropout``, for whole channels of ``input [N, C, *S]``."""
    rate = real_number("feature_alpha_dropout", "p", p, 0, 1)
    if input.ndim < 2:
        raise ShapeError("feature_alpha_dropout", "wrong rank", input.shape, "[N, C, *S]")
    if not training or rate == 0:
        return input
    return _saturated(input, rate, 2, generator)


@composite
def rrelu(
    input: RudaTensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *,
    generator: Any = None,
) -> RudaTensor:
    """``leaky_relu`` with a slope drawn for each element, or their mean unless ``training``.

    Slopes are uniform on [lower, upper). Raises ``ArgumentError`` unless lower <= upper. Xu et al.,
    "Empirical Evaluation of Rectified Activations", 2015.
    """
    if not lower <= upper:
        raise ArgumentError("rrelu", "the bounds are in disorder", (lower, upper), "lower <= upper")
    if not training or lower == upper:
        return leaky_relu(input, (lower + upper) / 2)
    kind = {"dtype": input.dtype, "device": input.device, "generator": generator}
    return leaky_relu(input, uniform(input.shape, lower, upper, **kind))
