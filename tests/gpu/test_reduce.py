"""Reductions, copies and factories on the GPU at sizes that fill it, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.dtypes import as_dtype
from ruda.testing import assert_close

# Millions of elements: several blocks an output, many outputs, odd lengths, narrow columns.
CASES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((5_000_011,), 0),
    ((3, 1_500_001), 1),
    ((200_000, 33), 1),
    ((200_000, 32), 1),
    ((300_000, 7), 0),
    ((3000, 2048), 0),
    ((3001, 1999), 0),
    ((64, 100, 512), 1),
    ((300, 64, 129), (0, 2)),
    ((30_000, 3, 40), 1),
    ((20, 30, 40, 50), (1, 3)),
)


@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_sums(
    shape: tuple[int, ...], axes: Any, dtype: str, device: str, rng: np.random.Generator
) -> None:
    x = rng.standard_normal(shape).astype(np.float32).astype(as_dtype(dtype).numpy)
    t, wide = ruda.asarray(x, device=device), x.astype(np.float64)
    length = max(x.size // max(wide.sum(axis=axes).size, 1), 1)
    scale = float(np.linalg.norm(np.abs(wide).sum(axis=axes)))
    for layout in ("dense", "turned"):
        if layout == "turned":
            order = tuple(reversed(range(x.ndim)))
            dense = ruda.asarray(np.ascontiguousarray(x.transpose(order)), device=device)
            t = dense.permute_dims(order)
        got = ruda.sum(t, axis=axes)
        assert_close(got.to("cpu"), wide.sum(axis=axes), length=length, scale=scale, name=layout)
        again = ruda.sum(t, axis=axes)
        np.testing.assert_array_equal(got.to("cpu").numpy(), again.to("cpu").numpy())


@pytest.mark.parametrize(("shape", "axes"), CASES[:8], ids=str)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places(
    name: str, shape: tuple[int, ...], axes: int, device: str, rng: np.random.Generator
) -> None:
    # Few values, so that the first of many equal ones has to be found.
    x = rng.integers(0, 50, shape).astype(np.float32)
    t = ruda.asarray(x, device=device)
    for axis in (axes, None):
        want = getattr(np, name)(x, axis=axis)
        np.testing.assert_array_equal(getattr(ruda, name)(t, axis=axis).numpy(), want)


@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_spreads(shape: tuple[int, ...], axes: Any, device: str, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(shape) * 3 + 5).astype(np.float32)
    got = ruda.std(ruda.asarray(x, device=device), axis=axes, correction=1)
    assert_close(got.to("cpu"), x.std(axis=axes, ddof=1, dtype=np.float64), length=64)


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32", "complex64", "complex128"])
@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0), (2, 0, 1), (1, 2, 0)], ids=str)
def test_permuted_copies(order: tuple[int, ...], dtype: str, device: str) -> None:
    x = (np.arange(130 * 67 * 200).reshape(130, 67, 200) % 251).astype(as_dtype(dtype).numpy)
    got = ruda.asarray(x, device=device).permute_dims(order).copy()
    np.testing.assert_array_equal(got.numpy(), x.transpose(order))


def test_more_elements_than_32_bits_count(device: str) -> None:
    n = 2**31 + 40
    t = ruda.full((n,), 1, dtype="int8", device=device)
    assert ruda.sum(t).item() == n
    t[n - 3] = 2
    assert ruda.argmax(t).item() == n - 3
    rows = t.reshape(8, n // 8)
    assert rows.T.copy()[:, 7].sum().item() == n // 8 + 1


def test_factories(device: str) -> None:
    n = 3_000_001
    for got, want in (
        (ruda.arange(n, device=device), ruda.arange(n)),
        (ruda.arange(0.1, 900.0, 0.0003, device=device), ruda.arange(0.1, 900.0, 0.0003)),
        (ruda.linspace(-1, 3.3, n, device=device), ruda.linspace(-1, 3.3, n)),
        (ruda.eye(1000, 1500, k=-7, device=device), ruda.eye(1000, 1500, k=-7)),
    ):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("code", ["float8_e4m3", "float8_e5m2", "float4_e2m1"])
def test_codes(code: str, device: str, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(300_000) * 2.0 ** rng.integers(-20, 20, 300_000)).astype(np.float32)
    got = ruda.asarray(x, device=device).astype(code)
    want = x.astype(as_dtype(code).numpy)
    np.testing.assert_array_equal(got.numpy().view(np.uint8), want.view(np.uint8))
    back = got.astype("float32").numpy()
    np.testing.assert_array_equal(back, want.astype(np.float32))
