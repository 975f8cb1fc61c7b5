"""Functions of one float32 that vectorise: no calls, no branches, NaN in gives NaN out.

exp is Cephes' polynomial on the remainder of ln 2 in two parts; erf is the rational approximation
of degree 9 over 12 that Eigen uses, both within a few units in the last place.
"""

from __future__ import annotations

import math

import numpy as np

from ruda.backends.numpy.kernels.compiler import inline

_F = np.float32
_ONE, _TWO, _HALF = _F(1), _F(2), _F(0.5)
_LOG2E, _LN2_HIGH, _LN2_LOW = _F(1.44269504), _F(0.693359375), _F(-2.12194440e-4)
# Adding it leaves the nearest integer in the lowest bits of the sum.
_ROUND = _F(12582912.0)
_ROUND_BITS = np.int32(0x4B400000)
_LOW, _HIGH = _F(-105), _F(89)
_E0, _E1, _E2 = _F(5.0000001201e-1), _F(1.6666665459e-1), _F(4.1665795894e-2)
_E3, _E4, _E5 = _F(8.3334519073e-3), _F(1.3981999507e-3), _F(1.9875691500e-4)


@inline
def exp(x):
    """e to the x, down to denormal results and up to infinity."""
    x = _LOW if x < _LOW else x
    x = _HIGH if x > _HIGH else x
    t = x * _LOG2E + _ROUND
    n = t - _ROUND
    r = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    p = ((((_E5 * r + _E4) * r + _E3) * r + _E2) * r + _E1) * r + _E0
    y = p * (r * r) + r + _ONE
    # Two halves of the exponent, for one alone may leave the range of normal numbers.
    k = np.int32(np.float32(t).view(np.int32) - _ROUND_BITS)
    half = np.int32(k >> np.int32(1))
    rest = np.int32(k - half)
    first = np.int32(np.int32(half + np.int32(127)) << np.int32(23)).view(np.float32)
    second = np.int32(np.int32(rest + np.int32(127)) << np.int32(23)).view(np.float32)
    return y * first * second


@inline
def sigmoids(x):
    """``sigmoid(x)`` and ``sigmoid(-x)``, each with all of its digits."""
    e = exp(-abs(x))
    large = _ONE / (_ONE + e)
    small = e * large
    return (large, small) if x > _F(0) else (small, large)


_T0, _T1, _T2 = _F(-5.70498872745e-3), _F(2.06390887954e-2), _F(-5.37397155531e-2)
_T3, _T4, _FLAT = _F(1.33314422036e-1), _F(-3.33332819422e-1), _F(0.625)


@inline
def tanh(x):
    """The hyperbolic tangent: near zero Cephes' polynomial, elsewhere by way of ``exp``."""
    a, z = abs(x), x * x
    near = ((((_T0 * z + _T1) * z + _T2) * z + _T3) * z + _T4) * z * a + a
    far = _ONE - _TWO / (exp(_TWO * a) + _ONE)
    # The sign comes last, for that of -0.0 would be lost in a sum.
    return _F(math.copysign(near if a < _FLAT else far, x))


_ERF_END, _ERF_FLAT = _F(3.8325), _F(4)
_P0, _P1, _P2 = _F(1.1283791435), _F(1.8520832240e-1), _F(5.0955695062e-2)
_P3, _P4 = _F(3.4082910107e-3), _F(2.2905065861e-4)
_Q1, _Q2, _Q3 = _F(4.9746925110e-1), _F(1.1098505178e-1), _F(1.4070470171e-2)
_Q4, _Q5, _Q6 = _F(1.0179625279e-3), _F(2.3547966471e-5), _F(-1.1791602955e-7)


@inline
def erf(x):
    """The error function."""
    z = -_ERF_END if x < -_ERF_END else x
    z = _ERF_END if z > _ERF_END else z
    s = z * z
    p = (((_P4 * s + _P3) * s + _P2) * s + _P1) * s + _P0
    q = (((((_Q6 * s + _Q5) * s + _Q4) * s + _Q3) * s + _Q2) * s + _Q1) * s + _ONE
    y = z * p / q
    y = _ONE if x >= _ERF_FLAT else y
    return -_ONE if x <= -_ERF_FLAT else y
