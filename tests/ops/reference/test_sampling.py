"""Masks, integers, categories and permutations: exact rules, counts, extremes, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from ruda.ops.reference import philox
from ruda.ops.reference import sampling as S

N = 40_000
Array = NDArray[Any]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def assert_chi_square(counts: Array, expected: Array | float) -> None:
    """Pearson's statistic within 5 standard deviations of its mean, df = cells - 1."""
    df = counts.size - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert abs(statistic - df) < 5 * math.sqrt(2 * df)


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.1, 0.5, 1 - 2.0**-33, 1.0])
def test_masks_compare_words_with_a_threshold(p: float) -> None:
    words = philox.words(1, 2, 1000).astype(object)
    expected = [int(w) < round(p * 2**32) for w in words]
    assert S.bernoulli(1, 2, (1000,), p).tolist() == expected
    assert S.dropout_mask(1, 2, (10, 100), p).reshape(-1).tolist() == [not e for e in expected]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.93])
def test_mask_rate(p: float) -> None:
    kept = int(S.dropout_mask(1, 3, (N,), p).sum())
    assert abs(kept - N * (1 - p)) < 5 * math.sqrt(N * p * (1 - p))


def test_bernoulli_broadcasts() -> None:
    p = np.array([0.0, 0.25, 1.0], np.float32)
    got = S.bernoulli(1, 4, (N, 3), p)
    assert not got[:, 0].any() and got[:, 2].all()
    assert abs(int(got[:, 1].sum()) - N / 4) < 5 * math.sqrt(N * 3 / 16)
    np.testing.assert_array_equal(S.bernoulli(1, 4, (N, 3), np.full((N, 3), 0.3)),
                                  S.bernoulli(1, 4, (N, 3), 0.3))  # fmt: skip


def slow_integer(draw: int, element: int, low: int, high: int) -> int:
    """Lemire's rule in Python integers."""
    span = high - low
    bits = 32 if span <= 2**32 else 64
    for attempt in range(100):
        first = element * bits // 32
        words = philox.words(7, draw, 4, attempt, first // 4).tolist()
        number = words[first % 4] if bits == 32 else words[first % 4] | words[first % 4 + 1] << 32
        product = number * span
        if product % 2**bits >= 2**bits % span:
            return low + (product >> bits)
    raise AssertionError


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 1),
        (-3, 3),
        (0, 3 << 30),
        (-(2**31), 2**31),
        (-1, 2**32),
        (0, 3 << 61),
        (-(2**63), 2**63),
        (-(2**62) - 5, 2**61 + 12345),
    ],
)
def test_integers_follow_the_slow_rule(low: int, high: int) -> None:
    got = S.integers(7, 1, (200,), low, high, np.int64 if high < 2**63 or low < 0 else np.uint64)
    assert got.tolist() == [slow_integer(1, e, low, high) for e in range(200)]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_cover_the_whole_dtype(dtype: Any) -> None:
    bounds = np.iinfo(dtype)
    got = S.integers(7, 2, (N,), int(bounds.min), int(bounds.max) + 1, dtype)
    assert got.dtype == dtype
    cells = np.floor((got.astype(np.float64) - float(bounds.min)) / 2.0 ** (bounds.bits - 4))
    assert_chi_square(np.bincount(cells.astype(int).clip(0, 15), minlength=16), N / 16)
    narrow = S.integers(7, 2, (N,), 0, 100, dtype)
    np.testing.assert_array_equal(narrow, S.integers(7, 2, (N,), 0, 100, np.int64))


@pytest.mark.parametrize("span", [2, 3, 7, 10, 1000])
def test_integers_are_uniform(span: int) -> None:
    assert_chi_square(np.bincount(S.integers(7, 3, (N,), 0, span), minlength=span), N / span)


@pytest.mark.parametrize(("span", "dtype"), [(3 << 30, np.uint32), (3 << 62, np.uint64)])
def test_integers_have_no_bias_where_rejection_is_frequent(span: int, dtype: Any) -> None:
    # Without rejection every third value would come twice as often.
    got = S.integers(7, 4, (N,), 0, span, dtype)
    assert_chi_square(np.bincount((got % dtype(3)).astype(int), minlength=3), N / 3)


def test_successive_draws_are_independent() -> None:
    pairs = S.integers(7, 5, (N,), 0, 16) * 16 + S.integers(7, 6, (N,), 0, 16)
    assert_chi_square(np.bincount(pairs, minlength=256), N / 256)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("logits", [False, True])
def test_categorical_with_replacement(dtype: Any, logits: bool) -> None:
    p = np.array([[4.0, 0.0, 1.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        weights = (np.log(p) if logits else p).astype(dtype)
    got = S.categorical(1, 7, weights, N, logits)
    assert got.dtype == np.int64 and got.shape == (2, N)
    counts = np.bincount(got[0], minlength=5)
    assert counts[1] == counts[4] == 0
    actual = np.exp(weights[0].astype(float)) if logits else p[0]
    expected = N * actual / actual.sum()
    assert_chi_square(counts[[0, 2, 3]], expected[[0, 2, 3]])
    assert (got[1] == 4).all()


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8, 9, 1000])
def test_categorical_search_equals_searchsorted(k: int) -> None:
    weights = np.random.default_rng(k).random((3, k))
    got = S.categorical(1, 8, weights, 257)
    words = philox.words(1, 8, 2 * 3 * 257).view(np.uint64).reshape(3, 257)
    u = (words >> np.uint64(11)) * 2.0**-53
    for row in range(3):
        sums = np.cumsum(weights[row] / weights[row].max())
        expected = np.searchsorted(sums, u[row] * sums[-1], side="right")
        np.testing.assert_array_equal(got[row], expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("logits", [False, True])
def test_categorical_without_replacement(dtype: Any, logits: bool) -> None:
    p = np.array([0.5, 0.0, 0.3, 0.2])
    with np.errstate(divide="ignore"):
        weights = np.broadcast_to((np.log(p) if logits else p).astype(dtype), (N, 4))
    got = S.categorical(1, 9, weights, 3, logits, replacement=False)
    assert got.dtype == np.int64 and (np.sort(got, axis=-1) == [0, 2, 3]).all()
    orders = [(i, j, k) for i in (0, 2, 3) for j in (0, 2, 3) for k in (0, 2, 3)
              if len({i, j, k}) == 3]  # fmt: skip
    counts = np.array([int((got == order).all(axis=-1).sum()) for order in orders])
    expected = np.array([N * p[i] * p[j] / (1 - p[i]) for i, j, _ in orders])
    assert_chi_square(counts, expected)


def test_categorical_takes_extreme_weights() -> None:
    assert (S.categorical(1, 1, np.array([-1e30, 3e38, -np.inf], np.float32), 50, True) == 1).all()
    counts = np.bincount(S.categorical(1, 1, np.array([1.5e308, 1.5e308]), N), minlength=2)
    assert_chi_square(counts, N / 2)
    tiny = np.full(2, 5e-324)
    assert_chi_square(np.bincount(S.categorical(1, 1, tiny, N), minlength=2), N / 2)
    first = S.categorical(1, 2, np.zeros((N, 2), np.float32), 2, True, replacement=False)[:, 0]
    assert_chi_square(np.bincount(first, minlength=2), N / 2)


def test_permutation_is_a_uniform_permutation() -> None:
    got = S.permutation(1, 10, 10_001)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(np.sort(got), np.arange(10_001))
    codes = [tuple(S.permutation(1, draw, 4).tolist()) for draw in range(4800)]
    counts = np.unique(np.array(codes) @ [64, 16, 4, 1], return_counts=True)[1]
    assert counts.size == 24
    assert_chi_square(counts, 200.0)


def test_permutation_breaks_ties_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(philox, "words", lambda seed, draw, n: np.arange(n, dtype=np.uint32) // 64)
    np.testing.assert_array_equal(S.permutation(0, 0, 1000), np.arange(1000))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (3, 5)])
def test_shapes(shape: tuple[int, ...]) -> None:
    assert S.bernoulli(1, 1, shape, 0.5).shape == shape
    assert S.bernoulli(1, 1, shape, np.full(shape, 0.5)).shape == shape
    assert S.dropout_mask(1, 1, shape, 0.5).shape == shape
    assert S.integers(1, 1, shape, 0, 5).shape == shape
    assert S.integers(1, 1, shape, 0, 2**40, np.int64).shape == shape
    for replacement in (False, True):
        got = S.categorical(1, 1, np.ones((*shape, 3)), 2, replacement=replacement)
        assert got.shape == (*shape, 2)
    assert S.categorical(1, 1, np.ones((*shape, 3)), 0).shape == (*shape, 0)
    assert S.permutation(1, 1, 0).shape == (0,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: S.bernoulli(0, 0, (2,), 1.5), r"bernoulli: p is no probability. Got p=1.5"),
        (lambda: S.bernoulli(0, 0, (2,), [0.5, math.nan]), "bernoulli: p is no probability"),
        (lambda: S.bernoulli(0, 0, (2,), np.full(3, 0.5)), "bernoulli: p does not broadcast"),
        (lambda: S.dropout_mask(0, 0, (2,), -0.1), "dropout: p is no probability"),
        (lambda: S.integers(0, 0, (2,), 3, 3), "integers: the interval is empty"),
        (lambda: S.integers(0, 0, (2,), 0, 257, np.uint8), "integers: the range leaves uint8"),
        (lambda: S.integers(0, 0, (2,), -1, 2, np.uint64), "integers: the range leaves uint64"),
        (lambda: S.integers(0, 0, (2,), 0, 2, np.float32), "integers: not an integer dtype"),
        (lambda: S.categorical(0, 0, np.ones((2, 0)), 1), "categorical: nothing to draw from"),
        (lambda: S.categorical(0, 0, np.ones(2), -1), "categorical: nothing to draw from"),
        (lambda: S.categorical(0, 0, np.array([1.0, -1.0]), 1), "categorical: bad probabilities"),
        (lambda: S.categorical(0, 0, np.array([math.nan]), 1, True), "categorical: bad logits"),
        (lambda: S.categorical(0, 0, np.array([math.inf]), 1, True), "categorical: bad logits"),
        (lambda: S.categorical(0, 0, np.zeros((2, 3)), 1), "too few possible categories"),
        (
            lambda: S.categorical(0, 0, np.array([1.0, 0.0]), 2, replacement=False),
            "too few possible categories",
        ),
    ],
)
def test_bad_parameters(call: Callable[[], Array], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
