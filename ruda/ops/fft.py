"""Discrete Fourier transforms: three rows, complex to complex, real to half, half to real.

They take float32, float64, complex64 and complex128 and keep the precision: float32 gives
complex64. A transform is linear, so its gradient is its adjoint, which is again one of the rows:
that of ``F`` with a scale is the inverse of ``F`` with the same scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.core.dtypes import PRECISE, complex_of, float32, float64, real_of
from ruda.core.errors import ArgumentError, AxisError, ShapeError
from ruda.core.shapes import Shape, index, normalize_axes, normalize_axis
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.cast import astype
from ruda.ops.complexes import conj
from ruda.ops.create import arange, float_dtype, zeros
from ruda.ops.join import concat
from ruda.ops.movement import reshape
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.strides import span
from ruda.ops.table import composite, row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

# The norm under which the opposite direction has the same scale.
OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _filled(op: Any, shape: Shape, axes: Shape) -> None:
    if any(shape[a] == 0 for a in axes):
        raise ShapeError(op.name, "an axis to transform is empty", shape, "at least one element")


def _complex_shape(op: Any, specs: Specs, axes: Shape, *_: Any) -> Shape:
    _filled(op, specs[0].shape, axes)
    return specs[0].shape


def _complex_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    dtype = complex_of(rules.promote(op, specs)[0])
    return dtype, dtype


def _transform(x: Any, axes: Shape, inverse: bool, norm: Any) -> Any:
    return (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=axes, norm=norm)


_fft = row(
    "library",
    "fft",
    "x",
    "axes inverse norm",
    shape=_complex_shape,
    dtype=_complex_dtype,
    numpy=_transform,
    vjp=(lambda g, axes, inverse, norm: _fft(g, axes, not inverse, OPPOSITE[norm]),),
    accepts=PRECISE,
    doc="Fourier transform over ``axes``, or its inverse.",
)


def _half_shape(op: Any, specs: Specs, axes: Shape, norm: str) -> Shape:
    shape, last = specs[0].shape, axes[-1]
    _filled(op, shape, axes)
    return (*shape[:last], shape[last] // 2 + 1, *shape[last + 1 :])


def _real_to_complex(op: Any, specs: Specs, *_: Any) -> Any:
    dtype, _ = rules.promote(op, specs)
    return dtype, complex_of(dtype)


def _both_halves(half: RudaTensor, axis: int, length: int, factor: float) -> RudaTensor:
    """``half`` with its elements that stand for two of ``length`` multiplied by ``factor``."""
    k = arange(half.shape[axis], device=half.device)
    single = (k == 0) | (k * 2 == length)
    weights = where(single, 1.0, astype(k * 0, real_of(half.dtype)) + factor)
    return half * reshape(weights, (-1, *(1,) * (half.ndim - 1 - axis)))


def _rfft_cotangent(g: Any, x_spec: Spec, axes: Shape, norm: str) -> Any:
    length = x_spec.shape[axes[-1]]
    return _irfft(_both_halves(g, axes[-1], length, 0.5), axes, length, OPPOSITE[norm])


_rfft = row(
    "library",
    "rfft",
    "x",
    "axes norm",
    shape=_half_shape,
    dtype=_real_to_complex,
    numpy=lambda x, axes, norm: np.fft.rfftn(x, axes=axes, norm=norm),
    vjp=(_rfft_cotangent,),
    accepts=(float32, float64),
    doc="Fourier transform of real values, without the half that is conjugate to the other.",
)


def _whole_shape(op: Any, specs: Specs, axes: Shape, length: int, norm: str) -> Shape:
    shape, last = specs[0].shape, axes[-1]
    _filled(op, shape, axes)
    return (*shape[:last], length, *shape[last + 1 :])


def _complex_to_real(op: Any, specs: Specs, *_: Any) -> Any:
    dtype = complex_of(rules.promote(op, specs)[0])
    return dtype, real_of(dtype)


def _inverse_half(x: Any, axes: Shape, length: int, norm: Any) -> Any:
    sizes = [*(x.shape[a] for a in axes[:-1]), length]
    return np.fft.irfftn(x, s=sizes, axes=axes, norm=norm)


def _irfft_cotangent(g: Any, axes: Shape, length: int, norm: str) -> Any:
    return _both_halves(_rfft(g, axes, OPPOSITE[norm]), axes[-1], length, 2.0)


_irfft = row(
    "library",
    "irfft",
    "x",
    "axes length norm",
    shape=_whole_shape,
    dtype=_complex_to_real,
    numpy=_inverse_half,
    vjp=(_irfft_cotangent,),
    accepts=PRECISE,
    doc="Inverse Fourier transform to real values, from half of the spectrum.",
)


def checked_norm(norm: Any, op: str) -> str:
    """``norm``, or an ``ArgumentError`` where there is no such scale."""
    if norm not in OPPOSITE:
        raise ArgumentError(op, "unknown norm", repr(norm), '"backward", "ortho" or "forward"')
    return norm


def _axes(x: RudaTensor, s: Any, axes: Any, op: str) -> Shape:
    """``axes`` in their order; by default the last ``len(s)``, or all."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(-len(s), 0)
    places = tuple(normalize_axis(a, x.ndim, op) for a in axes)
    normalize_axes(places, x.ndim, op)
    if s is not None and len(s) != len(places):
        raise ShapeError(op, "sizes and axes do not pair up", f"{s} and {axes}", "equal lengths")
    return places


def resized(x: RudaTensor, axis: int, n: Any, op: str) -> RudaTensor:
    """``x`` cut, or filled up with zeros at the end, to ``n`` elements along ``axis``."""
    length = x.shape[axis]
    if n is None or n == length:
        return x
    wanted = index(n, op, "n")
    if wanted < 1:
        raise ShapeError(op, "too few elements", wanted, "at least 1")
    if wanted < length:
        return span(x, axis, 0, wanted)
    shape = (*x.shape[:axis], wanted - length, *x.shape[axis + 1 :])
    return concat([x, zeros(shape, dtype=x.dtype, device=x.device)], axis=axis)


def _complex_transform(
    x: RudaTensor, s: Any, axes: Any, norm: Any, op: str, inverse: bool
) -> RudaTensor:
    places = _axes(x, s, axes, op)
    for axis, n in zip(places, s or (), strict=False):
        x = resized(x, axis, n, op)
    return _fft(x, places, inverse, checked_norm(norm, op))


def _sizes(n: int | None) -> tuple[int, ...] | None:
    return None if n is None else (n,)


@given_tensors
def fft(
    x: RudaTensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> RudaTensor:
    """``Σ x[j] exp(-2πi j k / n)`` along ``axis``, cut or filled with zeros to ``n`` elements.

    ``norm`` says which direction is divided by n: ``"backward"`` the inverse, ``"forward"`` this
    one, ``"ortho"`` each by the root. A real ``x`` is taken as complex.

    >>> fft(ruda.asarray([1.0, 0.0, -1.0, 0.0])).tolist()
    [0j, (2+0j), 0j, (2+0j)]
    """
    return _complex_transform(x, _sizes(n), (axis,), norm, "fft", False)


@given_tensors
def ifft(
    x: RudaTensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> RudaTensor:
    """The inverse of ``fft``: ``Σ x[k] exp(2πi j k / n) / n`` along ``axis``."""
    return _complex_transform(x, _sizes(n), (axis,), norm, "ifft", True)


@given_tensors
def fftn(
    x: RudaTensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> RudaTensor:
    """``fft`` over several ``axes`` (by default the last of ``s``, or all), each cut to ``s``."""
    return _complex_transform(x, s, axes, norm, "fftn", False)


@given_tensors
def ifftn(
    x: RudaTensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> RudaTensor:
    """The inverse of ``fftn``."""
    return _complex_transform(x, s, axes, norm, "ifftn", True)


def _real_transform(x: RudaTensor, s: Any, axes: Any, norm: Any, op: str) -> RudaTensor:
    places = _axes(x, s, axes, op)
    if not places:
        raise AxisError(op, "no axis to transform", axes, "at least one")
    for axis, n in zip(places, s or (), strict=False):
        x = resized(x, axis, n, op)
    return _rfft(x, places, checked_norm(norm, op))


def _to_real(x: RudaTensor, s: Any, axes: Any, norm: Any, op: str) -> RudaTensor:
    places = _axes(x, s, axes, op)
    if not places:
        raise AxisError(op, "no axis to transform", axes, "at least one")
    length = 2 * (x.shape[places[-1]] - 1) if s is None else index(s[-1], op, "n")
    if length < 1:
        raise ShapeError(op, "too few elements", length, "at least 1", "n= or s=")
    sizes = [*(s or ())[:-1], *(() if s is None else (length // 2 + 1,))]
    for axis, n in zip(places, sizes, strict=False):
        x = resized(x, axis, n, op)
    return _irfft(x, places, length, checked_norm(norm, op))


@given_tensors
def rfft(
    x: RudaTensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> RudaTensor:
    """The first ``n // 2 + 1`` elements of ``fft`` of a real ``x``, the others being conjugate.

    >>> rfft(ruda.ones(4)).tolist()
    [(4+0j), 0j, 0j]
    """
    return _real_transform(x, _sizes(n), (axis,), norm, "rfft")


@given_tensors
def irfft(
    x: RudaTensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> RudaTensor:
    """The inverse of ``rfft``: ``n`` real values, by default ``2 (m - 1)`` from ``m``.

    Give ``n`` where it was odd. The imaginary parts at frequency 0, and at n/2 for even ``n``, do
    not matter.
    """
    return _to_real(x, _sizes(n), (axis,), norm, "irfft")


@given_tensors
def rfftn(
    x: RudaTensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> RudaTensor:
    """``fftn`` of a real ``x``, whose last transformed axis is kept to half."""
    return _real_transform(x, s, axes, norm, "rfftn")


@given_tensors
def irfftn(
    x: RudaTensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> RudaTensor:
    """The inverse of ``rfftn``; give ``s`` where its last size was odd."""
    return _to_real(x, s, axes, norm, "irfftn")


@composite
@given_tensors
def hfft(
    x: RudaTensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> RudaTensor:
    """``fft`` of a signal that is conjugate to its mirror image, given by half: ``n`` reals."""
    opposite = OPPOSITE[checked_norm(norm, "hfft")]
    return _to_real(conj(x), _sizes(n), (axis,), opposite, "hfft")


@composite
@given_tensors
def ihfft(
    x: RudaTensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> RudaTensor:
    """The inverse of ``hfft``: half of the signal whose spectrum is the real ``x``."""
    opposite = OPPOSITE[checked_norm(norm, "ihfft")]
    return conj(_real_transform(x, _sizes(n), (axis,), opposite, "ihfft"))


def _frequencies(n: int, d: float, dtype: Any, device: Any, op: str) -> tuple[int, Any]:
    count = index(n, op, "n")
    if count < 1:
        raise ArgumentError(op, "needs at least one element", count)
    kind = float_dtype(dtype, device, op)
    return count, lambda k: astype(astype(k, "float64") / (count * d), kind)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> RudaTensor:
    """The frequency of each element of ``fft`` of ``n`` samples that are ``d`` apart.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    count, scaled = _frequencies(n, d, dtype, device, "fftfreq")
    k = arange(count, device=device)
    return scaled(where(k < (count + 1) // 2, k, k - count))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> RudaTensor:
    """The frequency of each element of ``rfft`` of ``n`` samples that are ``d`` apart."""
    count, scaled = _frequencies(n, d, dtype, device, "rfftfreq")
    return scaled(arange(count // 2 + 1, device=device))


def _shifted(x: RudaTensor, axes: Any, op: str, extra: int) -> RudaTensor:
    for axis in normalize_axes(axes, x.ndim, op):
        n = x.shape[axis]
        cut = (n + extra) // 2
        if 0 < cut < n:
            x = concat([span(x, axis, cut, n), span(x, axis, 0, cut)], axis=axis)
    return x


@composite
@given_tensors
def fftshift(x: RudaTensor, /, *, axes: Any = None) -> RudaTensor:
    """``x`` with frequency 0 moved to the middle of ``axes`` (one, several, or None for all).

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shifted(x, axes, "fftshift", 1)


@composite
@given_tensors
def ifftshift(x: RudaTensor, /, *, axes: Any = None) -> RudaTensor:
    """The inverse of ``fftshift``, different from it where a length is odd."""
    return _shifted(x, axes, "ifftshift", 0)
