"""Sets and counts against NumPy, in their dynamic and their fixed-size forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import IndexRangeError
from ruda.testing import assert_close

DTYPES = ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_unique_all(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 5, (4, 6))
    t = ruda.asarray(x).astype(dtype)
    values, first, inverse, counts = ruda.unique_all(t)
    assert values.dtype == t.dtype
    assert (first.dtype, inverse.dtype, counts.dtype) == (ruda.int64,) * 3
    assert inverse.shape == t.shape
    assert np.array_equal(values.numpy()[inverse.numpy()], t.numpy())
    assert np.array_equal(t.numpy().reshape(-1)[first.numpy()], values.numpy())
    assert np.array_equal(counts.numpy(), np.bincount(inverse.numpy().reshape(-1)))
    assert all(i == x for i, x in zip(first.tolist(), _first_places(t.numpy()), strict=True))
    for other in (ruda.unique_values(t), ruda.unique_counts(t).values, ruda.unique_inverse(t)[0]):
        assert np.array_equal(other.numpy(), values.numpy())


def _first_places(x: Any) -> list[int]:
    flat = x.reshape(-1)
    return [int(np.argmax(flat == v)) for v in np.unique(flat.astype(np.complex64))]


def test_every_nan_is_distinct() -> None:
    x = ruda.asarray([math.nan, 1.0, math.nan, 1.0])
    assert ruda.unique_counts(x).counts.tolist() == [2, 1, 1]
    assert np.isnan(ruda.unique(x, size=3).numpy()).tolist() == [False, True, True]


@pytest.mark.parametrize("size", [0, 2, 4, 7])
def test_unique_of_fixed_size(size: int) -> None:
    x = ruda.asarray([[3, 1, 3], [7, 5, 1]])
    values = [1, 3, 5, 7]
    got = ruda.unique(x, size=size)
    assert got.tolist() == values[:size] + [1] * (size - 4)
    filled = ruda.unique(x, size=size, fill_value=-1)
    assert filled.tolist() == values[:size] + [-1] * (size - 4)
    assert ruda.unique(x).tolist() == values


@pytest.mark.parametrize("shape", [(6,), (3, 4), (2, 3, 4), (0, 3)])
def test_nonzero(shape: Any) -> None:
    x = np.random.default_rng(1).integers(0, 2, shape)
    want = np.nonzero(x)
    for dtype in ("int8", "bool", "float32"):
        got = ruda.nonzero(ruda.asarray(x).astype(dtype))
        assert len(got) == len(want)
        assert all(np.array_equal(g.numpy(), w) for g, w in zip(got, want, strict=True))
    count = len(want[0])
    for size in {0, max(count - 1, 0), count, count + 2}:
        got = ruda.nonzero(ruda.asarray(x), size=size, fill_value=9)
        for g, w in zip(got, want, strict=True):
            assert g.tolist() == [*w.tolist()[:size], *[9] * (size - count)]
            assert g.dtype == ruda.int64


def test_bincount() -> None:
    x = np.random.default_rng(2).integers(0, 6, 40)
    w = np.random.default_rng(3).random(40).astype(np.float32)
    t = ruda.asarray(x)
    for minlength in (0, 9):
        want = np.bincount(x, minlength=minlength)
        assert ruda.bincount(t, minlength=minlength).tolist() == want.tolist()
    weighted = ruda.bincount(t, ruda.asarray(w), length=8)
    assert weighted.dtype == ruda.float32
    assert_close(weighted, np.bincount(x, w, minlength=8), length=40)
    assert ruda.bincount(t.astype("uint64")).dtype == ruda.int64
    assert ruda.bincount(ruda.zeros((0,), dtype="int32")).shape == (0,)
    big = ruda.full((3,), 2**60, dtype="int64")
    assert ruda.bincount(ruda.zeros((3,), dtype="int64"), big).item() == 3 * 2**60


def test_bincount_out_of_range_raises() -> None:
    for values, length in (([0, -1], None), ([0, 5], 5)):
        with pytest.raises(IndexRangeError, match="bincount: a value has no bin"):
            ruda.bincount(ruda.asarray(values), length=length)


def test_bincount_gradient_is_a_gather() -> None:
    w = ruda.tensor([1.0, 2.0, 3.0], requires_grad=True)
    counts = ruda.bincount(ruda.asarray([2, 0, 2]), w, length=3)
    ruda.sum(counts * ruda.asarray([10.0, 20.0, 30.0])).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [30.0, 10.0, 30.0]


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("limits", [None, (-1.0, 0.5)])
def test_histogram(limits: Any, density: bool) -> None:
    x = np.random.default_rng(5).standard_normal(200)
    got = ruda.histogram(ruda.asarray(x), 12, range=limits, density=density)
    counts, edges = np.histogram(x, 12, range=limits, density=density)
    assert_close(got.edges, edges)
    assert_close(got.counts, counts, length=12)


def test_histogram_of_edges_weights_and_outliers() -> None:
    x = np.array([0.0, 1.0, 1.0, 2.0, 3.0, -5.0, np.nan])
    w = np.arange(7.0)
    edges = np.array([0.0, 1.0, 2.0])
    got = ruda.histogram(ruda.asarray(x), ruda.asarray(edges), weights=ruda.asarray(w))
    assert got.counts.tolist() == [0.0, 1.0 + 2.0 + 3.0]
    assert ruda.histogram(ruda.ones(4), 2).counts.tolist() == [0, 4]
    assert ruda.histogram(ruda.zeros((0,)), 2).counts.tolist() == [0, 0]
