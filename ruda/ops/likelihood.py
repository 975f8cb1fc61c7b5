"""Negative log-likelihoods of counts and of normal values, and losses for rare or ragged targets.

Shapes that would broadcast raise, as in ``loss``; half predictions are computed in float32.
"""

from __future__ import annotations

import math
from typing import Any

from ruda.core.errors import ShapeError
from ruda.ops.activation import softplus
from ruda.ops.arith import abs, maximum, pow
from ruda.ops.compare import greater, less
from ruda.ops.explog import exp, log, log1p, log_sigmoid, sigmoid
from ruda.ops.loss import finished, matched
from ruda.ops.movement import expand_dims, reshape
from ruda.ops.reduce import sum
from ruda.ops.rowwise import wide
from ruda.ops.scalars import real_number
from ruda.ops.select import where
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


@composite
@given_tensors
def poisson_nll_loss(
    input: RudaTensor,
    target: RudaTensor,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> RudaTensor:
    """``exp(input) - target input``, or ``input - target log(input + eps)`` of rates.

    ``input`` holds logarithms of rates unless ``log_input`` is false. ``full`` adds Stirling's
    ``log(target!)`` where ``target`` is above 1. Arguments and errors as ``mse_loss``.

    >>> poisson_nll_loss(ruda.asarray([0.0]), ruda.asarray([2.0])).item()
    1.0
    """
    x, t = matched("poisson_nll_loss", input, target, reduction)
    least = real_number("poisson_nll_loss", "eps", eps)
    loss = exp(x) - t * x if log_input else x - t * log(x + least)
    if full:
        many = greater(t, 1)
        n = where(many, t, 1)
        loss = loss + where(many, n * log(n) - n + 0.5 * log(2 * math.pi * n), 0)
    return finished(loss, input, reduction)


@composite
@given_tensors
def gaussian_nll_loss(
    input: RudaTensor,
    target: RudaTensor,
    var: RudaTensor | float,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> RudaTensor:
    """``(log(var) + (input - target)² / var) / 2``; ``full`` adds ``log(2 pi) / 2``.

    ``var`` is a number or has the shape of ``input``, with or without a last axis of length 1 in
    place of its own. Below ``eps`` it counts as ``eps``, with the gradient it has there. Nix and
    Weigend, "Estimating the mean and variance of the target probability distribution" (1994).
    Arguments and errors as ``mse_loss``.
    """
    name = "gaussian_nll_loss"
    x, t = matched(name, input, target, reduction)
    least = real_number(name, "eps", eps, 0, ends="()")
    v: Any
    level: Any
    if isinstance(var, RudaTensor):
        v = _spread(name, wide(var), x)
        v = where(less(v, least), v - v.detach() + least, v)
        level = log(v)
    else:
        v = max(real_number(name, "var", var, 0), least)
        level = math.log(v)
    difference = x - t
    loss = 0.5 * (level + difference * difference / v)
    return finished(loss + 0.5 * math.log(2 * math.pi) if full else loss, input, reduction)


def _spread(name: str, var: RudaTensor, x: RudaTensor) -> RudaTensor:
    """``var`` in a shape that broadcasts to that of ``x`` over the last axis alone."""
    if x.ndim and var.shape == x.shape[:-1]:
        return expand_dims(var, -1)
    if var.shape != x.shape and var.shape != (*x.shape[:-1], 1):
        expected = f"{x.shape}, or that with a last axis of 1 or without it"
        raise ShapeError(name, "var does not fit", var.shape, expected)
    return var


@composite
@given_tensors
def sigmoid_focal_loss(
    input: RudaTensor,
    target: RudaTensor,
    *,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
) -> RudaTensor:
    """``-alpha_t (1 - p_t)^gamma log(p_t)`` with ``p = sigmoid(input)``, for targets 0 and 1.

    ``p_t`` is ``p`` for 1 and ``1 - p`` for 0, and ``alpha_t`` likewise; a negative ``alpha``
    means no such weight. Lin et al., "Focal loss for dense object detection" (2017). Arguments
    and errors as ``mse_loss``.
    """
    name = "sigmoid_focal_loss"
    x, t = matched(name, input, target, reduction)
    share, power = real_number(name, "alpha", alpha), real_number(name, "gamma", gamma, 0)
    surprise = -(t * log_sigmoid(x) + (1 - t) * log_sigmoid(-x))
    p = sigmoid(x)
    missing = p * (1 - t) + (1 - p) * t
    loss = surprise * pow(missing, power)
    if share >= 0:
        loss = loss * (share * t + (1 - share) * (1 - t))
    return finished(loss, input, reduction)


@composite
@given_tensors
def dice_loss(
    input: RudaTensor, target: RudaTensor, *, smooth: float = 1.0, reduction: str = "mean"
) -> RudaTensor:
    """``1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth)`` of probabilities, per example.

    Both ``[N, *]``; sums run over all axes but the first. Milletari et al., "V-Net" (2016).
    Arguments and errors as ``mse_loss``.
    """
    p, t = matched("dice_loss", input, target, reduction)
    least = real_number("dice_loss", "smooth", smooth, 0)
    if p.ndim < 2:
        raise ShapeError("dice_loss", "no examples of several values", input.shape, "[N, *]")
    p, t = (reshape(v, (v.shape[0], -1)) for v in (p, t))
    overlap = 2 * sum(p * t, axis=1) + least
    return finished(1 - overlap / (sum(p, axis=1) + sum(t, axis=1) + least), input, reduction)


@composite
@given_tensors
def log_cosh_loss(input: RudaTensor, target: RudaTensor, *, reduction: str = "mean") -> RudaTensor:
    """``log(cosh(input - target))``, without overflow; arguments and errors as ``mse_loss``."""
    a, b = matched("log_cosh_loss", input, target, reduction)
    difference = a - b
    # cosh(d) = exp(d) (1 + exp(-2 d)) / 2, written for either sign of d.
    loss = difference + softplus(-2 * difference) - math.log(2)
    return finished(loss, input, reduction)


@composite
@given_tensors
def msle_loss(input: RudaTensor, target: RudaTensor, *, reduction: str = "mean") -> RudaTensor:
    """``(log(1 + input) - log(1 + target))²``: squared relative errors of values above -1.

    Its root is the RMSLE. Arguments and errors as ``mse_loss``.
    """
    a, b = matched("msle_loss", input, target, reduction)
    difference = log1p(a) - log1p(b)
    return finished(difference * difference, input, reduction)


@composite
@given_tensors
def lp_loss(
    input: RudaTensor, target: RudaTensor, *, p: float = 2.0, reduction: str = "mean"
) -> RudaTensor:
    """``|input - target|^p`` for ``p`` above 0; arguments and errors as ``mse_loss``."""
    a, b = matched("lp_loss", input, target, reduction)
    order = real_number("lp_loss", "p", p, 0, ends="(]")
    return finished(pow(abs(a - b), order), input, reduction)


@composite
@given_tensors
def quantile_loss(
    input: RudaTensor, target: RudaTensor, *, q: float = 0.5, reduction: str = "mean"
) -> RudaTensor:
    """``max(q d, (q - 1) d)`` with ``d = target - input``: least at the quantile ``q``.

    Koenker and Bassett, "Regression quantiles" (1978). Raises ``ArgumentError`` unless ``q`` lies
    between 0 and 1; other arguments and errors as ``mse_loss``.
    """
    a, b = matched("quantile_loss", input, target, reduction)
    level = real_number("quantile_loss", "q", q, 0, 1)
    difference = b - a
    return finished(maximum(level * difference, (level - 1) * difference), input, reduction)
