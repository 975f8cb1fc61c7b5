"""Statistics against NumPy in float64, exact integers, and samples that do not claim too much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.display.sample import thinned
from ruda.display.summary import QUANTILES, summarize
from tests.display.kinds import KINDS, noise, with_specials

EXACT = 1 << 22


def reference(x: Any) -> Any:
    """All values as float64, magnitudes of complex ones."""
    values = x.detach().numpy()
    return (np.abs(values) if values.dtype.kind == "c" else values).astype(np.float64)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "expanded"])
def test_statistics_are_those_of_numpy(name: str) -> None:
    x = KINDS[name]()
    values, found = reference(x), summarize(x, EXACT)
    finite = values[np.isfinite(values)]
    assert found.exact and found.size == found.seen == x.size
    assert found.nan == np.isnan(values).sum()
    assert (found.plus, found.minus) == ((values == np.inf).sum(), (values == -np.inf).sum())
    assert found.finite == finite.size
    if not finite.size:
        assert found.low is found.high is found.mean is found.std is None
        return
    assert found.zeros == (finite == 0).sum()
    assert (float(found.low), float(found.high)) == (finite.min(), finite.max())
    # A sum of n float64 is off by up to n/2 units in the last place of the largest partial sum.
    scale = np.abs(finite).max() or 1.0
    error = finite.size * np.finfo(np.float64).eps
    assert abs(found.mean / scale - (finite / scale).mean()) <= error
    assert abs(found.std / scale - (finite / scale).std()) <= error
    if x.size <= 1 << 16:
        assert found.quantiles == pytest.approx(np.quantile(finite, QUANTILES).tolist(), rel=1e-12)


def test_chunks_are_merged_without_losing_digits() -> None:
    # The naive formula, mean of squares less squared mean, has no correct digit here.
    values = 1e9 + np.random.default_rng(0).standard_normal(300_000)
    found = summarize(ruda.asarray(values), EXACT)
    assert found.std == pytest.approx(values.std(), rel=1e-9)
    assert found.mean == pytest.approx(values.mean(), rel=1e-15)


def test_integers_keep_all_digits() -> None:
    values = np.full(200_000, 2**63 - 1, np.int64)
    values[0] = -(2**63)
    found = summarize(ruda.asarray(values), EXACT)
    assert (found.low, found.high) == (-(2**63), 2**63 - 1)
    assert found.mean == (sum([-(2**63)], 199_999 * (2**63 - 1))) / 200_000


def test_negative_integers_sum_exactly() -> None:
    values = np.arange(-70_000, 1000, dtype=np.int32)
    assert summarize(ruda.asarray(values), EXACT).mean == values.mean()


def test_huge_and_tiny_values_have_a_deviation() -> None:
    for scale in (1e-300, 1e300):
        found = summarize(ruda.asarray(np.array([-1.0, 1.0, 1.0, -1.0]) * scale), EXACT)
        assert found.std == pytest.approx(scale, rel=1e-12)


def test_a_complex_value_with_one_nan_is_nan() -> None:
    found = summarize(ruda.asarray(np.array([complex(np.nan, 1), complex(np.inf, 0), 3 + 4j])), 9)
    assert (found.nan, found.plus, found.low, found.high) == (1, 1, 5.0, 5.0)


def test_an_expanded_tensor_is_summarized_exactly_from_what_is_stored() -> None:
    row = with_specials(noise(100))
    x = ruda.broadcast_to(ruda.asarray(row), (3_000_000, 100))
    found, finite = summarize(x, EXACT), row[3:].astype(np.float64)
    assert found.exact and found.size == found.seen == 300_000_000
    assert (found.nan, found.plus, found.minus) == (3_000_000,) * 3
    assert found.mean == pytest.approx(finite.mean(), rel=1e-13)
    assert found.std == pytest.approx(finite.std(), rel=1e-13)


def test_a_sample_estimates_and_says_how_much_it_saw() -> None:
    values = noise(900, 1000)
    values[:, ::4] = np.nan
    found = summarize(ruda.asarray(values), 1000)
    assert not found.exact and 10_000 < found.seen <= 1 << 16
    finite = values[np.isfinite(values)]
    # Five deviations of a mean, and of a share, over the sample.
    assert abs(found.mean - finite.mean()) < 5 / np.sqrt(0.7 * found.seen)
    assert abs(found.nan / found.size - 0.25) < 5 * np.sqrt(0.25 * 0.75 / found.seen)


@pytest.mark.parametrize("shape", [(10**6,), (3, 10**5), (2, 2, 99, 1001), (1, 70_000, 1)])
def test_thinning_spans_the_tensor_and_keeps_the_limit(shape: tuple[int, ...]) -> None:
    x = ruda.asarray(np.arange(np.prod(shape)).reshape(shape))
    part = thinned(x, 5000)
    assert 500 < part.size <= 5000
    spread = part.numpy()
    assert spread.min() < x.size * 0.3 and spread.max() > x.size * 0.7
    assert thinned(x, x.size) is x
