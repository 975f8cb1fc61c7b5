"""What is promised of Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.fft
from ruda.testing import gradcheck

RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((3, 4, 5))
COMPLEX = REAL + 1j * RNG.standard_normal((3, 4, 5))
TIGHT = 200 * float(np.finfo(np.float64).eps)
SINGLE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
SEVERAL = ["fftn", "ifftn", "rfftn", "irfftn"]
FROM_REAL = ("rfft", "ihfft", "rfftn")


def near(got: Any, expected: Any) -> None:
    assert got.shape == expected.shape
    assert np.linalg.norm(got.numpy() - expected) <= TIGHT * max(np.linalg.norm(expected), 1)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", SINGLE)
def test_any_length_any_axis_every_norm(name: str, norm: str) -> None:
    source = REAL if name in FROM_REAL else COMPLEX
    for axis in (0, 1, -1):
        for n in (None, 1, 2, 3, 7, 8):
            if n == 1 and name == "hfft":
                continue
            got = getattr(ruda.fft, name)(ruda.asarray(source), n=n, axis=axis, norm=norm)
            near(got, getattr(np.fft, name)(source, n, axis, norm))


@pytest.mark.parametrize("name", SEVERAL)
def test_several_axes(name: str) -> None:
    source = REAL if name in FROM_REAL else COMPLEX
    for axes, sizes in ((None, None), ((0, 2), None), ((2, 0), (4, 3)), ((1,), (6,))):
        got = getattr(ruda.fft, name)(ruda.asarray(source), s=sizes, axes=axes)
        near(got, getattr(np.fft, name)(source, sizes, axes or (0, 1, 2)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_precision_stays(dtype: str) -> None:
    x = ruda.asarray(COMPLEX if "complex" in dtype else REAL, dtype=dtype)
    wide = "complex128" if dtype in ("float64", "complex128") else "complex64"
    assert ruda.fft.fft(x).dtype == wide
    assert ruda.fft.irfft(ruda.fft.fft(x)).dtype == ("float64" if "128" in wide else "float32")


@pytest.mark.parametrize("name", [*SINGLE, *SEVERAL])
def test_gradients(name: str) -> None:
    source = REAL[0] if name in FROM_REAL else COMPLEX[0]
    gradcheck(lambda x: getattr(ruda.fft, name)(x), [source])


def test_frequencies_and_shifts() -> None:
    for n in (1, 4, 5):
        near(ruda.fft.fftfreq(n, d=0.5, dtype="float64"), np.fft.fftfreq(n, 0.5))
        near(ruda.fft.rfftfreq(n, d=0.5, dtype="float64"), np.fft.rfftfreq(n, 0.5))
    near(ruda.fft.fftshift(ruda.asarray(REAL), axes=(0, 2)), np.fft.fftshift(REAL, (0, 2)))
    near(ruda.fft.ifftshift(ruda.asarray(REAL)), np.fft.ifftshift(REAL))


def test_frames_come_back() -> None:
    x = ruda.asarray(RNG.standard_normal(400))
    window = ruda.fft.hann(64, dtype="float64")
    spectrum = ruda.fft.stft(x, 64, hop_length=16, window=window)
    again = ruda.fft.istft(spectrum, 64, hop_length=16, window=window, length=400)
    near(again, x.numpy())


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_dct_is_inverted_by_idct(kind: int) -> None:
    fft = pytest.importorskip("scipy.fft")
    for norm in ("backward", "ortho", "forward"):
        got = ruda.fft.dct(ruda.asarray(REAL), type=kind, norm=norm)
        near(got, fft.dct(REAL, kind, norm=norm))
        near(ruda.fft.idct(got, type=kind, norm=norm), REAL)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett"])
def test_windows(name: str) -> None:
    theirs = {"hann": "hanning"}.get(name, name)
    got = getattr(ruda.fft, name)(9, periodic=False, dtype="float64")
    near(got, getattr(np, theirs)(9))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: ruda.fft.fft(x, n=0), ruda.ShapeError),
        (lambda x: ruda.fft.fft(x, n=2.5), ruda.DTypeError),
        (lambda x: ruda.fft.fft(x, axis=3), ruda.AxisError),
        (lambda x: ruda.fft.fft(x, norm="half"), ruda.ArgumentError),
        (lambda x: ruda.fft.fftn(x, axes=(0, 0)), ruda.AxisError),
        (lambda x: ruda.fft.fftn(x, s=(2,), axes=(0, 1)), ruda.ShapeError),
        (lambda x: ruda.fft.fft(x[0, 0, 0]), ruda.AxisError),
        (lambda x: ruda.fft.fft(x[:0], axis=0), ruda.ShapeError),
        (lambda x: ruda.fft.rfft(x + 1j), ruda.DTypeError),
        (lambda x: ruda.fft.fft(x.astype("float16")), ruda.DTypeError),
        (lambda x: ruda.fft.fft(x.astype("int32")), ruda.DTypeError),
        (lambda x: ruda.fft.dct(x, type=5), ruda.ArgumentError),
    ],
)
def test_bad_arguments(call: Any, error: Any) -> None:
    with pytest.raises(error, match=r"^\w+: .*Got "):
        call(ruda.asarray(REAL))
