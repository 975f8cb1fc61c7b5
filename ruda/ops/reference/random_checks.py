"""What the parameters of random operators must satisfy; each check raises before any work."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

FLOAT_NAMES = ("float16", "bfloat16", "float32", "float64")


def largest(real: np.dtype[Any]) -> float:
    """The greatest finite number of the compute dtype, as a Python float: it compares exactly."""
    return float(np.finfo(real).max)


def check_float_dtype(op: str, dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype as NumPy knows it, if random floats exist in it."""
    found = np.dtype(dtype)
    if found.name not in FLOAT_NAMES:
        raise ValueError(
            f"{op}: no random numbers in this dtype. Got {found.name}. "
            f"Expected one of {', '.join(FLOAT_NAMES)}."
        )
    return found


def check_finite(op: str, real: np.dtype[Any], **values: float) -> None:
    """Each value is finite in the compute dtype."""
    for name, value in values.items():
        if not abs(value) <= largest(real):
            raise ValueError(
                f"{op}: {name} is not finite in {real.name}. Got {name}={value}. "
                f"Expected a number within {largest(real):.3g}."
            )


def check_scale(op: str, real: np.dtype[Any], name: str, value: float, zero: bool = False) -> None:
    """A width is finite in the compute dtype and positive, or 0 where `zero` allows a constant."""
    check_finite(op, real, **{name: value})
    if value < 0 or (value == 0 and not zero):
        bound = "at least 0" if zero else "above 0"
        raise ValueError(
            f"{op}: {name} is no width. Got {name}={value}. Expected a number {bound}."
        )


def check_interval(op: str, low: float, high: float) -> None:
    """low < high, neither of them NaN."""
    if not low < high:
        raise ValueError(
            f"{op}: the interval is empty. Got low={low}, high={high}. Expected low < high."
        )


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
        raise ValueError(
            f"truncated_normal: the interval is infinitely far from the mean. Got mean={mean}, "
            f"std={std}, low={low}, high={high}. Try a larger std."
        )


def check_span(op: str, low: float, high: float, real: np.dtype[Any]) -> None:
    """high - low is finite in the compute dtype."""
    if not high - low <= largest(real):
        raise ValueError(
            f"{op}: the interval is too long for {real.name}. Got low={low}, high={high}. "
            f"Expected high - low within {largest(real):.3g}. Try a wider dtype."
        )


def check_probability(op: str, name: str, p: ArrayLike) -> NDArray[np.float64]:
    """Probabilities in [0, 1], as float64."""
    found = np.asarray(p).astype(np.float64)
    bad = ~((found >= 0) & (found <= 1))
    if bad.any():
        raise ValueError(
            f"{op}: {name} is no probability. Got {name}={found[bad].flat[0]}. "
            "Expected 0 <= p <= 1."
        )
    return found


def check_concentration(
    op: str, real: np.dtype[Any], concentration: ArrayLike
) -> NDArray[np.float64]:
    """Positive shape parameters of a gamma distribution, finite in the compute dtype; float64."""
    found = np.asarray(concentration).astype(np.float64)
    bad = ~((found > 0) & (found <= largest(real)))
    if bad.any():
        raise ValueError(
            f"{op}: concentration out of its domain. Got concentration={found[bad].flat[0]}. "
            "Expected finite numbers above 0."
        )
    return found


def check_broadcast(op: str, name: str, got: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """A parameter of shape `got` broadcasts to the output shape without widening it."""
    fits = len(got) <= len(shape) and all(
        mine in (1, theirs) for mine, theirs in zip(reversed(got), reversed(shape), strict=False)
    )
    if not fits:
        raise ValueError(
            f"{op}: {name} does not broadcast to the output. Got {name} of shape {got} for "
            f"shape {shape}. Try giving shape={np.broadcast_shapes(got, (1,) * len(shape))}."
        )


def check_integers(low: int, high: int, dtype: DTypeLike) -> np.dtype[Any]:
    """low < high with [low, high) inside an integer dtype, which is returned."""
    found = np.dtype(dtype)
    if found.kind not in "iu":
        raise ValueError(
            f"integers: not an integer dtype. Got {found.name}. Expected int8 to int64 or uint8 "
            "to uint64."
        )
    check_interval("integers", low, high)
    bounds = np.iinfo(found)
    least, most = int(bounds.min), int(bounds.max)
    if low < least or high > most + 1:
        raise ValueError(
            f"integers: the range leaves {found.name}. Got low={low}, high={high}. "
            f"Expected {least} <= low < high <= {most + 1}."
        )
    return found


def check_weights(weights: NDArray[Any], samples: int, logits: bool, replacement: bool) -> None:
    """Rows of probabilities or logits from which `samples` indices can be drawn."""
    if weights.ndim == 0 or weights.shape[-1] == 0 or samples < 0:
        raise ValueError(
            f"categorical: nothing to draw from. Got weights of shape {weights.shape}, "
            f"samples={samples}. Expected weights [..., K] with K > 0 and samples >= 0."
        )
    check_float_dtype("categorical", weights.dtype)
    kind = "logits" if logits else "probabilities"
    possible = weights > -np.inf if logits else weights > 0
    bad = np.isnan(weights) | (weights == np.inf)
    if not logits:
        bad |= weights < 0
    if bad.any():
        rule = "numbers below inf" if logits else "finite numbers of at least 0"
        raise ValueError(f"categorical: bad {kind}. Got {weights[bad][0]}. Expected {rule}.")
    least = possible.sum(axis=-1).min() if weights.size else weights.shape[-1]
    need = min(samples, 1) if replacement else samples
    if least < need:
        raise ValueError(
            f"categorical: too few possible categories in a row. Got {least} for {samples} samples "
            f"with replacement={replacement}. Expected at least {need}."
        )
