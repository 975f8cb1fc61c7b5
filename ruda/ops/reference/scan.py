"""NumPy meanings of the prefix operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def scan(
    accumulate: Callable[..., Any],
    x: Any,
    axis: int,
    exclusive: bool,
    reverse: bool,
    identity: Any,
) -> Any:
    """``accumulate`` along ``axis``: from the end if ``reverse``, one late if ``exclusive``."""
    out = accumulate(np.flip(x, axis) if reverse else x, axis=axis)
    if exclusive:
        out = _late(out, axis, identity)
    return np.flip(out, axis) if reverse else out


def _late(x: Any, axis: int, first: Any) -> Any:
    out = np.full_like(x, first)
    np.moveaxis(out, axis, 0)[1:] = np.moveaxis(x, axis, 0)[:-1]
    return out


def running_extreme(
    x: Any, axis: int, exclusive: bool, reverse: bool, largest: bool
) -> tuple[Any, Any]:
    """Extreme of the elements so far and the lowest index that attains it; a NaN stays.

    Where ``exclusive`` leaves nothing the extreme is the dtype's own bound and the index -1.
    """
    accumulate = (np.maximum if largest else np.minimum).accumulate
    lines = np.moveaxis(np.flip(x, axis) if reverse else x, axis, 0)
    values = accumulate(lines, axis=0)
    attained = (lines == values) | (lines != lines)
    if not reverse:
        # Only what is strictly better than all before it: a tie keeps the index it has.
        attained[1:] &= (values[1:] != values[:-1]) & (values[:-1] == values[:-1])
    steps = np.arange(len(lines)).reshape(-1, *(1,) * (x.ndim - 1))
    places = np.maximum.accumulate(np.where(attained, steps, 0), axis=0)
    if reverse:
        places = len(lines) - 1 - places
    if exclusive:
        values = _late(values, 0, lowest(x.dtype) if largest else highest(x.dtype))
        places = _late(places, 0, -1)
    if reverse:
        values, places = values[::-1], places[::-1]
    return np.moveaxis(values, 0, axis), np.moveaxis(places, 0, axis)


def lowest(dtype: Any) -> Any:
    """The identity of maximum in ``dtype``."""
    if dtype.kind == "b":
        return False
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def highest(dtype: Any) -> Any:
    """The identity of minimum in ``dtype``."""
    if dtype.kind == "b":
        return True
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


def recurrence(a: Any, b: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    """``h[i] = a[i] h[i - 1] + b[i]`` along ``axis``; ``exclusive`` gives ``h[i - 1]``."""
    a, b = np.broadcast_arrays(a, b)

    def solve(b: Any, axis: int) -> Any:
        factors = np.flip(a, axis) if reverse else a
        return np.moveaxis(_solved(np.moveaxis(factors, axis, 0), np.moveaxis(b, axis, 0)), 0, axis)

    return scan(solve, b, axis, exclusive, reverse, 0)


def _solved(a: Any, b: Any) -> Any:
    """Two steps make one step of half as many, and what lies between follows from its neighbour.

    Cyclic reduction: linear work in a logarithmic number of array operations.
    """
    if len(b) < 2:
        return b
    odd, even = a[1::2], len(b) // 2 * 2
    out = np.empty_like(b)
    out[1::2] = _solved(odd * a[:even:2], odd * b[:even:2] + b[1::2])
    out[0] = b[0]
    out[2::2] = a[2::2] * out[1:-1:2] + b[2::2]
    return out
