"""Special functions in vectorised NumPy.

float64 is accurate to a few units in the last place, which the tests state per function. Except for
``erf``, which GELU leans on and which has a fit of its own, float32 is computed in float64 and
rounded. The coefficients are Chebyshev fits, computed with 40 digits and rounded to float64.

Sources: the tail of erfc after M. Shepherd and J. Laframboise, "Chebyshev approximation of
(1 + 2x) exp(x^2) erfc x", Math. Comp. 36 (1981); the first guess of erfinv after S. Winitzki, "A
handy approximation for the error function and its inverse" (2008); gamma functions from the
recurrence, reflection and asymptotic formulas of NIST's Digital Library of Mathematical Functions,
chapters 5 and 25.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Elements worked on at a time, so that the passes over them stay in the cache of a core.
_BLOCK = 8192


def _in_blocks(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` of a flat float64 array, made a function of any float array."""

    @functools.wraps(f)
    def run(x: Any, *parameters: Any) -> Any:
        return _blocked(f, x, np.float64, *parameters)

    return run


def _blocked(f: Callable[..., Any], x: Any, dtype: Any, *parameters: Any) -> Any:
    flat = np.ascontiguousarray(x).reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK].astype(dtype, copy=False)
        out[start : start + _BLOCK] = f(part, *parameters)
    return out.reshape(x.shape)


def _horner(coefficients: Sequence[Any], x: Any) -> Any:
    """The polynomial with ``coefficients``, lowest first, at ``x``."""
    out = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        out *= x
        out += c
    return out


# artanh(erf(x)) / x in powers of x * x, up to where erf rounds to 1 in float32.
_ERF_TANH = tuple(
    np.float32(c)
    for c in (
        1.1283792471563845,
        0.10276986440227617,
        -0.00019528882870744582,
        -0.0006148376166244796,
        8.45962996552702e-05,
        -4.794540282900299e-06,
        2.7569055580803015e-08,
        5.421884907835946e-09,
    )
)
_ERF_TANH_END = np.float32(15.6)

# erf(x) / x in powers of x * x, for |x| <= 1.
_ERF_SMALL = (
    1.1283791670955126,
    -0.37612638903183748,
    0.11283791670954879,
    -0.026866170645076793,
    0.0052239776248180145,
    -0.00085483269808337899,
    0.00012055331111642711,
    -1.4925595266831182e-5,
    1.6461000484121368e-6,
    -1.6350312701054695e-7,
    1.4659775274047436e-8,
    -1.1372848856791674e-9,
    5.9571761477489114e-11,
)

# (1 + 2x) exp(x * x) erfc(x) in powers of a - b / (x + 3), for 0.5 <= x <= 28.
_ERFC_A, _ERFC_B = 1.2545454545454545, 7.8909090909090909
_ERFC_TAIL = (
    1.2466693962002772,
    -0.10586152790091504,
    -0.017977041184294584,
    0.047946070530925019,
    -0.034858448572138315,
    0.015722391448707779,
    -0.0044157877173262175,
    0.00046509896907601435,
    0.00017399930795641731,
    -6.9127374456383165e-5,
    -2.6884125011095028e-6,
    6.1156652372843803e-6,
    -2.6432387710754703e-7,
    -5.6188229217872188e-7,
    3.7078564198625686e-8,
    5.8211761265415676e-8,
    -2.0274959330051784e-9,
    -6.5187539114730543e-9,
    -2.5665483934703322e-10,
    6.8563251926457688e-10,
    9.095956173331466e-11,
    -4.7741356850876058e-11,
    -1.0436526110193503e-11,
)


def erf(x: Any) -> Any:
    """The error function; float32 within 2 units in the last place, by way of tanh."""
    if x.dtype == np.float32:
        return _blocked(_erf_tanh, x, np.float32)
    return _blocked(_erf, x, np.float64)


def _erf_tanh(x: Any) -> Any:
    out = _horner(_ERF_TANH, np.minimum(x * x, _ERF_TANH_END))
    out *= x
    return np.tanh(out, out=out)


def _erf(x: Any) -> Any:
    size = np.abs(x)
    small = x * _horner(_ERF_SMALL, np.minimum(x * x, 1))
    return np.where(size < 1, small, np.copysign(1 - _erfc_tail(size), x))


def _erfc_tail(x: Any) -> Any:
    """erfc for ``x >= 0.5``; meaningless below."""
    x = np.clip(x, 0.5, 28)
    scaled = _horner(_ERFC_TAIL, _ERFC_A - _ERFC_B / (x + 3))
    # The square of a float32 is exact in float64: what is left of x * x is small.
    high = x.astype(np.float32).astype(np.float64)
    return np.exp(-high * high) * np.exp((high - x) * (high + x)) * scaled / (1 + 2 * x)


@_in_blocks
def erfc(x: Any) -> Any:
    """``1 - erf(x)``, accurate where that is tiny."""
    tail = _erfc_tail(np.abs(x))
    small = 1 - x * _horner(_ERF_SMALL, np.minimum(x * x, 1))
    return np.where(np.abs(x) < 0.5, small, np.where(x < 0, 2 - tail, tail))


@_in_blocks
def erfinv(y: Any) -> Any:
    """The inverse of erf: a guess good to three digits and two steps of Halley's method."""
    size = np.abs(y)
    rest = 1 - size
    lost = np.log1p(-size * size)
    t = 2 / (math.pi * 0.147) + lost / 2
    x = np.sqrt(-lost / 0.147 / (np.sqrt(t * t - lost / 0.147) + t))
    for _ in range(2):
        error = np.where(size < 0.5, _erf(x) - size, rest - erfc(x))
        step = error * (math.sqrt(math.pi) / 2) * np.exp(x * x)
        x -= step / (1 + x * step)
    return np.copysign(np.where(size == 1, np.inf, x), y)


# lgamma(2 + u) / (u * (1 + u)) in powers of u, for |u| <= 0.5.
_LGAMMA = (
    0.42278433509846714,
    -0.10031730167435392,
    0.03296500062115359,
    -0.01238419219337021,
    0.0049986411649353729,
    -0.0021081308340694719,
    0.00091537691250878313,
    -0.00040570739285611585,
    0.00018255283839072259,
    -8.3095221469151261e-5,
    3.8166605933399916e-5,
    -1.7660586231652297e-5,
    8.2374766746362501e-6,
    -3.8546221362515833e-6,
    1.749054030806819e-6,
    -8.2476880829059131e-7,
    5.2365685348413621e-7,
    -2.4890295296503957e-7,
)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1))
_DIGAMMA = tuple(-b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))


@_in_blocks
def lgamma(x: Any) -> Any:
    """``log(abs(gamma(x)))``: infinite at 0 and the negative integers."""
    mirrored = x < 0
    a = np.where(mirrored, 1 - x, x)
    out = np.where(a < 8, _lgamma_small(np.minimum(a, 8)), _stirling(np.maximum(a, 8)))
    if mirrored.any():
        sine = np.abs(_sinpi(np.where(mirrored, x, 0.5)))
        out = np.where(mirrored, math.log(math.pi) - np.log(sine) - out, out)
    return np.where(np.isinf(x), np.inf, out)


def _lgamma_small(x: Any) -> Any:
    """lgamma for ``0 <= x <= 8``, from its values between 1.5 and 2.5."""
    u = np.where(x < 0.5, x, np.where(x < 1.5, x - 1, x - 2))
    factor = np.where(x < 0.5, x * (1 + x), np.where(x < 1.5, x, 1.0))
    below = x < 1.5
    for _ in range(6):
        high = u >= 0.5
        factor = np.where(high, factor * (u + 1), factor)
        u = np.where(high, u - 1, u)
    logarithm = np.log(factor)
    return u * (1 + u) * _horner(_LGAMMA, u) + np.where(below, -logarithm, logarithm)


def _stirling(x: Any) -> Any:
    series = _horner(_STIRLING, 1 / (x * x)) / x
    return (x - 0.5) * np.log(x) - x + 0.5 * math.log(2 * math.pi) + series


def _sinpi(x: Any) -> Any:
    """``sin(pi * x)``, exact at whole numbers."""
    nearest = np.rint(x)
    sine = np.sin(math.pi * (x - nearest))
    return np.where(np.fmod(nearest, 2) == 0, sine, -sine)


@_in_blocks
def digamma(x: Any) -> Any:
    """The derivative of ``lgamma``: infinite at 0, NaN at the negative integers."""
    mirrored = x < 0.5
    a = np.where(mirrored, 1 - x, x)
    out = np.zeros_like(a)
    for _ in range(10):
        low = a < 10
        out = np.where(low, out - 1 / a, out)
        a = np.where(low, a + 1, a)
    square = 1 / (a * a)
    out += np.log(a) - 0.5 / a + _horner(_DIGAMMA, square) * square
    if mirrored.any():
        part = x - np.rint(x)
        pole = np.where(x == 0, np.copysign(np.inf, x), np.where(part == 0, np.nan, 0))
        cotangent = math.pi / np.tan(math.pi * np.where(part == 0, 0.5, part))
        out = np.where(mirrored, out - cotangent - pole, out)
    return out


def polygamma(x: Any, order: int) -> Any:
    """The derivative of ``digamma`` of the given order, 1 or more, in float64 inside.

    Order 1 is reflected for negative ``x``; above that ``x < 0`` gives NaN.
    """
    return _blocked(_polygamma, x, np.float64, order)


def _polygamma(x: Any, order: int) -> Any:
    sign = -1.0 if order % 2 == 0 else 1.0
    if order > 1:
        return sign * math.factorial(order) * _zeta(order + 1, np.where(x < 0, np.nan, x))
    mirrored = x < 0.5
    out = _zeta(2, np.where(mirrored, 1 - x, x))
    ratio = math.pi / _sinpi(np.where(mirrored, x, 0.5))
    return np.where(mirrored, ratio * ratio - out, out)


def _zeta(s: int, q: Any) -> Any:
    """Hurwitz's zeta function for ``q >= 0``: ten terms, then the Euler-Maclaurin formula."""
    out = np.zeros_like(q)
    for _ in range(10):
        out += q**-s
        q = q + 1
    out += q ** (1 - s) / (s - 1) + 0.5 * q**-s
    rising = float(s)
    for k, b in enumerate(_BERNOULLI, 1):
        out += b / math.factorial(2 * k) * rising * q ** (1 - s - 2 * k)
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    return out
