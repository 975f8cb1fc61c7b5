"""Rows whose length depends on values, and counts, on an emulated GPU."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError, IndexRangeError
from tests.cuda.test_sort import alike, mixed

TILE = 16384


def test_nonzero(device: str, rng: np.random.Generator) -> None:
    mask = rng.random((3, 50, 211)) < 0.3
    assert mask.size > TILE
    alike(ruda.nonzero, device, mask)
    alike(lambda m: ruda.nonzero(m.mT[::2]), device, mask)
    alike(lambda m: m[m].sum(), device, mask)
    alike(ruda.nonzero, device, np.zeros((4, 5)))
    alike(ruda.nonzero, device, np.zeros((4, 0)))


def test_repeat(device: str, rng: np.random.Generator) -> None:
    x, counts = np.arange(500.0), rng.integers(0, 9, 500)
    alike(lambda x, c: ruda.repeat(x, c), device, x, counts)
    alike(lambda x, c: ruda.repeat(x, c.astype("uint8")[::-1]), device, x, counts)
    alike(lambda x, c: ruda.repeat(x, c), device, x[:3], np.zeros(3, "i8"))
    with pytest.raises(ArgumentError, match="negative"):
        ruda.repeat(ruda.zeros(2, device=device), ruda.asarray([1, -2], device=device))


def distinct(x: Any) -> Any:
    return (*ruda.unique_all(x), ruda.unique_values(x))


def test_unique(device: str, rng: np.random.Generator) -> None:
    alike(distinct, device, rng.integers(-40, 40, (60, 30)))
    alike(lambda x: distinct(x.T[:, ::2]), device, rng.integers(-40, 40, (60, 30)))
    alike(distinct, device, mixed(rng, (300,)), dtype="float32")
    alike(distinct, device, np.zeros((0, 3)))
    alike(distinct, device, np.float32(3.0))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "bfloat16", "float64", "uint64"])
def test_unique_dtypes(dtype: str, device: str, rng: np.random.Generator) -> None:
    alike(distinct, device, mixed(rng, (20000,), dtype), dtype=dtype)


def test_unique_of_complex(device: str, rng: np.random.Generator) -> None:
    parts = (0.0, 1.0, -1.0, np.nan, np.inf, -0.0)
    x = np.array([complex(*p) for p in itertools.product(parts, parts)] * 2, "c8")
    alike(lambda x: tuple(ruda.unique_all(x))[1:], device, rng.permutation(x))


@pytest.mark.parametrize("length", [50, 20_000])
def test_bincount(length: int, device: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 50, (9000,)).astype("i2")
    alike(lambda x: ruda.bincount(x, length=length), device, x)
    alike(lambda x: ruda.bincount(x[::-3], length=length), device, x)
    weights = rng.integers(-4, 5, 9000)
    alike(lambda x, w: ruda.bincount(x, w, length=length), device, x, weights)


def test_bincount_of_float_weights(device: str, rng: np.random.Generator) -> None:
    x, weights = rng.integers(0, 5, 3000).astype("i2"), rng.integers(-4, 5, 3000).astype("f")
    alike(ruda.bincount, device, x, weights)
    alike(lambda x, w: ruda.bincount(x[::2] * 0, w[::2]), device, x, weights)
    alike(lambda x, w: ruda.bincount(x, w.astype("float16")), device, x[:90], weights[:90])
    alike(lambda x, w: ruda.bincount(x, w, length=4), device, x[:0], weights[:0])


@pytest.mark.parametrize("bad", [-1, 10])
@pytest.mark.parametrize("weighed", [False, True])
def test_a_value_without_bin(bad: int, weighed: bool, device: str) -> None:
    x = ruda.asarray([1, bad, 2], device=device)
    weights = ruda.ones(3, device=device) if weighed else None
    counts = ruda.bincount(x, weights, length=10)
    with pytest.raises(IndexRangeError, match=rf"Got {bad} at \(1,\)"):
        counts.numpy()
    with pytest.raises(IndexRangeError):
        ruda.bincount(x, weights, length=0)
