"""Spectra of signals cut into overlapping frames, and the signals back from them."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import index
from ruda.ops.compare import equal
from ruda.ops.complexes import is_real, real
from ruda.ops.create import ones, zeros
from ruda.ops.fft import fft, ifft, irfft, rfft
from ruda.ops.folding import window_view, windows_added
from ruda.ops.join import concat
from ruda.ops.movement import broadcast_to, flip, matrix_transpose
from ruda.ops.select import where
from ruda.ops.strides import span
from ruda.ops.table import composite
from ruda.tensor.tensor import RudaTensor

_PADDINGS = ("reflect", "constant")


def _setup(op: str, n_fft: Any, hop_length: Any, window: Any) -> tuple[int, int, Any]:
    """Frame and hop in elements, and the window of a whole frame, centred in it if shorter."""
    size = index(n_fft, op, "n_fft")
    hop = size // 4 if hop_length is None else index(hop_length, op, "hop_length")
    if size < 1 or hop < 1:
        raise ArgumentError(op, "frames and hops have at least one element", (size, hop))
    if window is None:
        return size, hop, None
    if window.ndim != 1 or not 1 <= window.shape[0] <= size:
        raise ShapeError(op, "the window does not fit a frame", window.shape, f"(1 to {size},)")
    before = (size - window.shape[0]) // 2
    return size, hop, _between_zeros(window, before, size - window.shape[0] - before)


def _between_zeros(x: RudaTensor, before: int, after: int) -> RudaTensor:
    def blank(n: int) -> RudaTensor:
        return zeros((*x.shape[:-1], n), dtype=x.dtype, device=x.device)

    return concat([blank(before), x, blank(after)], axis=-1) if before or after else x


def _padded(x: RudaTensor, n: int, mode: str) -> RudaTensor:
    """``x`` with ``n`` more elements at both ends of the last axis: zeros, or its reflection."""
    if mode not in _PADDINGS:
        raise ArgumentError("stft", "unknown pad_mode", repr(mode), f"one of {_PADDINGS}")
    if mode == "constant":
        return _between_zeros(x, n, n)
    length, last = x.shape[-1], x.ndim - 1
    if n >= length:
        expected = f"more than {n} elements, half a frame, to reflect"
        raise ShapeError("stft", "the signal is too short", x.shape, expected, "center=False")
    before = flip(span(x, last, 1, n + 1), axis=-1)
    after = flip(span(x, last, length - n - 1, length - 1), axis=-1)
    return concat([before, x, after], axis=-1)


@composite
def stft(
    x: RudaTensor,
    n_fft: int,
    /,
    *,
    hop_length: int | None = None,
    window: RudaTensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
) -> RudaTensor:
    """Fourier transforms of the frames of ``x [..., time]``: ``[..., frequency, frame]``.

    Frames of ``n_fft`` elements start every ``hop_length`` (a quarter of a frame) and are
    multiplied by ``window`` (ones), which sits in their middle if it is shorter. ``center`` pads
    the ends by half a frame (``pad_mode`` ``"reflect"`` or ``"constant"``), so that frame t is
    centred at ``t * hop_length``. ``normalized`` divides by the root of ``n_fft``; ``onesided``,
    the default for a real ``x``, keeps the first ``n_fft // 2 + 1`` frequencies.

    >>> stft(ruda.ones(16), 8, hop_length=4).shape
    (5, 5)
    """
    size, hop, shape = _setup("stft", n_fft, hop_length, window)
    if x.ndim and center:
        x = _padded(x, size // 2, pad_mode)
    if x.ndim == 0 or x.shape[-1] < size:
        raise ShapeError("stft", "the signal is shorter than a frame", x.shape, f"{size} elements")
    frames = window_view(x, x.ndim - 1, size, hop)
    frames = frames if shape is None else frames * shape
    half = (is_real(frames) if onesided is None else onesided) and _half_exists(frames)
    out = (rfft if half else fft)(frames, norm="ortho" if normalized else "backward")
    return matrix_transpose(out)


def _half_exists(frames: RudaTensor) -> bool:
    if not is_real(frames):
        hint = "onesided=False"
        raise ArgumentError("stft", "a complex signal has no conjugate half", hint=hint)
    return True


@composite
def istft(
    x: RudaTensor,
    n_fft: int,
    /,
    *,
    hop_length: int | None = None,
    window: RudaTensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool = True,
    length: int | None = None,
) -> RudaTensor:
    """The signal ``[..., time]`` whose ``stft`` is nearest to ``x [..., frequency, frame]``.

    Frames are multiplied by ``window`` again, added where they overlap, and divided by the sum of
    the squared windows (D. Griffin and J. Lim, "Signal estimation from modified short-time Fourier
    transform", 1984); an element that no window gives weight to is 0. ``length`` cuts the end or
    fills it with zeros. Raises ``ShapeError`` where the frequencies do not fit ``n_fft``.

    >>> signal = ruda.asarray([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    >>> istft(stft(signal, 4), 4).shape
    (8,)
    """
    size, hop, shape = _setup("istft", n_fft, hop_length, window)
    bins = size // 2 + 1 if onesided else size
    if x.ndim < 2 or x.shape[-2] != bins:
        expected = f"[..., {bins}, frames] for n_fft={size}"
        raise ShapeError("istft", "frequencies do not fit n_fft", x.shape, expected)
    norm = "ortho" if normalized else "backward"
    spectra = matrix_transpose(x)
    frames = irfft(spectra, n=size, norm=norm) if onesided else ifft(spectra, norm=norm)
    weights = ones(size, dtype=real(frames).dtype, device=x.device) if shape is None else shape
    total = size + hop * (x.shape[-1] - 1)
    summed = _overlapped(frames * weights, total, hop)
    weight = _overlapped(broadcast_to(weights * weights, frames.shape[-2:]), total, hop)
    start = size // 2 if center else 0
    stop = total - start if length is None else min(start + index(length, "istft"), total)
    kept = span(weight, 0, start, stop)
    out = span(summed, summed.ndim - 1, start, stop) / where(equal(kept, 0), 1, kept)
    missing = 0 if length is None else length - out.shape[-1]
    return _between_zeros(out, 0, missing)


def _overlapped(frames: RudaTensor, total: int, hop: int) -> RudaTensor:
    """``frames [..., count, size]`` added up at their places: ``[..., total]``."""
    shape = (*frames.shape[:-2], total)
    return windows_added(frames, shape, frames.ndim - 2, frames.shape[-1], hop)
