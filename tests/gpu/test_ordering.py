"""Scans and ordering at sizes where thousands of blocks work: against NumPy, and for equal bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.testing import assert_close

LARGE = (1 << 24) + 4321


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(LARGE,), (3, LARGE // 3), (4000, 4099), (1 << 20, 13)])
def test_integer_sums_are_exact(
    device: str, rng: np.random.Generator, shape: tuple[int, ...], reverse: bool
) -> None:
    x = rng.integers(-100, 100, shape).astype("i4")
    got = ruda.cumsum(ruda.asarray(x, device=device), axis=-1, reverse=reverse)
    flipped = np.flip(x, -1) if reverse else x
    want = np.cumsum(flipped, axis=-1)
    np.testing.assert_array_equal(got.numpy(), np.flip(want, -1) if reverse else want)


@pytest.mark.parametrize("shape", [(1 << 20, 16), (8, 300_001, 3), (1000, 16_000)])
def test_sums_along_an_outer_axis(
    device: str, rng: np.random.Generator, shape: tuple[int, ...]
) -> None:
    x, axis = rng.integers(-100, 100, shape), len(shape) - 2
    got = ruda.cumsum(ruda.asarray(x, device=device), axis=axis, exclusive=True)
    np.testing.assert_array_equal(got.numpy(), np.cumsum(x, axis=axis) - x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_long_sum_repeats_bit_by_bit(device: str, rng: np.random.Generator, dtype: str) -> None:
    x = ruda.asarray(rng.uniform(0.5, 1.5, 50_000_000), dtype=dtype, device=device)
    first = ruda.cumsum(x).numpy()
    for _ in range(5):
        assert ruda.cumsum(x).numpy().tobytes() == first.tobytes()
    # One after the other in float64 would round more often than a tree of partial sums does.
    want = np.cumsum(x.numpy().astype("d"), dtype=np.longdouble).astype("d")
    assert_close(ruda.asarray(first, device="cpu"), want, length=64)


def test_long_extremes_and_recurrences(device: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 1 << 30, LARGE).astype("f")
    values, places = ruda.cummax(ruda.asarray(x, device=device))
    want = ruda.cummax(ruda.asarray(x, device="cpu"))
    np.testing.assert_array_equal(values.numpy(), want.values.numpy())
    np.testing.assert_array_equal(places.numpy(), want.indices.numpy())
    logs = rng.standard_normal(LARGE)
    got = ruda.cumlogsumexp(ruda.asarray(logs, device=device))
    want_logs = np.log(np.cumsum(np.exp(logs), dtype=np.longdouble)).astype("d")
    assert_close(got.to("cpu"), want_logs, length=256)


def keys(rng: np.random.Generator, n: int, dtype: str) -> Any:
    """Values of the whole range, with NaN and both zeros among floats."""
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if "int" in dtype:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, n, dtype=dtype, endpoint=True)
    x = rng.standard_normal(n).astype("f")
    x[::1001], x[1::7], x[2::7] = np.nan, 0.0, -0.0
    return x


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint16", "int32", "uint32", "int64", "float16", "bfloat16", "float32"],
)
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_of_many(
    device: str, rng: np.random.Generator, dtype: str, descending: bool
) -> None:
    x = ruda.asarray(keys(rng, LARGE, dtype), dtype=dtype, device="cpu")
    there, how = x.to(device), {"descending": descending}
    places = ruda.argsort(there, **how).numpy()
    np.testing.assert_array_equal(places, ruda.argsort(x, **how).numpy())
    wide = x.numpy().astype("d") if x.dtype.is_floating else x.numpy()
    got = ruda.sort(there, **how).numpy().astype(wide.dtype)
    np.testing.assert_array_equal(got, wide[places])


@pytest.mark.parametrize("shape", [(1 << 20, 20), (20_000, 700), (3000, 4096), (300, 50_000)])
def test_sorting_of_rows(device: str, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    x = rng.integers(-1000, 1000, shape).astype("f")
    there = ruda.asarray(x, device=device)
    np.testing.assert_array_equal(ruda.sort(there).numpy(), np.sort(x))
    places = ruda.argsort(there, descending=True).numpy()
    np.testing.assert_array_equal(places, np.argsort(-x, kind="stable"))
    along = ruda.argsort(there[:, :16], axis=0).numpy()
    np.testing.assert_array_equal(along, np.argsort(x[:, :16], axis=0, kind="stable"))


@pytest.mark.parametrize(
    ("shape", "k"),
    [((64, 131_072), 64), ((1, LARGE), 3000), ((2000, 9001), 10), ((50_000, 300), 5)],
)
@pytest.mark.parametrize("largest", [True, False])
def test_topk(
    device: str, rng: np.random.Generator, shape: tuple[int, ...], k: int, largest: bool
) -> None:
    x = rng.integers(-5000, 5000, shape).astype("f")
    values, places = ruda.topk(ruda.asarray(x, device=device), k, largest=largest)
    want = np.argsort(-x if largest else x, axis=-1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places.numpy(), want)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, want, axis=-1))


def test_few_winners_of_rows_in_every_order(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 300_000)).astype("f")
    x[1], x[2], x[3] = np.sort(x[1]), -np.sort(x[1]), 2.0
    x[4, :299_000], x[5, ::1001] = -np.inf, np.nan
    for k in (1, 64, 96):
        values, places = ruda.topk(ruda.asarray(x, device=device), k)
        want = ruda.topk(ruda.asarray(x, device="cpu"), k)
        np.testing.assert_array_equal(places.numpy(), want.indices.numpy())
        np.testing.assert_array_equal(values.numpy(), want.values.numpy())


def test_places_and_distinct_values(device: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 1 << 20, LARGE)
    there = ruda.asarray(x, device=device)
    mask = x % 3 == 0
    (found,) = ruda.nonzero(ruda.asarray(mask, device=device))
    np.testing.assert_array_equal(found.numpy(), np.flatnonzero(mask))
    names = {"return_index": True, "return_inverse": True, "return_counts": True}
    for got, want in zip(ruda.unique_all(there), np.unique(x, **names), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(ruda.unique_values(there).numpy(), np.unique(x))
    counts = x[:100_000] % 200
    got = ruda.repeat(ruda.arange(100_000, device=device), ruda.asarray(counts, device=device))
    np.testing.assert_array_equal(got.numpy(), np.repeat(np.arange(100_000), counts))


@pytest.mark.parametrize("bins", [10, 5000, 1 << 20])
def test_counting(device: str, rng: np.random.Generator, bins: int) -> None:
    x, weights = rng.integers(0, bins, LARGE), rng.uniform(0.5, 1.5, LARGE).astype("f")
    there, w = ruda.asarray(x, device=device), ruda.asarray(weights, device=device)
    got = ruda.bincount(there, length=bins).numpy()
    np.testing.assert_array_equal(got, np.bincount(x, minlength=bins))
    sums = ruda.bincount(there, w, length=bins)
    assert_close(sums.to("cpu"), np.bincount(x, weights, bins))
    assert ruda.bincount(there, w, length=bins).numpy().tobytes() == sums.numpy().tobytes()
    lines = np.sort(rng.standard_normal(bins))
    spots = ruda.searchsorted(ruda.asarray(lines, device=device), w.astype("float64"))
    np.testing.assert_array_equal(spots.numpy(), np.searchsorted(lines, weights.astype("d")))
