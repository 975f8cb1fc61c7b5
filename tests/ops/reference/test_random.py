"""Continuous distributions: stated formulas, moments, distribution functions, extremes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from ruda.ops.reference import philox
from ruda.ops.reference import random as R

N = 40_000
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
WIDE = [np.float32, np.float64]
Array = NDArray[Any]
Cdf = Callable[[Array], Array]

_erf = np.vectorize(math.erf, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])


def normal_cdf(x: Array) -> Array:
    return 0.5 * _erfc(-x / math.sqrt(2))


def ks_distance(sample: Array, cdf: Cdf) -> float:
    """Kolmogorov's distance times sqrt(n); above 2.2 with probability 2 exp(-2 * 2.2**2) = 1e-4."""
    x = np.sort(sample.astype(np.float64).reshape(-1))
    steps = np.arange(x.size + 1) / x.size
    f = cdf(x)
    return float(max((steps[1:] - f).max(), (f - steps[:-1]).max()) * math.sqrt(x.size))


def assert_moments(sample: Array, mean: float, variance: float, kurtosis: float) -> None:
    """Mean and variance within 5 standard deviations of their estimators."""
    x, n = sample.astype(np.float64), sample.size
    assert abs(x.mean() - mean) < 5 * math.sqrt(variance / n)
    assert abs(x.var() - variance) < 5 * variance * math.sqrt((kurtosis - 1) / n)


CALLS: dict[str, Callable[..., Array]] = {
    "uniform": R.uniform,
    "normal": R.normal,
    "exponential": R.exponential,
    "truncated_normal": R.truncated_normal,
    "gamma": lambda seed, draw, shape, dtype=np.float32: R.gamma(
        seed, draw, shape, 0.7, dtype=dtype
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 7), (2, 3, 11)])
def test_shape_dtype_and_prefix(name: str, dtype: Any, shape: tuple[int, ...]) -> None:
    got = CALLS[name](1, 2, shape, dtype=dtype)
    assert got.shape == shape and got.dtype == dtype
    longer = CALLS[name](1, 2, (100,), dtype=dtype)
    np.testing.assert_array_equal(got.reshape(-1), longer[: got.size])


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", WIDE)
def test_chunk_size_does_not_show(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = CALLS[name](1, 2, (1001,), dtype=dtype)
    # An even number of blocks, since gamma in float64 owns two an element.
    monkeypatch.setattr(philox, "CHUNK_BLOCKS", 6)
    np.testing.assert_array_equal(CALLS[name](1, 2, (1001,), dtype=dtype), expected)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_half_is_the_rounded_float32(name: str, half: Any) -> None:
    # Uniform is held below 1 before it rounds; the bounds -2 and 2 of the truncation are exact.
    wide = CALLS[name](1, 2, (500,))
    below = np.nextafter(half(1), half(0)).astype(np.float32)
    expected = (np.minimum(wide, below) if name == "uniform" else wide).astype(half)
    np.testing.assert_array_equal(CALLS[name](1, 2, (500,), dtype=half), expected)


@pytest.mark.parametrize("name", CALLS)
def test_seed_and_draw_give_uncorrelated_streams(name: str) -> None:
    def ranks(seed: int, draw: int) -> Array:
        order = np.argsort(np.argsort(CALLS[name](seed, draw, (N,))))
        return order / N - 0.5

    base = ranks(1, 5)
    for other in (ranks(1, 6), ranks(2, 5), np.roll(base, 1), np.roll(base, 2)):
        # Spearman's correlation has a standard deviation of 1 / sqrt(N).
        assert abs(12 * (base * other).mean()) < 5 / math.sqrt(N)


def test_uniform_takes_the_top_bits() -> None:
    words = philox.words(3, 4, 64)
    expected = [(int(w) >> 8) * 2.0**-24 for w in words]
    assert R.uniform(3, 4, (64,)).tolist() == expected
    pairs = [int(low) | int(high) << 32 for low, high in words.reshape(-1, 2)]
    expected = [(pair >> 11) * 2.0**-53 for pair in pairs]
    assert R.uniform(3, 4, (32,), dtype=np.float64).tolist() == expected


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0), (1e-3, 2e-3)])
def test_uniform_distribution(dtype: Any, low: float, high: float) -> None:
    got = R.uniform(5, 1, (N,), low, high, dtype).astype(np.float64)
    assert ks_distance(got, lambda x: (x - low) / (high - low)) < 2.2
    assert_moments(got, (low + high) / 2, (high - low) ** 2 / 12, 1.8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.1, 0.2), (-0.3, -0.1), (1.0, 1.0625), (-2.0, 3.0)]
)
def test_uniform_stays_inside_after_rounding(dtype: Any, low: float, high: float) -> None:
    got = R.uniform(5, 1, (300_000,), low, high, dtype).astype(np.float64)
    assert low <= got.min() and got.max() < high


@pytest.mark.parametrize(("dtype", "step"), [(np.float16, 2.0**-11), (ml_dtypes.bfloat16, 2.0**-8)])
def test_uniform_half_reaches_the_number_below_one(dtype: Any, step: float) -> None:
    assert float(R.uniform(5, 1, (100_000,), dtype=dtype).max()) == 1 - step


def test_uniform_on_an_interval_of_one_number() -> None:
    low = float(1 << 24)
    assert set(R.uniform(1, 1, (1000,), low, low + 1).tolist()) == {low}
    with pytest.raises(ValueError, match="holds no finite number of float16"):
        R.uniform(1, 1, (3,), 2049.0, 2049.5, np.float16)


def test_uniform_over_the_whole_range() -> None:
    most = float(np.finfo(np.float32).max)
    got = R.uniform(1, 1, (1000,), -most / 2, most / 2)
    assert np.isfinite(got).all() and got.astype(np.float64).std() > most / 5


@pytest.mark.parametrize("dtype", WIDE)
def test_normal_pairs_elements_as_documented(dtype: Any) -> None:
    bits, unit_bits = (32, 24) if dtype == np.float32 else (64, 53)
    kind = np.uint32 if bits == 32 else np.uint64
    numbers = philox.words(8, 9, 40 * bits // 32).view(kind)
    expected = []
    for v0, v1 in numbers.reshape(-1, 2).tolist():
        radius = math.sqrt(-2 * math.log((v0 + 0.5) / 2**bits))
        angle = 2 * math.pi * (v1 >> bits - unit_bits) / 2**unit_bits
        expected += [radius * math.cos(angle), radius * math.sin(angle)]
    # Absolute error: the angle, up to 2 pi, carries a few roundings, times a radius below 10.
    bound = 20 * 2 * math.pi * np.finfo(dtype).eps
    np.testing.assert_allclose(R.normal(8, 9, (40,), dtype=dtype), expected, 0, bound)


@pytest.mark.parametrize("dtype", WIDE)
def test_normal_distribution(dtype: Any) -> None:
    got = R.normal(5, 2, (N,), 3.0, 0.5, dtype).astype(np.float64)
    assert ks_distance(got, lambda x: normal_cdf((x - 3) / 0.5)) < 2.2
    assert_moments(got, 3.0, 0.25, 3.0)
    z = (got - 3) / 0.5
    # Third moment of a standard normal: mean 0, variance 15.
    assert abs((z**3).mean()) < 5 * math.sqrt(15 / N)
    # The two elements of a pair, and their squares, are uncorrelated.
    assert abs((z[::2] * z[1::2]).mean()) < 5 / math.sqrt(N / 2)
    assert abs(((z[::2] ** 2 - 1) * (z[1::2] ** 2 - 1)).mean()) < 5 * 2 / math.sqrt(N / 2)


def test_normal_has_tails() -> None:
    got = R.normal(5, 3, (1_000_000,))
    beyond = int((np.abs(got) > 4).sum())
    expected = 1_000_000 * math.erfc(4 / math.sqrt(2))
    assert abs(beyond - expected) < 5 * math.sqrt(expected)
    assert np.isfinite(got).all()
    assert R.normal(5, 3, (4,), 2.5, 0.0).tolist() == [2.5] * 4


@pytest.mark.parametrize("dtype", WIDE)
def test_exponential_distribution(dtype: Any) -> None:
    got = R.exponential(5, 4, (N,), 2.5, dtype).astype(np.float64)
    assert got.min() >= 0
    assert ks_distance(got, lambda x: -np.expm1(-x / 2.5)) < 2.2
    assert_moments(got, 2.5, 2.5**2, 9.0)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize(
    ("mean", "std", "low", "high"),
    [
        (0.0, 1.0, -2.0, 2.0),
        (0.0, 0.02, -2.0, 2.0),
        (1.0, 2.0, 0.5, 1.5),
        (0.0, 1.0, -0.3, 4.0),
        (0.0, 1.0, 0.5, math.inf),
        (0.0, 1.0, -math.inf, -3.0),
        (0.0, 1.0, 5.0, 5.1),
        (2.0, 3.0, -math.inf, math.inf),
        (-1.0, 0.5, -2.0, -1.9),
    ],
)
def test_truncated_normal_distribution(
    dtype: Any, mean: float, std: float, low: float, high: float
) -> None:
    got = R.truncated_normal(5, 5, (N,), mean, std, low, high, dtype).astype(np.float64)
    assert low <= got.min() and got.max() <= high
    a, b = (low - mean) / std, (high - mean) / std
    sign = -1.0 if a > 0 else 1.0
    ends = normal_cdf(sign * np.array([a, b]))

    def cdf(x: Array) -> Array:
        return (normal_cdf(sign * (x - mean) / std) - ends[0]) / (ends[1] - ends[0])

    assert ks_distance(got, cdf) < 2.2


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("distance", [1e2, 1e4, 1e8, 1e18])
def test_truncated_normal_far_tail_is_exponential(dtype: Any, distance: float) -> None:
    # Beyond a, a * (x - a) tends to an exponential of mean 1; std makes it visible beside `low`.
    got = R.truncated_normal(5, 6, (N,), -distance * distance, distance, 0.0, math.inf, dtype)
    assert abs(got.mean(dtype=np.float64) - 1) < 5 / math.sqrt(N) + 2 / distance**2
    mirrored = R.truncated_normal(5, 6, (N,), distance * distance, distance, -math.inf, 0.0, dtype)
    np.testing.assert_array_equal(mirrored, -got)


@pytest.mark.parametrize("dtype", FLOATS)
def test_truncated_normal_keeps_unrepresentable_bounds(dtype: Any) -> None:
    got = R.truncated_normal(5, 7, (50_000,), 0.1, 1.0, 0.1, 0.3, dtype).astype(np.float64)
    assert got.min() >= 0.1 and got.max() <= 0.3


def erlang_cdf(k: int) -> Cdf:
    return lambda x: 1 - np.exp(-x) * sum(x**i / math.factorial(i) for i in range(k))


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize(
    ("alpha", "cdf"),
    [
        (1.0, erlang_cdf(1)),
        (2.0, erlang_cdf(2)),
        (7.0, erlang_cdf(7)),
        (0.5, lambda x: _erf(np.sqrt(x))),
    ],
)
def test_gamma_distribution(dtype: Any, alpha: float, cdf: Cdf) -> None:
    got = R.gamma(5, 8, (N,), alpha, 3.0, dtype).astype(np.float64) / 3
    assert ks_distance(got, cdf) < 2.2
    assert_moments(got, alpha, alpha, 3 + 6 / alpha)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("alpha", [0.05, 1.5, 30.0, 1e4])
def test_gamma_against_scipy(dtype: Any, alpha: float) -> None:
    special = pytest.importorskip("scipy.special")
    got = R.gamma(5, 9, (N,), alpha, dtype=dtype)
    assert ks_distance(got, lambda x: special.gammainc(alpha, x)) < 2.2


@pytest.mark.parametrize("dtype", WIDE)
def test_gamma_of_large_concentration_is_normal(dtype: Any) -> None:
    got = R.gamma(5, 10, (N,), 1e8, dtype=dtype).astype(np.float64)
    # Skewness 2 / sqrt(alpha) = 2e-4 is far below what KS sees here.
    assert ks_distance((got - 1e8) / 1e4, normal_cdf) < 2.2


def test_gamma_of_tiny_concentration_stays_finite() -> None:
    for alpha in (1e-3, 1e-30, 1e-300):
        got = R.gamma(5, 11, (1000,), alpha, dtype=np.float64)
        assert np.isfinite(got).all() and (got >= 0).all()
    # ln X / ... has median (1/2)**(1/alpha) * Gamma(1 + alpha)**(1/alpha) for small alpha.
    got = R.gamma(5, 11, (N,), 0.01, dtype=np.float64)
    share = float((got < 2.0**-100 * math.gamma(1.01) ** 100).mean())
    assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(N)


def test_gamma_concentration_broadcasts() -> None:
    alpha = np.array([[0.5], [4.0], [50.0]])
    got = R.gamma(5, 12, (3, N), alpha)
    for row, mean in zip(got, (0.5, 4.0, 50.0), strict=True):
        assert_moments(row, mean, mean, 3 + 6 / mean)
    same = R.gamma(5, 12, (3, N), np.full((3, N), 4.0))
    np.testing.assert_array_equal(same, R.gamma(5, 12, (3, N), 4.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: R.uniform(0, 0, (2,), 1.0, 1.0), "uniform: the interval is empty"),
        (lambda: R.uniform(0, 0, (2,), 0.0, math.nan), "uniform: high is not finite"),
        (lambda: R.uniform(0, 0, (2,), -3e38, 3e38), "uniform: the interval is too long"),
        (lambda: R.uniform(0, 0, (2,), dtype=np.int32), "uniform: no random numbers in this dtype"),
        (lambda: R.normal(0, 0, (2,), 0.0, -1.0), "normal: std is no width"),
        (lambda: R.normal(0, 0, (2,), 1e300), "normal: mean is not finite in float32"),
        (lambda: R.exponential(0, 0, (2,), 0.0), "exponential: scale is no width"),
        (lambda: R.truncated_normal(0, 0, (2,), std=0.0), "truncated_normal: std is no width"),
        (lambda: R.truncated_normal(0, 0, (2,), low=3.0), "truncated_normal: the interval is empt"),
        (
            lambda: R.truncated_normal(0, 0, (2,), 0.0, 1e-320, 1.0, 2.0, np.float64),
            "infinitely far from the mean",
        ),
        (lambda: R.truncated_normal(0, 0, (2,), low=1e39, high=math.inf), "no finite number"),
        (lambda: R.gamma(0, 0, (2,), 0.0), "gamma: concentration out of its domain"),
        (lambda: R.gamma(0, 0, (2,), [1.0, math.nan]), "gamma: concentration out of its domain"),
        (lambda: R.gamma(0, 0, (2,), np.ones(3)), "gamma: concentration does not broadcast"),
        (lambda: R.gamma(0, 0, (2,), np.ones((2, 2))), "gamma: concentration does not broadcast"),
    ],
)
def test_bad_parameters(call: Callable[[], Array], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
