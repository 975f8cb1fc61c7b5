"""Window functions that taper a signal before it is transformed.

A periodic window of ``n`` elements is one period, which overlapping frames add up with; a symmetric
one ends as it began, as filters are designed. Formulas: F. Harris, "On the use of windows for
harmonic analysis with the discrete Fourier transform", 1978.
"""

from __future__ import annotations

import math
from typing import Any

from ruda.core.errors import ArgumentError
from ruda.core.shapes import index
from ruda.ops.arith import absolute
from ruda.ops.cast import astype
from ruda.ops.create import arange, float_dtype, ones
from ruda.ops.trig import cos
from ruda.tensor.tensor import RudaTensor


def _phases(n: int, periodic: bool, dtype: Any, device: Any, op: str) -> tuple[Any, Any]:
    """Places from 0 to 1 along the window in float64, and the dtype to return."""
    count = index(n, op, "n")
    if count < 0:
        raise ArgumentError(op, "the length is negative", count, "at least 0")
    kind = float_dtype(dtype, device, op)
    steps = count if periodic else count - 1
    return astype(arange(count, device=device), "float64") / max(steps, 1), kind


def _cosines(
    coefficients: tuple[float, ...], n: int, periodic: bool, dtype: Any, device: Any, op: str
) -> RudaTensor:
    places, kind = _phases(n, periodic, dtype, device, op)
    if n == 1:
        return ones(1, dtype=kind, device=device)
    out = places * 0 + coefficients[0]
    for k, a in enumerate(coefficients[1:], 1):
        out = out + a * cos(2 * math.pi * k * places)
    return astype(out, kind)


def hann(n: int, /, *, periodic: bool = True, dtype: Any = None, device: Any = None) -> RudaTensor:
    """``½ - ½ cos(2π i / n)``: a raised cosine, zero at the ends.

    >>> hann(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _cosines((0.5, -0.5), n, periodic, dtype, device, "hann")


def hamming(
    n: int, /, *, periodic: bool = True, dtype: Any = None, device: Any = None
) -> RudaTensor:
    """``0.54 - 0.46 cos(2π i / n)``: a raised cosine whose first side lobe is least."""
    return _cosines((0.54, -0.46), n, periodic, dtype, device, "hamming")


def blackman(
    n: int, /, *, periodic: bool = True, dtype: Any = None, device: Any = None
) -> RudaTensor:
    """``0.42 - ½ cos(2π i / n) + 0.08 cos(4π i / n)``: three terms, low side lobes."""
    return _cosines((0.42, -0.5, 0.08), n, periodic, dtype, device, "blackman")


def bartlett(
    n: int, /, *, periodic: bool = True, dtype: Any = None, device: Any = None
) -> RudaTensor:
    """``1 - |2 i / n - 1|``: a triangle, zero at the ends."""
    places, kind = _phases(n, periodic, dtype, device, "bartlett")
    if n == 1:
        return ones(1, dtype=kind, device=device)
    return astype(1 - absolute(2 * places - 1), kind)


def kaiser(
    n: int,
    /,
    *,
    beta: float = 12.0,
    periodic: bool = True,
    dtype: Any = None,
    device: Any = None,
) -> RudaTensor:
    """``I₀(β √(1 - (2 i / n - 1)²)) / I₀(β)``: the most energy in the main lobe.

    ``beta``, from 0 to 500, trades the width of that lobe for the height of the others.
    """
    if not 0 <= beta <= 500:
        raise ArgumentError("kaiser", "beta is out of range", beta, "0 to 500")
    places, kind = _phases(n, periodic, dtype, device, "kaiser")
    if n == 1:
        return ones(1, dtype=kind, device=device)
    # 4 p (1 - p) is 1 - u² for u = 2 p - 1, without losing the digits near the ends.
    inside = 4 * places * (1 - places)
    return astype(_bessel_i0(inside, beta) / _bessel_i0(inside * 0 + 1, beta), kind)


def _bessel_i0(square: RudaTensor, beta: float) -> Any:
    """``I₀(β √square)`` by its series ``Σ (β² square / 4)^k / k!²``, of positive terms alone."""
    out: Any = 1.0
    for k in reversed(range(1, int(beta) + 32)):
        out = out * square * (beta * beta / (4.0 * k * k)) + 1
    return out
