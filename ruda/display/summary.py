"""Statistics of a tensor, in one pass over float64 chunks; of a sample where it is too large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ruda.display.sample import thinned, without_repeats

CHUNK = 1 << 16
SAMPLE = 1 << 16
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


class Summary(NamedTuple):
    """What is said of a tensor's values; of their magnitudes when they are complex.

    ``seen`` elements were looked at: all of them if ``exact``, where an expanded axis counts
    in full. Counts refer to the whole tensor, estimated from the sample unless ``exact``. ``low``,
    ``high``, ``mean``, ``std`` (dividing by the count) and ``quantiles`` are those of the finite
    values, None or empty where there are none. ``sample`` holds up to 65,536 finite values, evenly
    spaced, as float64.
    """

    size: int
    seen: int
    exact: bool
    nan: int
    plus: int
    minus: int
    zeros: int
    low: Any
    high: Any
    mean: float | None
    std: float | None
    quantiles: tuple[float, ...]
    sample: Any

    @property
    def finite(self) -> int:
        """How many values are neither NaN nor infinite."""
        return self.size - self.nan - self.plus - self.minus


def summarize(tensor: Any, limit: int) -> Summary:
    """The statistics of ``tensor``, exact up to ``limit`` stored elements, of a sample above."""
    core = without_repeats(tensor)
    exact = core.spec.size <= limit
    values = (core if exact else thinned(core, SAMPLE)).numpy()
    with np.errstate(all="ignore"):
        tally = _tally(values)
        finite = _finite_sample(values)
        quantiles = tuple(np.quantile(finite, QUANTILES).tolist()) if finite.size else ()
    size = tensor.spec.size
    factor = Fraction(size, values.size) if values.size else Fraction(0)
    nan, plus, minus, zeros = (round(count * factor) for count in tally.counts)
    return Summary(
        size=size,
        seen=size if exact else values.size,
        exact=exact,
        nan=nan,
        plus=plus,
        minus=minus,
        zeros=zeros,
        low=tally.low,
        high=tally.high,
        mean=tally.mean,
        std=tally.std,
        quantiles=quantiles,
        sample=finite,
    )


def magnitudes(values: Any) -> Any:
    """Complex values as magnitudes, real ones as they are; NaN in one part is NaN."""
    if values.dtype.kind != "c":
        return values
    return np.where(np.isnan(values), np.nan, np.abs(values))


def _finite_sample(values: Any) -> Any:
    flat = values.reshape(-1) if values.flags.c_contiguous else values.ravel(order="K")
    # Odd for the same reason as in `thinned`.
    step = -(-flat.size // SAMPLE) | 1 if flat.size > SAMPLE else 1
    sample = magnitudes(flat[::step]).astype(np.float64)
    return sample[np.isfinite(sample)]


class _Tally(NamedTuple):
    counts: tuple[int, int, int, int]
    low: Any
    high: Any
    mean: float | None
    std: float | None


def _chunks(values: Any) -> Iterator[Any]:
    flat = values.ravel(order="K")
    return (flat[start : start + CHUNK] for start in range(0, flat.size, CHUNK))


def _tally(values: Any) -> _Tally:
    """Counts, extremes, mean and deviation; those of integers from exact sums."""
    if values.dtype.kind in "biu":
        return _tally_integers(values)
    tally = _tally_floats(values, 1.0)
    if tally.std is None:
        return tally
    peak = max(abs(tally.low), abs(tally.high))
    if peak == 0 or 1e-140 < peak < 1e140:
        return tally
    # The squares leave float64's range: once more at a scale where they do not.
    return _tally_floats(values, 2.0 ** -max(min(math.frexp(peak)[1], 1020), -1020))


def _tally_floats(values: Any, scale: float) -> _Tally:
    counts = np.zeros(4, np.int64)
    count, mean, squares = 0, 0.0, 0.0
    low, high = math.inf, -math.inf
    for chunk in _chunks(values):
        x = magnitudes(chunk).astype(np.float64)
        finite = x[np.isfinite(x)]
        if finite.size < x.size:
            counts[:3] += (np.isnan(x).sum(), (x == np.inf).sum(), (x == -np.inf).sum())
        if not finite.size:
            continue
        counts[3] += finite.size - np.count_nonzero(finite)
        low, high = min(low, float(finite.min())), max(high, float(finite.max()))
        finite = finite * scale
        # Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm" (1979).
        centre, total = float(finite.mean()), count + finite.size
        step = centre - mean
        squares += float(np.square(finite - centre).sum()) + step * step * count * (
            finite.size / total
        )
        mean, count = mean + step * (finite.size / total), total
    tallied = (int(counts[0]), int(counts[1]), int(counts[2]), int(counts[3]))
    if not count:
        return _Tally(tallied, None, None, None, None)
    return _Tally(tallied, low, high, mean / scale, math.sqrt(squares / count) / scale)


def _tally_integers(values: Any) -> _Tally:
    if not values.size:
        return _Tally((0, 0, 0, 0), None, None, None, None)
    zeros = values.size - int(np.count_nonzero(values))
    low, high = int(values.min()), int(values.max())
    mean = Fraction(_exact_sum(values), values.size)
    squares = 0.0
    for chunk in _chunks(values):
        squares += float(np.square(chunk.astype(np.float64) - float(mean)).sum())
    return _Tally((0, 0, 0, zeros), low, high, float(mean), math.sqrt(squares / values.size))


def _exact_sum(values: Any) -> int:
    """The sum without overflow: halves of 32 bits are summed apart, each below 2^48 a chunk."""
    total = 0
    for chunk in _chunks(values):
        wide = chunk if chunk.dtype == np.uint64 else chunk.astype(np.int64)
        upper = wide >> wide.dtype.type(32)
        lower = wide & wide.dtype.type(0xFFFFFFFF)
        total += (int(upper.sum()) << 32) + int(lower.sum())
    return total
