"""Standardising over any set of axes, with parameters of any shape that broadcasts.

Batch, instance and group normalization are this formula with different axes. The dtype is that of
``x``, float32 or float64.
"""

from __future__ import annotations

import numpy as np

from ruda.ops.reference.windows import Array

Axes = tuple[int, ...]


def standard_norm(
    x: Array, weight: Array | None, bias: Array | None, axes: Axes, eps: float
) -> tuple[Array, Array, Array]:
    """Standardise over ``axes``, then scale and shift; returns ``(y, mean, var)``.

    mean and var keep the axes with length 1; var is the biased variance about the mean.
    """
    mean = x.mean(axis=axes, keepdims=True)
    y = x - mean
    var = np.square(y).mean(axis=axes, keepdims=True)
    y *= 1 / np.sqrt(var + x.dtype.type(eps))
    if weight is not None:
        y *= weight
    if bias is not None:
        y += bias
    return y, mean, var


def standard_norm_backward(
    g: Array,
    x: Array,
    weight: Array | None,
    mean: Array,
    var: Array,
    axes: Axes,
    eps: float,
    affine: tuple[int, ...],
) -> tuple[Array, Array, Array]:
    """Differentiate ``standard_norm``: gradients of x, weight and bias, the latter two of
    ``affine``.

    Ioffe and Szegedy, "Batch Normalization" (2015). With u = g * weight and z the standardised x:
    dx = rstd * (u - mean(u) - z * mean(u * z)).
    """
    rstd = 1 / np.sqrt(var + x.dtype.type(eps))
    z = (x - mean) * rstd
    dw, db = summed_to(g * z, affine), summed_to(g, affine)
    dx = g.copy() if weight is None else g * weight
    z *= (dx * z).mean(axis=axes, keepdims=True)
    dx -= dx.mean(axis=axes, keepdims=True)
    dx -= z
    dx *= rstd
    return dx, dw, db


def standard_norm_relu_backward(
    g: Array,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    var: Array,
    axes: Axes,
    eps: float,
    affine: tuple[int, ...],
) -> tuple[Array, Array, Array]:
    """Differentiate ``relu(standard_norm(x, weight, bias))``: what is above 0 follows from x."""
    y = (x - mean) * (1 / np.sqrt(var + x.dtype.type(eps)))
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    g = np.where(y > 0, g, x.dtype.type(0))
    return standard_norm_backward(g, x, weight, mean, var, axes, eps, affine)


def summed_to(x: Array, shape: tuple[int, ...]) -> Array:
    """Sum ``x`` over the axes along which ``shape`` would be broadcast to it."""
    lead = x.ndim - len(shape)
    sizes = (1,) * lead + shape
    axes = tuple(i for i, n in enumerate(sizes) if n == 1 and x.shape[i] != 1)
    return x.sum(axis=axes, keepdims=True).reshape(shape) if axes else x.reshape(shape).copy()


def moving_statistics(
    mean: Array,
    var: Array,
    count: Array,
    batch_mean: Array,
    batch_var: Array,
    length: int,
    momentum: float | None,
) -> tuple[Array, Array, Array]:
    """Move mean and var towards those of a batch of ``length`` values; count it.

    The share of the batch is ``momentum``, or 1 / count; its biased variance becomes unbiased.
    """
    new_count = np.asarray(count + 1, count.dtype)
    share = 1.0 / float(new_count) if momentum is None else momentum
    found = []
    for old, new, factor in ((mean, batch_mean, 1.0), (var, batch_var, length / (length - 1))):
        wide = np.dtype(np.float64 if old.dtype == np.float64 else np.float32)
        a, b = old.astype(wide), new.reshape(old.shape).astype(wide)
        found.append((a + (b * wide.type(factor) - a) * wide.type(share)).astype(old.dtype))
    return found[0], found[1], new_count
