"""What the parameters of random operators must satisfy; each check raises before any work."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ruda.core.errors import ArgumentError, ShapeError

FLOAT_NAMES = ("float16", "bfloat16", "float32", "float64")


def largest(real: np.dtype[Any]) -> float:
    """The greatest finite number of the compute dtype, as a Python float: it compares exactly."""
    return float(np.finfo(real).max)


def check_float_dtype(op: str, dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype as NumPy knows it, if random floats exist in it."""
    found = np.dtype(dtype)
    if found.name not in FLOAT_NAMES:
        expected = f"one of {', '.join(FLOAT_NAMES)}"
        raise ArgumentError(op, "no random numbers in this dtype", found.name, expected)
    return found


def check_finite(op: str, real: np.dtype[Any], **values: float) -> None:
    """Each value is finite in the compute dtype."""
    for name, value in values.items():
        if not abs(value) <= largest(real):
            expected = f"a number within {largest(real):.3g}"
            what = f"{name} is not finite in {real.name}"
            raise ArgumentError(op, what, f"{name}={value}", expected)


def check_scale(op: str, real: np.dtype[Any], name: str, value: float, zero: bool = False) -> None:
    """A width is finite in the compute dtype and positive, or 0 where ``zero``."""
    check_finite(op, real, **{name: value})
    if value < 0 or (value == 0 and not zero):
        bound = "at least 0" if zero else "above 0"
        raise ArgumentError(op, f"{name} is no width", f"{name}={value}", f"a number {bound}")


def check_interval(op: str, low: float, high: float) -> None:
    """low < high, neither of them NaN."""
    if not low < high:
        got = f"low={low}, high={high}"
        raise ArgumentError(op, "the interval is empty", got, "low < high")


def check_uniform(low: float, high: float, real: np.dtype[Any]) -> None:
    """A finite interval whose length the compute dtype can hold."""
    check_finite("uniform", real, low=low, high=high)
    check_interval("uniform", low, high)
    check_span("uniform", low, high, real)


def check_truncation(mean: float, std: float, low: float, high: float, real: np.dtype[Any]) -> None:
    """A normal distribution and an interval, perhaps infinite, at a representable distance."""
    check_finite("truncated_normal", real, mean=mean)
    check_scale("truncated_normal", real, "std", std)
    check_interval("truncated_normal", low, high)
    if math.isfinite(low) and math.isfinite(high):
        check_span("truncated_normal", low, high, real)
    distance = max((low - mean) / std, (mean - high) / std)
    if distance == math.inf:
        what = "the interval is infinitely far from the mean"
        got = f"mean={mean}, std={std}, low={low}, high={high}"
        raise ArgumentError("truncated_normal", what, got, hint="a larger std")


def check_span(op: str, low: float, high: float, real: np.dtype[Any]) -> None:
    """high - low is finite in the compute dtype."""
    if not high - low <= largest(real):
        what = f"the interval is too long for {real.name}"
        expected = f"high - low within {largest(real):.3g}"
        raise ArgumentError(op, what, f"low={low}, high={high}", expected, "a wider dtype")


def check_probability(op: str, name: str, p: ArrayLike) -> NDArray[np.float64]:
    """Probabilities in [0, 1], as float64."""
    found = np.asarray(p).astype(np.float64)
    bad = ~((found >= 0) & (found <= 1))
    if bad.any():
        got = f"{name}={found[bad].flat[0]}"
        raise ArgumentError(op, f"{name} is no probability", got, "0 <= p <= 1")
    return found


def check_concentration(
    op: str, real: np.dtype[Any], concentration: ArrayLike
) -> NDArray[np.float64]:
    """Positive shape parameters of a gamma distribution, finite in the compute dtype; float64."""
    found = np.asarray(concentration).astype(np.float64)
    bad = ~((found > 0) & (found <= largest(real)))
    if bad.any():
        got = f"concentration={found[bad].flat[0]}"
        raise ArgumentError(op, "concentration out of its domain", got, "finite numbers above 0")
    return found


def check_broadcast(op: str, name: str, got: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """A parameter of shape ``got`` broadcasts to the output shape without widening it."""
    fits = len(got) <= len(shape) and all(
        mine in (1, theirs) for mine, theirs in zip(reversed(got), reversed(shape), strict=False)
    )
    if not fits:
        what = f"{name} does not broadcast to the output"
        hint = f"giving shape={np.broadcast_shapes(got, (1,) * len(shape))}"
        raise ShapeError(op, what, f"{name} of shape {got} for shape {shape}", hint=hint)


def check_integers(low: int, high: int, dtype: DTypeLike) -> np.dtype[Any]:
    """low < high with [low, high) inside an integer dtype, which is returned."""
    found = np.dtype(dtype)
    if found.kind not in "iu":
        expected = "int8 to int64 or uint8 to uint64"
        raise ArgumentError("integers", "not an integer dtype", found.name, expected)
    check_interval("integers", low, high)
    bounds = np.iinfo(found)
    least, most = int(bounds.min), int(bounds.max)
    if low < least or high > most + 1:
        what, expected = f"the range leaves {found.name}", f"{least} <= low < high <= {most + 1}"
        raise ArgumentError("integers", what, f"low={low}, high={high}", expected)
    return found


def check_weights(weights: NDArray[Any], samples: int, logits: bool, replacement: bool) -> None:
    """Rows of probabilities or logits from which ``samples`` indices can be drawn."""
    if weights.ndim == 0 or weights.shape[-1] == 0 or samples < 0:
        got = f"weights of shape {weights.shape}, samples={samples}"
        expected = "weights [..., K] with K > 0 and samples >= 0"
        raise ShapeError("categorical", "nothing to draw from", got, expected)
    check_float_dtype("categorical", weights.dtype)
    kind = "logits" if logits else "probabilities"
    possible = weights > -np.inf if logits else weights > 0
    bad = np.isnan(weights) | (weights == np.inf)
    if not logits:
        bad |= weights < 0
    if bad.any():
        rule = "numbers below inf" if logits else "finite numbers of at least 0"
        raise ArgumentError("categorical", f"bad {kind}", weights[bad][0], rule)
    least = np.min(possible.sum(axis=-1)) if weights.size else weights.shape[-1]
    need = min(samples, 1) if replacement else samples
    if least < need:
        what = "too few possible categories in a row"
        got = f"{least} for {samples} samples with replacement={replacement}"
        raise ArgumentError("categorical", what, got, f"at least {need}")
