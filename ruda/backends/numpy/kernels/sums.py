"""Reductions of one row in float32 that fill vector registers, always in the same order."""

from __future__ import annotations

import numpy as np

from ruda.backends.numpy.kernels.compiler import inline, summed

_F = np.float32


@summed
def total(x):
    """The sum."""
    out = _F(0)
    for i in range(x.size):
        out += x[i]
    return out


@summed
def dot(x, y):
    """The sum of products."""
    out = _F(0)
    for i in range(x.size):
        out += x[i] * y[i]
    return out


@summed
def spread(x, mean):
    """The sum of squared distances from ``mean``."""
    out = _F(0)
    for i in range(x.size):
        d = x[i] - mean
        out += d * d
    return out


@inline
def top(bits):
    """The largest element of a row seen as int32, above all a NaN of positive sign.

    Compared as integers, once the negative ones are turned round, floats keep their order.
    """
    best = np.int32(-0x80000000)
    for i in range(bits.size):
        b = bits[i]
        b = np.int32(b ^ np.int32(np.int32(b >> np.int32(31)) & np.int32(0x7FFFFFFF)))
        best = b if b > best else best
    best = np.int32(best ^ np.int32(np.int32(best >> np.int32(31)) & np.int32(0x7FFFFFFF)))
    return np.int32(best).view(np.float32)
