"""Fourier transforms against NumPy, cosines and windows against SciPy, frames against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda import fft
from ruda.core.errors import ShapeError
from ruda.testing import assert_close, gradcheck

NORMS = ("backward", "ortho", "forward")
LENGTHS = (None, 1, 3, 4, 5, 8, 17)


def near(got: Any, want: Any) -> None:
    """Within 4 roundings for each of the (at most 6) passes of a transform of 64 elements."""
    assert got.dtype == want.dtype
    assert_close(got, want, rtol=4 * 6 * np.finfo(want.dtype).eps)


def drawn(rng: Any, shape: Any, dtype: str) -> Any:
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("c") else x).astype(dtype)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_one_axis(n: Any, norm: str, dtype: str, rng: np.random.Generator) -> None:
    x = drawn(rng, (6, 5), dtype)
    names = ["fft", "ifft", "irfft", "hfft"]
    names += ["rfft", "ihfft"] if dtype.startswith("f") else []
    for name in names:
        for axis in (-1, 0):
            options = {"n": n, "axis": axis, "norm": norm}
            got = getattr(fft, name)(ruda.asarray(x), **options)
            near(got, getattr(np.fft, name)(x, **options))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("s", "axes"),
    [
        (None, None),
        ((3, 7), (0, 2)),
        ((4, 4), (2, 1)),
        (None, (1,)),
        ((2, 3, 4), (0, 1, 2)),
        (None, (-1, 0)),
    ],
    ids=str,
)
def test_several_axes(s: Any, axes: Any, norm: str, rng: np.random.Generator) -> None:
    x = drawn(rng, (3, 4, 5), "complex64")
    for name in ("fftn", "ifftn", "irfftn"):
        got = getattr(fft, name)(ruda.asarray(x), s=s, axes=axes, norm=norm)
        near(got, getattr(np.fft, name)(x, s=s, axes=axes, norm=norm))
    got = fft.rfftn(ruda.asarray(x.real), s=s, axes=axes, norm=norm)
    near(got, np.fft.rfftn(x.real, s=s, axes=axes, norm=norm))


def test_sizes_without_axes_are_those_of_the_last(rng: np.random.Generator) -> None:
    x = drawn(rng, (3, 4, 5), "float64")
    got = fft.fftn(ruda.asarray(x), s=(2, 6))
    near(got, np.fft.fftn(x, s=(2, 6), axes=(-2, -1)))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 3, 6, 7])
def test_gradients(n: Any, norm: str, rng: np.random.Generator) -> None:
    z, x = drawn(rng, (5, 2), "complex128"), drawn(rng, (2, 5), "float64")
    for f in (fft.fft, fft.ifft, fft.irfft, fft.hfft):
        gradcheck(lambda z, f=f: f(z, n=n, axis=0, norm=norm), [z])
    for f in (fft.rfft, fft.ihfft, fft.irfft):
        gradcheck(lambda x, f=f: f(x, n=n, norm=norm), [x])


def test_third_order(rng: np.random.Generator) -> None:
    def power(x: Any) -> Any:
        spectrum = fft.rfftn(x, axes=(1, 0))
        return ruda.real(spectrum * ruda.conj(spectrum))

    gradcheck(power, [drawn(rng, (3, 4), "float64")], order=3)


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_frequencies(n: int) -> None:
    near(fft.fftfreq(n, d=0.3, dtype="float64"), np.fft.fftfreq(n, 0.3))
    near(fft.rfftfreq(n, d=0.3, dtype="float64"), np.fft.rfftfreq(n, 0.3))
    assert fft.fftfreq(n).dtype == "float32"


@pytest.mark.parametrize("axes", [None, 0, (0, 1), -1])
@pytest.mark.parametrize("shape", [(4, 5), (1, 3), (0, 2)], ids=str)
def test_shifts(shape: Any, axes: Any, rng: np.random.Generator) -> None:
    x = rng.random(shape)
    shifted = fft.fftshift(ruda.asarray(x), axes=axes)
    np.testing.assert_array_equal(shifted.numpy(), np.fft.fftshift(x, axes))
    np.testing.assert_array_equal(fft.ifftshift(shifted, axes=axes).numpy(), x)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cosines(kind: int, norm: str, dtype: str, rng: np.random.Generator) -> None:
    transforms = pytest.importorskip("scipy.fft")
    x = drawn(rng, (6, 5), dtype)
    for n in (None, 2, 5, 8, 9):
        for axis in (-1, 0):
            options = {"type": kind, "n": n, "axis": axis, "norm": norm}
            near(fft.dct(ruda.asarray(x), **options), transforms.dct(x, **options))
            near(fft.idct(ruda.asarray(x), **options), transforms.idct(x, **options))


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_orthonormal_cosines_keep_the_norm(kind: int, rng: np.random.Generator) -> None:
    eye = ruda.asarray(np.eye(7))
    matrix = fft.dct(eye, type=kind, norm="ortho").numpy()
    near(ruda.asarray(matrix @ matrix.T), np.eye(7))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8])
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize(
    ("name", "beta"),
    [
        ("hann", None),
        ("hamming", None),
        ("blackman", None),
        ("bartlett", None),
        ("kaiser", 0.0),
        ("kaiser", 12.0),
        ("kaiser", 60.0),
    ],
)
def test_windows(name: str, beta: Any, periodic: bool, n: int) -> None:
    windows = pytest.importorskip("scipy.signal.windows")
    options = {} if beta is None else {"beta": beta}
    got = getattr(fft, name)(n, periodic=periodic, dtype="float64", **options)
    want = getattr(windows, name)(n, sym=not periodic, **options)
    # The ends of a window cancel to zero: absolute, in units of its peak of 1.
    assert np.allclose(got.numpy(), want, rtol=1e-12, atol=1e-15)
    assert getattr(fft, name)(n, **options).dtype == "float32"


def frames_of_torch(torch: Any, x: Any, window: Any, **options: Any) -> Any:
    shape = torch.tensor(window)
    return torch.stft(
        torch.tensor(x),
        8,
        hop_length=2,
        win_length=len(shape),
        window=shape,
        return_complex=True,
        **options,
    )


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("width", [8, 6])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("onesided", [True, False])
def test_frames(
    dtype: str, width: int, normalized: bool, onesided: bool, rng: np.random.Generator
) -> None:
    torch = pytest.importorskip("torch")
    if dtype == "complex128" and onesided:
        pytest.skip("a complex signal has no conjugate half")
    x, window = drawn(rng, (2, 40), dtype), fft.hann(width, dtype="float64")
    options = {"normalized": normalized, "onesided": onesided}
    for center in (True, False):
        want = frames_of_torch(torch, x, window.numpy(copy=True), center=center, **options)
        got = fft.stft(ruda.asarray(x), 8, hop_length=2, window=window, center=center, **options)
        near(got, want.numpy())
    centred = fft.stft(ruda.asarray(x), 8, hop_length=2, window=window, **options)
    for length in (None, 30, 45):
        back = fft.istft(centred, 8, hop_length=2, window=window, length=length, **options)
        assert back.shape == (2, length or 40)
        kept = min(back.shape[-1], 40)
        assert_close(back[:, :kept], x[:, :kept], rtol=1e-13)
        # Four elements more come from the padding; beyond the last frame there is nothing.
        assert (back[:, 44:] == 0).all()


def test_window_defaults_to_ones(rng: np.random.Generator) -> None:
    x = drawn(rng, (24,), "float32")
    got = fft.stft(ruda.asarray(x), 8, center=False)
    near(got[:, 1], np.fft.rfft(x[2:10]))
    assert got.shape == (5, 9)


def test_element_without_weight_is_zero() -> None:
    spectra = fft.stft(ruda.ones(16), 8, window=fft.hann(8), center=False)
    back = fft.istft(spectra, 8, window=fft.hann(8), center=False)
    assert back[0].item() == 0
    assert_close(back[1:], np.ones(15), rtol=1e-5)


def test_gradients_of_frames(rng: np.random.Generator) -> None:
    window = fft.hann(8, dtype="float64")

    def there_and_back(x: Any) -> Any:
        spectra = fft.stft(x, 8, hop_length=2, window=window)
        return fft.istft(spectra * (1 + 1j), 8, hop_length=2, window=window)

    gradcheck(there_and_back, [drawn(rng, (20,), "float64")])


def test_a_short_signal_cannot_be_reflected() -> None:
    with pytest.raises(ShapeError, match=r"stft: the signal is too short.*Try center=False"):
        fft.stft(ruda.ones(4), 8)


def test_all_names_are_there() -> None:
    assert all(callable(getattr(fft, name)) for name in fft.__all__)
