"""Discrete distributions over Philox words: masks, integers, categories, permutations.

Masks, integers and permutations are the same bits on every device. Categories depend on rounded
logarithms and sums, so devices agree except where a draw falls within rounding of a boundary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ruda.ops.reference import philox
from ruda.ops.reference import random_checks as checks
from ruda.ops.reference.draws import (
    Array,
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
Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]

_BOOL = np.dtype(np.bool_)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def bernoulli(seed: int, draw: int, shape: Shape, p: ArrayLike) -> Mask:
    """True with probability p: word e < round(p * 2**32); p broadcasts to the shape.

    Raises ArgumentError unless 0 <= p <= 1.

    >>> bernoulli(seed=0, draw=0, shape=(4,), p=0.5).tolist()
    [True, False, False, False]
    """
    found = checks.check_probability("bernoulli", "p", p)
    checks.check_broadcast("bernoulli", "p", found.shape, shape)
    limit = np.rint(found * 2.0**32).astype(np.uint64)
    if found.size == 1:
        return _below(seed, draw, shape, int(limit.reshape(())))
    n = math.prod(shape)
    return (philox.words(seed, draw, n).reshape(shape) < limit).reshape(shape)


def dropout_mask(seed: int, draw: int, shape: Shape, p: float) -> Mask:
    """The keep mask of dropout: False with probability p, whatever dtype it will be applied to.

    Element e is kept when word e >= round(p * 2**32). Raises ArgumentError unless 0 <= p <= 1.
    """
    drop = float(checks.check_probability("dropout", "p", p).reshape(()))
    mask = _below(seed, draw, shape, round(drop * 2**32))
    return np.logical_not(mask, out=mask)


def integers(
    seed: int, draw: int, shape: Shape, low: int, high: int, dtype: DTypeLike = np.int32
) -> Array:
    """Uniform integers in [low, high) without bias (Lemire, 2019: multiply, shift, reject).

    A range of up to 2**32 takes one word an element, a wider one two words, the first low, whatever
    the dtype. Raises ArgumentError unless low < high and [low, high) lies inside the dtype.

    >>> integers(seed=0, draw=0, shape=(4,), low=-3, high=3).tolist()
    [-1, 2, 1, 0]
    """
    target = checks.check_integers(low, high, dtype)
    span = high - low
    bits = 32 if span <= 1 << 32 else 64
    least_fraction = (1 << bits) % span
    offset = np.uint64(low % (1 << 64))

    def propose(words: Words, where: Where) -> tuple[Array, Array]:
        if bits == 32:
            high_part, fraction = _scaled32(words[:, 0], span)
        else:
            high_part, fraction = _scaled64(numbers(words, np.dtype(np.float64))[:, 0], span)
        good = fraction >= np.uint64(least_fraction)
        # Two's complement: the sum wraps to the value modulo 2**64, and the cast keeps low bits.
        return (high_part + offset).astype(target), good

    return accept(seed, draw, math.prod(shape), bits // 32, target, propose).reshape(shape)


def categorical(
    seed: int,
    draw: int,
    weights: Array,
    samples: int,
    logits: bool = False,
    replacement: bool = True,
) -> Indices:
    """Indices into the last axis of weights [..., K], int64 [..., samples].

    weights: probabilities that need not sum to 1, or logits. With replacement the float64
    cumulative sum is searched, two words a sample; without, the Gumbel top-k trick ranks the
    categories in the order drawn, one number a category, ties to the lower index. An impossible
    category never comes out. Raises ArgumentError for NaN, negative or infinite weights, and for a
    row with fewer possible categories than it must give.
    """
    checks.check_weights(weights, samples, logits, replacement)
    shape = *weights.shape[:-1], samples
    if 0 in shape:
        return np.empty(shape, np.int64)
    rows = weights.reshape(-1, weights.shape[-1])
    find = _by_search if replacement else _by_rank
    return find(seed, draw, rows, samples, logits).reshape(shape)


def permutation(seed: int, draw: int, n: int) -> Indices:
    """The integers 0 to n - 1 in random order, int64 [n]: the stable order of n 64-bit keys.

    >>> permutation(seed=0, draw=0, n=4).tolist()
    [3, 2, 1, 0]
    """
    keys = numbers(philox.words(seed, draw, 2 * n), np.dtype(np.float64))
    order = np.argsort(keys)
    ordered = keys[order]
    # The unstable sort is four times faster, and equal keys are rarer than 1 in 10**7 draws.
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(keys, kind="stable")
    return order.astype(np.int64, copy=False)


def _below(seed: int, draw: int, shape: Shape, limit: int) -> Mask:
    """word < limit for every element, with limit up to 2**32."""
    n = math.prod(shape)
    if limit in (0, 1 << 32):
        return np.full(shape, limit > 0)
    bound = np.uint32(limit)
    return generate(seed, draw, n, 1, _BOOL, lambda words: words < bound).reshape(shape)


def _scaled32(words: Words, span: int) -> tuple[Array, Array]:
    """High and low half of word * span, span <= 2**32."""
    product = words.astype(np.uint64)
    product *= np.uint64(span)
    return product >> _HALF, product & _LOW


def _scaled64(wide: Array, span: int) -> tuple[Array, Array]:
    """High and low 64 bits of number * span, span <= 2**64."""
    if span == 1 << 64:
        return wide, np.zeros_like(wide)
    x0, x1 = wide & _LOW, wide >> _HALF
    s0, s1 = np.uint64(span & 0xFFFFFFFF), np.uint64(span >> 32)
    low, middle = x0 * s0, x1 * s0
    carry = (low >> _HALF) + (middle & _LOW) + x0 * s1
    return x1 * s1 + (middle >> _HALF) + (carry >> _HALF), wide * np.uint64(span)


def _by_search(seed: int, draw: int, rows: Array, samples: int, logits: bool) -> Indices:
    """The first index whose cumulative weight exceeds u * total; rows: [R, K]."""
    p = rows.astype(np.float64)
    peak = p.max(axis=-1, keepdims=True)
    p = np.exp(p - peak) if logits else p / peak
    sums = np.cumsum(p, axis=-1)
    total = sums[:, -1:]
    real = np.dtype(np.float64)
    u = generate(seed, draw, len(rows) * samples, 2, real, lambda w: unit(numbers(w, real), real))
    # u * total may round up to the total, which no cumulative weight exceeds.
    goal = np.minimum(u.reshape(len(rows), samples) * total, np.nextafter(total, 0))
    low = np.zeros(goal.shape, np.int64)
    high = np.full(goal.shape, rows.shape[-1] - 1, np.int64)
    for _ in range(rows.shape[-1].bit_length()):
        middle = (low + high) // 2
        beyond = np.take_along_axis(sums, middle, axis=-1) > goal
        high = np.where(beyond, middle, high)
        low = np.where(beyond, low, middle + 1)
    return low


def _by_rank(seed: int, draw: int, rows: Array, samples: int, logits: bool) -> Indices:
    """The ``samples`` greatest of log weight + Gumbel noise; rows: [R, K]."""
    real = compute_dtype(rows.dtype)
    score = rows.astype(real)
    if not logits:
        possible = score > 0
        np.log(score, out=score, where=possible)
        score[~possible] = -np.inf
    score += generate(
        seed, draw, rows.size, word_width(real), real, lambda words: _gumbel(words, real)
    ).reshape(rows.shape)
    return np.argsort(-score, axis=-1, kind="stable")[:, :samples].astype(np.int64, copy=False)


def _gumbel(words: Words, real: np.dtype[Any]) -> Array:
    """-ln(-ln(1 - u)): large values, which win, come from small u, where u is finest."""
    u = open_unit(numbers(words, real), real)
    np.minimum(u, np.nextafter(real.type(1), real.type(0)), out=u)
    wait = np.negative(np.log1p(-u))
    return np.negative(np.log(wait, out=wait), out=wait)
