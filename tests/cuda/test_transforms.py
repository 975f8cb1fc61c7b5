"""Fourier transforms: how cuFFT is asked for any axes, lengths and scales."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import fft
from ruda.backends.cuda.fft import plans
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close
from tests.cuda.libraries.cufft import Cufft

pytest.importorskip("ruda.backends.cuda.compiler")


@pytest.fixture
def library(client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cufft]:
    """A cuFFT of NumPy in the place of the real one."""
    fake = Cufft()
    monkeypatch.setattr(plans, "library", lambda client: fake)
    plans.plan_of.cache_clear()
    clear_plans()
    yield fake
    clear_plans()
    plans.plan_of.cache_clear()
    assert fake.plans == {}


def signal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    x = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return ruda.asarray(x, dtype=dtype, device=device)


def check(got: ruda.Tensor, want: Any) -> None:
    assert_close(got.to("cpu"), want, length=want.size, scale=float(np.abs(want).max()))


AXES = [
    ((6, 5), (-1,), 1),
    ((6, 5), (0,), 1),
    ((6, 5), (0, 1), 1),
    ((6, 5), (1, 0), 1),
    ((2, 6, 5), (1,), 1),
    ((2, 6, 5), (0, 2), 1),
    ((2, 3, 2, 4), (0, 1, 2, 3), 2),
    ((7,), (), 0),
    ((1, 1), (0, 1), 1),
]


@pytest.mark.parametrize(("shape", "axes", "runs"), AXES)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_complex(
    library: Cufft,
    rng: np.random.Generator,
    device: str,
    shape: Any,
    axes: Any,
    runs: int,
    norm: str,
) -> None:
    x = signal(rng, shape, "complex64", device)
    check(fft.fftn(x, axes=axes, norm=norm), np.fft.fftn(x.numpy(), axes=axes, norm=norm))
    assert sum(plan.runs for plan in library.plans.values()) == runs
    check(fft.ifftn(x, axes=axes, norm=norm), np.fft.ifftn(x.numpy(), axes=axes, norm=norm))


@pytest.mark.parametrize(("shape", "axes"), [(s, a) for s, a, _ in AXES if a])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real(
    library: Cufft, rng: np.random.Generator, device: str, shape: Any, axes: Any, dtype: str
) -> None:
    x = signal(rng, shape, dtype, device)
    half = fft.rfftn(x, axes=axes, norm="ortho")
    assert half.dtype == ("complex64" if dtype == "float32" else "complex128")
    check(half, np.fft.rfftn(x.numpy(), axes=axes, norm="ortho"))
    sizes = [shape[a] for a in axes]
    rough = half + 0.5j
    before = rough.numpy()
    check(fft.irfftn(rough, s=sizes, axes=axes), np.fft.irfftn(before, s=sizes, axes=axes))
    np.testing.assert_array_equal(rough.numpy(), before)


def test_views_and_real_operands(library: Cufft, rng: np.random.Generator, device: str) -> None:
    x = signal(rng, (6, 8), "float64", device)
    for view in (x.T, x[::2, 1:], x[::-1]):
        check(fft.fft(view), np.fft.fft(view.numpy()))
        check(fft.rfft(view, axis=0), np.fft.rfft(view.numpy(), axis=0))
    check(fft.irfft(x), np.fft.irfft(x.numpy()))
    check(fft.fft(x, n=11), np.fft.fft(x.numpy(), n=11))
    odd = x.reshape((48,))[1:]
    check(fft.rfft(odd), np.fft.rfft(odd.numpy()))
    assert fft.fft(x[:0]).shape == (0, 8)


def test_a_plan_is_made_once(library: Cufft, rng: np.random.Generator, device: str) -> None:
    x = signal(rng, (4, 8), "complex64", device)
    fft.fft(x)
    fft.ifft(x)
    fft.fft(x.T.copy().T)
    assert library.made == 1
