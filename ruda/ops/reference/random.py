"""Continuous distributions over Philox words.

Every function is pure: the result follows from (seed, draw, shape, parameters, dtype). float32 and
the half dtypes are computed in float32 from 32-bit words, float64 from 64-bit words (two words,
the first low). Uniform results are the same bits on every device; the others agree to rounding
of log, exp, sin and cos. Multiplications and additions are rounded separately, never fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ruda.core.errors import ArgumentError
from ruda.ops.reference import random_checks as checks
from ruda.ops.reference.draws import (
    Array,
    Proposal,
    Where,
    accept,
    compute_dtype,
    generate,
    numbers,
    open_unit,
    unit,
    word_width,
)
from ruda.ops.reference.philox import Words

Shape = tuple[int, ...]


def uniform(
    seed: int,
    draw: int,
    shape: Shape,
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> Array:
    """Uniform on [low, high): low + u * (high - low), then held inside the interval.

    u has 24 bits (53 for float64). Held: clipped to the least number of the dtype not below low
    and the greatest one below high, before the rounding to a half dtype, so high never comes out.
    Element e takes word e (words 2e, 2e + 1 for float64). Raises ArgumentError unless low < high
    and the interval fits the dtype.

    >>> uniform(seed=0, draw=0, shape=(2,)).tolist()
    [0.3990464210510254, 0.8805201649665833]
    """
    target = checks.check_float_dtype("uniform", dtype)
    real = compute_dtype(target)
    checks.check_uniform(low, high, real)
    least, greatest = inside("uniform", low, high, target, closed=False)
    span, offset = real.type(high - low), real.type(low)
    # On [0, 1) in the compute dtype the scaling changes no bit.
    plain = (low, high) == (0.0, 1.0) and target == real

    def transform(words: Words) -> Array:
        out = unit(numbers(words, real), real)
        if plain:
            return out
        out *= span
        out += offset
        return np.clip(out, least, greatest, out=out)

    return generate(seed, draw, math.prod(shape), word_width(real), target, transform).reshape(
        shape
    )


def normal(
    seed: int,
    draw: int,
    shape: Shape,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> Array:
    """Normal by Box and Muller (1958): a pair of numbers makes the pair of elements in its place.

    Numbers (v0, v1) are words (2p, 2p + 1), or 64-bit pairs of words for float64; elements 2p and
    2p + 1 are r cos a and r sin a with r = sqrt(-2 ln u), u = (v0 + 1/2) / 2**bits rounded, and
    a = 2 pi times the unit number of v1. A block therefore makes 4 elements, or 2 for float64.
    Raises ArgumentError unless mean is finite and std finite and at least 0.
    """
    target = checks.check_float_dtype("normal", dtype)
    real = compute_dtype(target)
    checks.check_finite("normal", real, mean=mean)
    checks.check_scale("normal", real, "std", std, zero=True)

    def transform(words: Words) -> Array:
        pairs = numbers(words, real).reshape(-1, 2)
        radius, angle = _polar(pairs, real)
        out = np.empty(pairs.shape, real)
        np.multiply(radius, np.cos(angle), out=out[:, 0])
        np.multiply(radius, np.sin(angle), out=out[:, 1])
        return _affine(out.reshape(-1), mean, std)

    return generate(seed, draw, math.prod(shape), word_width(real), target, transform).reshape(
        shape
    )


def exponential(
    seed: int, draw: int, shape: Shape, scale: float = 1.0, dtype: DTypeLike = np.float32
) -> Array:
    """Exponential with mean ``scale``: -ln(1 - u) * scale, u the unit number of the element.

    Raises ArgumentError unless scale is finite and positive.
    """
    target = checks.check_float_dtype("exponential", dtype)
    real = compute_dtype(target)
    checks.check_scale("exponential", real, "scale", scale)

    def transform(words: Words) -> Array:
        out = unit(numbers(words, real), real)
        np.log1p(np.negative(out, out=out), out=out)
        out *= real.type(-scale)
        return out

    return generate(seed, draw, math.prod(shape), word_width(real), target, transform).reshape(
        shape
    )


def truncated_normal(
    seed: int,
    draw: int,
    shape: Shape,
    mean: float = 0.0,
    std: float = 1.0,
    low: float = -2.0,
    high: float = 2.0,
    dtype: DTypeLike = np.float32,
) -> Array:
    """Normal conditioned on [low, high], by rejection (Robert, 1995), exact far into the tails.

    An element owns two numbers per attempt. Infinite bounds are allowed. Raises ArgumentError
    unless low < high, mean is finite and std finite and positive.
    """
    target = checks.check_float_dtype("truncated_normal", dtype)
    real = compute_dtype(target)
    checks.check_truncation(mean, std, low, high, real)
    least, greatest = inside("truncated_normal", low, high, target, closed=True)
    kind, constants, origin, step = truncation(mean, std, low, high, real)
    propose = _PROPOSALS[kind](real, *constants)

    def held(words: Words, where: Where) -> tuple[Array, Array]:
        x, good = propose(words, where)
        return np.clip(_affine(x, origin, step), least, greatest), good

    width = 2 * word_width(real)
    return accept(seed, draw, math.prod(shape), width, target, held).reshape(shape)


def gamma(
    seed: int,
    draw: int,
    shape: Shape,
    concentration: ArrayLike,
    scale: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> Array:
    """Gamma by Marsaglia and Tsang (2000); concentration broadcasts to the shape.

    An element owns four numbers per attempt: two for the normal, one for the test, and one that
    lowers a draw from concentration + 1 by u ** (1 / concentration) where concentration < 1
    (tiny ones underflow to 0). Raises ArgumentError unless
    concentration and scale are finite and positive.
    """
    target = checks.check_float_dtype("gamma", dtype)
    real = compute_dtype(target)
    checks.check_scale("gamma", real, "scale", scale)
    alpha = checks.check_concentration("gamma", real, concentration)
    checks.check_broadcast("gamma", "concentration", alpha.shape, shape)
    n = math.prod(shape)
    alpha = alpha.reshape(1) if alpha.size == 1 else np.broadcast_to(alpha, shape).reshape(n)
    boosted = bool((alpha < 1).any())
    smallest = np.finfo(real).tiny

    def propose(words: Words, where: Where) -> tuple[Array, Array]:
        four = numbers(words, real)
        own = alpha if alpha.size == 1 else alpha[where]
        out, good = _marsaglia_tsang(four, own, real)
        if boosted:
            power = np.where(own < 1, 1 / np.maximum(own, smallest), 0).astype(real)
            out *= open_unit(four[:, 3], real) ** power
        out *= real.type(scale)
        return out, good

    return accept(seed, draw, n, 4 * word_width(real), target, propose).reshape(shape)


def inside(
    op: str, low: float, high: float, dtype: np.dtype[Any], closed: bool
) -> tuple[np.generic, np.generic]:
    """The least and the greatest number of the dtype in the interval, in the compute dtype."""
    real = compute_dtype(dtype).type
    infinity = dtype.type(math.inf)
    with np.errstate(over="ignore"):
        least, greatest = np.float64(low).astype(dtype), np.float64(high).astype(dtype)
    if float(least) < low:
        least = np.nextafter(least, infinity)
    if float(greatest) > high or (float(greatest) == high and not closed):
        greatest = np.nextafter(greatest, -infinity)
    if not -math.inf < float(greatest) >= float(least) < math.inf:
        what = f"the interval holds no finite number of {dtype.name}"
        raise ArgumentError(op, what, f"low={low}, high={high}", hint="a wider dtype")
    return real(least), real(greatest)


def _affine(x: Array, offset: float, factor: float) -> Array:
    """x * factor + offset in place, in the dtype of x."""
    x *= x.dtype.type(factor)
    x += x.dtype.type(offset)
    return x


def _polar(pairs: Array, real: np.dtype[Any]) -> tuple[Array, Array]:
    """Radius and angle of a two-dimensional normal point from numbers [m, 2]."""
    radius = np.log(open_unit(pairs[:, 0], real))
    radius *= real.type(-2)
    angle = unit(pairs[:, 1], real)
    angle *= real.type(2 * math.pi)
    return np.sqrt(radius, out=radius), angle


def _cosine(pairs: Array, real: np.dtype[Any]) -> Array:
    """One normal number from each of the pairs [m, 2]."""
    radius, angle = _polar(pairs, real)
    return np.multiply(radius, np.cos(angle, out=angle), out=radius)


def _capped(value: float, real: np.dtype[Any]) -> np.generic:
    """The value in the compute dtype, held to its finite range."""
    most = checks.largest(real)
    held: np.generic = real.type(min(max(value, -most), most))
    return held


def truncation(
    mean: float, std: float, low: float, high: float, real: np.dtype[Any]
) -> tuple[str, tuple[np.generic, ...], float, float]:
    """(proposal, its constants, origin, step): an accepted x means the value origin + step * x.

    An interval mostly left of the mean is mirrored, so that the standardised one has b > 0.
    """
    a, b = (low - mean) / std, (high - mean) / std
    width = (high - low) / std
    near, sign = low, 1.0
    if a + b < 0:
        a, b, near, sign = -b, -a, high, -1.0
    if a <= 0 and width > math.sqrt(2 * math.pi):
        return "bulk", (_capped(a, real), _capped(b, real)), mean, sign * std
    # Beyond a > 0 the best exponential has the rate a + gap, and beats the box on wide intervals.
    gap = 2 / (a + math.hypot(a, 2))
    if a > 0 and width > gap * math.exp(0.5 - a * gap / 2):
        rate = a + gap
        tail = _capped(width * rate, real), real.type(1 / rate), real.type(gap)
        return "tail", tail, near, sign * std / rate
    square, cross = real.type(-0.5 * width * width), real.type(-a * width)
    constant = real.type(-0.5 * min(a, 0.0) ** 2)
    return "box", (square, cross, constant), near, sign * (high - low)


def _bulk(real: np.dtype[Any], least: Any, greatest: Any) -> Proposal:
    """Normal x, accepted inside [a, b]."""

    def propose(words: Words, where: Where) -> tuple[Array, Array]:
        x = _cosine(numbers(words, real), real)
        return x, (x >= least) & (x <= greatest)

    return propose


def _box(real: np.dtype[Any], square: Any, cross: Any, constant: Any) -> Proposal:
    """Uniform x for z = a + width * x, accepted with exp(-(z^2 - m^2) / 2), m = max(a, 0)."""

    def propose(words: Words, where: Where) -> tuple[Array, Array]:
        two = numbers(words, real)
        x = unit(two[:, 0], real)
        return x, unit(two[:, 1], real) <= np.exp(x * (x * square + cross) + constant)

    return propose


def _tail(real: np.dtype[Any], longest: Any, inverse: Any, shift: Any) -> Proposal:
    """Exponential x for z = a + x / rate, accepted with exp(-(x / rate - gap)^2 / 2)."""

    def propose(words: Words, where: Where) -> tuple[Array, Array]:
        two = numbers(words, real)
        x = -np.log(open_unit(two[:, 0], real))
        limit = np.exp(np.square(x * inverse - shift) * real.type(-0.5))
        return x, (x <= longest) & (unit(two[:, 1], real) <= limit)

    return propose


_PROPOSALS: dict[str, Callable[..., Proposal]] = {"bulk": _bulk, "box": _box, "tail": _tail}


def _marsaglia_tsang(four: Array, alpha: Array, real: np.dtype[Any]) -> tuple[Array, Array]:
    """Candidates for gamma(alpha), or gamma(alpha + 1) where alpha < 1, and their acceptance.

    With t = c x the test ln u < x^2/2 + d - d v + d ln v, v = (1 + t)^3, is written in ln(1 + t):
    near t = 0, where a large alpha lives, v itself would lose the terms that decide.
    """
    raised = np.where(alpha < 1, alpha + 1, alpha) - 1 / 3
    d, c = raised.astype(real), (1 / np.sqrt(9 * raised)).astype(real)
    x = _cosine(four[:, :2], real)
    t = x * c
    positive = t > -1
    t[~positive] = 0
    slack = x * x * real.type(0.5) - d * (t * (3 + 3 * t + t * t) - 3 * np.log1p(t))
    good = positive & (np.log(open_unit(four[:, 2], real)) < slack)
    root = 1 + t
    return d * root * root * root, good
