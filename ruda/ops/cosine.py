"""Discrete cosine transforms of types 1 to 4, each through one Fourier transform.

Definitions: N. Ahmed, T. Natarajan and K. Rao, "Discrete cosine transform", 1974; Z. Wang, "Fast
algorithms for the discrete W transform", 1984. With N the length, the transforms without a norm are

1. ``x[0] + (-1)^k x[N-1] + 2 Σ x[n] cos(π k n / (N-1))`` over the n between,
2. ``2 Σ x[n] cos(π k (2n + 1) / 2N)``,
3. ``x[0] + 2 Σ x[n] cos(π n (2k + 1) / 2N)`` over the n from 1,
4. ``2 Σ x[n] cos(π (2n + 1) (2k + 1) / 4N)``.
"""

from __future__ import annotations

import math
from typing import Any

from ruda.core.dtypes import complex_of
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import normalize_axis
from ruda.ops.cast import astype
from ruda.ops.complexes import is_real, real
from ruda.ops.create import arange
from ruda.ops.explog import exp
from ruda.ops.fft import OPPOSITE, checked_norm, fft, irfft, resized, rfft
from ruda.ops.join import concat
from ruda.ops.movement import flip, moveaxis
from ruda.ops.select import where
from ruda.ops.strides import span
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


@composite
@given_tensors
def dct(
    x: RudaTensor,
    /,
    *,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str = "backward",
) -> RudaTensor:
    """Discrete cosine transform of a real ``x`` along ``axis``, cut or filled with zeros to ``n``.

    ``norm="ortho"`` makes the transform orthonormal; ``"forward"`` divides by 2 N (2 (N - 1) for
    type 1), ``"backward"`` leaves that to the inverse.

    >>> dct(ruda.ones(4)).tolist()
    [8.0, 0.0, 0.0, 0.0]
    """
    return _transformed(x, type, n, axis, norm, "dct")


@composite
@given_tensors
def idct(
    x: RudaTensor,
    /,
    *,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str = "backward",
) -> RudaTensor:
    """The inverse of ``dct`` with the same ``type`` and ``norm``."""
    _check("idct", type, norm)
    return _transformed(x, _INVERSE[type], n, axis, OPPOSITE[norm], "idct")


def _check(op: str, type: Any, norm: Any) -> None:
    if type not in _INVERSE:
        raise ArgumentError(op, "unknown type", repr(type), "1, 2, 3 or 4")
    checked_norm(norm, op)


def _transformed(x: Any, type: int, n: Any, axis: int, norm: str, op: str) -> RudaTensor:
    _check(op, type, norm)
    if not is_real(x):
        raise DTypeError(op, "takes real values", x.dtype, "float32 or float64", "real(x)")
    place = normalize_axis(axis, x.ndim, op)
    x = moveaxis(resized(x, place, n, op), place, -1)
    length = x.shape[-1]
    if length < 1 + (type == 1):
        raise ShapeError(op, "too few elements", length, f"at least {1 + (type == 1)}")
    period = 2 * (length - (type == 1))
    if norm == "ortho":
        x = _with_ends(x, type, before=True)
    out = _PLAIN[type](x, length)
    if norm == "ortho":
        out = _with_ends(out, type, before=False) / math.sqrt(period)
    elif norm == "forward":
        out = out / period
    return moveaxis(out, -1, place)


def _with_ends(x: RudaTensor, type: int, before: bool) -> RudaTensor:
    """The factors that make type 1, 2 and 3 orthogonal, on the input or on the output."""
    k = arange(x.shape[-1], device=x.device)
    if type == 1:
        ends = (k == 0) | (k == x.shape[-1] - 1)
        return where(ends, x * (math.sqrt(2) if before else math.sqrt(0.5)), x)
    if type == 2 and not before:
        return where(k == 0, x * math.sqrt(0.5), x)
    if type == 3 and before:
        return where(k == 0, x * math.sqrt(2), x)
    return x


def _turned(x: RudaTensor, length: int, step: float, start: float) -> Any:
    """``exp(iπ (step k + start))`` for ``length`` places k, in the precision of ``x``."""
    k = astype(arange(length, device=x.device), "float64")
    return astype(exp((k * step + start) * (1j * math.pi)), complex_of(x.dtype))


def _first(x: RudaTensor, n: int) -> RudaTensor:
    return span(x, x.ndim - 1, 0, n)


def _dct1(x: RudaTensor, n: int) -> RudaTensor:
    middle = flip(span(x, x.ndim - 1, 1, n - 1), axis=-1)
    return real(rfft(concat([x, middle], axis=-1)))


def _dct2(x: RudaTensor, n: int) -> RudaTensor:
    spectrum = rfft(concat([x, flip(x, axis=-1)], axis=-1))
    return real(_first(spectrum, n) * _turned(x, n, -0.5 / n, 0.0))


def _dct3(x: RudaTensor, n: int) -> RudaTensor:
    spectrum = x * _turned(x, n, 0.5 / n, 0.0)
    return _first(irfft(spectrum, n=2 * n, norm="forward"), n)


def _dct4(x: RudaTensor, n: int) -> RudaTensor:
    spectrum = fft(x * _turned(x, n, -0.5 / n, 0.0), n=2 * n)
    return 2 * real(_first(spectrum, n) * _turned(x, n, -0.5 / n, -0.25 / n))


_PLAIN = {1: _dct1, 2: _dct2, 3: _dct3, 4: _dct4}
