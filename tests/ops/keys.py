"""Random keys for tests of indexing: every kind of entry, alone and together."""

from __future__ import annotations

from typing import Any

import numpy as np

INDEX_SHAPES = [(), (1,), (2,), (3,), (2, 3), (0,)]
INDEX_DTYPES = [np.int8, np.int32, np.int64, np.uint8]


def random_key(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A key for an array of ``shape``, which NumPy may or may not accept."""
    key: list[Any] = []
    axis = 0
    while axis < len(shape) and rng.random() < 0.9:
        entry, used = _entry(rng, shape[axis:])
        if entry is ... and any(e is ... for e in key):
            continue
        key.append(entry)
        axis += used
    return tuple(key)


def _entry(rng: np.random.Generator, rest: tuple[int, ...]) -> tuple[Any, int]:
    """One entry and how many of the axes ``rest`` it uses up."""
    size, draw = rest[0], rng.random()
    if draw < 0.2:
        return int(rng.integers(-size, size)), 1
    if draw < 0.45:
        return _slice(rng, size), 1
    if draw < 0.55:
        return None, 0
    if draw < 0.62:
        return ..., int(rng.integers(0, len(rest) + 1))
    if draw < 0.85:
        return _integers(rng, size), 1
    if draw < 0.95:
        used = int(rng.integers(1, min(2, len(rest)) + 1))
        return rng.random(rest[:used]) < 0.5, used
    return bool(rng.random() < 0.7), 0


def _slice(rng: np.random.Generator, size: int) -> slice:
    bounds = [None if rng.random() < 0.3 else int(rng.integers(-size - 1, size + 2)) for _ in "ab"]
    return slice(*bounds, [None, 1, -1, 2, -2, 3][rng.integers(6)])


def _integers(rng: np.random.Generator, size: int) -> Any:
    shape = INDEX_SHAPES[rng.integers(len(INDEX_SHAPES))]
    dtype = INDEX_DTYPES[rng.integers(len(INDEX_DTYPES))]
    low = 0 if dtype is np.uint8 else -size
    return rng.integers(low, size, shape).astype(dtype)


def random_case(seed: int) -> tuple[Any, tuple[Any, ...], np.random.Generator]:
    """An array of up to four axes, a key for it, and the generator for what comes next."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 5)))
    return rng.standard_normal(shape), random_key(rng, shape), rng
