"""Fourier transforms on a GPU: every dtype, odd and prime lengths, axes, scales, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda import fft
from ruda.testing import assert_close
from tests.cuda.test_transforms import AXES, signal

LENGTHS = (1, 2, 7, 16, 97, 1000, 4096, 10_007)


def check(got: ruda.Tensor, want: Any) -> None:
    # Each output is a sum of all elements, in stages.
    assert_close(got.to("cpu"), want, length=want.size, scale=float(np.abs(want).max()))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(rng: np.random.Generator, device: str, n: int, dtype: str) -> None:
    x = signal(rng, (3, n), dtype, device)
    a = x.numpy().astype("complex128" if dtype.startswith("c") else "float64")
    check(fft.fft(x), np.fft.fft(a))
    check(fft.ifft(x, axis=0), np.fft.ifft(a, axis=0))
    if dtype.startswith("float"):
        check(fft.rfft(x), np.fft.rfft(a))
        check(fft.rfft(x, axis=0, norm="forward"), np.fft.rfft(a, axis=0, norm="forward"))
    check(fft.irfft(x, n=n), np.fft.irfft(a, n=n))


@pytest.mark.parametrize(("shape", "axes"), [(s, a) for s, a, _ in AXES])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_axes(rng: np.random.Generator, device: str, shape: Any, axes: Any, norm: str) -> None:
    x = signal(rng, shape, "complex64", device)
    check(fft.fftn(x, axes=axes, norm=norm), np.fft.fftn(x.numpy(), axes=axes, norm=norm))
    check(fft.ifftn(x, axes=axes, norm=norm), np.fft.ifftn(x.numpy(), axes=axes, norm=norm))
    if axes:
        y = signal(rng, shape, "float32", device)
        half = fft.rfftn(y, axes=axes, norm=norm)
        check(half, np.fft.rfftn(y.numpy(), axes=axes, norm=norm))
        sizes, rough = [shape[a] for a in axes], half + 0.5j
        want = np.fft.irfftn(rough.numpy(), s=sizes, axes=axes, norm=norm)
        check(fft.irfftn(rough, s=sizes, axes=axes, norm=norm), want)


def test_large_and_strided(rng: np.random.Generator, device: str) -> None:
    x = signal(rng, (1024, 2050), "complex64", device)
    for view in (x, x.T, x[::2, 1:]):
        check(fft.fftn(view), np.fft.fftn(view.numpy()))
    check(fft.ifftn(fft.fftn(x)), x.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_view_between_two_pairs(rng: np.random.Generator, device: str, dtype: str) -> None:
    x = signal(rng, (1025,), dtype, device)[1:]
    check(fft.rfft(x), np.fft.rfft(x.numpy().astype("float64")))


def test_gradients_equal_those_of_the_cpu(rng: np.random.Generator, device: str) -> None:
    values = rng.standard_normal((6, 30))
    found = []
    for where in ("cpu", device):
        x = ruda.asarray(values, dtype="float64", device=where).requires_grad_()
        half = fft.rfftn(x, norm="ortho")
        y = fft.irfft(half * half, n=9) ** 2
        (y.sum() + (ruda.abs(fft.fft(x, axis=0)) ** 2).sum()).backward()
        found.append(x.grad.to("cpu").numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10, atol=1e-10)
