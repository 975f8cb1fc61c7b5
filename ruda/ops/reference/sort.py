"""NumPy meanings of ordering. NaN orders above every number: last when ascending."""

from __future__ import annotations

from typing import Any

import numpy as np


def sort(x: Any, axis: int, descending: bool) -> Any:
    """``x`` sorted along ``axis``."""
    out = np.sort(x, axis=axis)
    return np.flip(out, axis) if descending else out


def argsort(x: Any, axis: int, descending: bool, stable: bool) -> Any:
    """Positions along ``axis`` that sort ``x``; equal elements keep their order if ``stable``."""
    kind: Any = "stable" if stable else "quicksort"
    if not descending:
        return np.argsort(x, axis=axis, kind=kind)
    # Sorting the reversed axis and reading it backwards keeps the order of equal elements.
    order = np.argsort(np.flip(x, axis), axis=axis, kind=kind)
    return x.shape[axis] - 1 - np.flip(order, axis)


def topk(x: Any, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    """The ``k`` first elements in order along ``axis``, the lower index first of a tie."""
    lines = np.moveaxis(x, axis, -1)
    if 0 < 2 * k <= lines.shape[-1]:
        # Selecting, and sorting what was selected, takes a third of the time of sorting all.
        places = _selected(lines, k, largest)
        chosen = np.take_along_axis(lines, places, axis=-1)
        order = argsort(chosen, -1, largest, True)
        places = np.take_along_axis(places, order, axis=-1)
    else:
        places = argsort(lines, -1, largest, True)[..., :k]
    values = np.take_along_axis(lines, places, axis=-1)
    return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


def _selected(lines: Any, k: int, largest: bool) -> Any:
    """Positions, ascending, of all better than the k-th element and of the first that equal it."""
    kth = lines.shape[-1] - k if largest else k - 1
    bound = np.partition(lines, kth, axis=-1)[..., kth : kth + 1]
    better = lines > bound if largest else lines < bound
    equal = lines == bound
    if lines.dtype.kind == "f":
        nan, nan_bound = np.isnan(lines), np.isnan(bound)
        better |= (nan & ~nan_bound) if largest else (~nan & nan_bound)
        equal |= nan & nan_bound
    room = k - np.add.reduce(better, axis=-1, keepdims=True)
    chosen = better | (equal & (np.cumsum(equal, axis=-1) <= room))
    return np.nonzero(chosen)[-1].reshape(*lines.shape[:-1], k)


def searchsorted(lines: Any, values: Any, right: bool) -> Any:
    """Where ``values`` would go in sorted ``lines``, each batch in its own line."""
    side: Any = "right" if right else "left"
    if lines.ndim == 1:
        return np.searchsorted(lines, values, side)
    out = np.empty(values.shape, np.int64)
    for batch in np.ndindex(lines.shape[:-1]):
        out[batch] = np.searchsorted(lines[batch], values[batch], side)
    return out


def unique(x: Any) -> tuple[Any, Any, Any, Any]:
    """Distinct values in order, where each occurs first, which one each is, and how often."""
    flat = x.reshape(-1)
    _, first, inverse, counts = np.unique(
        _ordered(flat),
        return_index=True,
        return_inverse=True,
        return_counts=True,
        equal_nan=False,
    )
    return flat[first], first, inverse.reshape(x.shape), counts


def unique_values(x: Any) -> Any:
    """Distinct values in order; every NaN is distinct."""
    return np.unique(_ordered(x), equal_nan=False).astype(x.dtype)


def _ordered(x: Any) -> Any:
    """``x`` in a dtype that NumPy sorts by itself: bfloat16 is none."""
    return x if x.dtype.kind in "biufc" else x.astype(np.float32)


def bincount(x: Any, weights: Any, length: int) -> Any:
    """How often each of ``length`` integers occurs, or the sum of its weights."""
    if weights is None or weights.dtype.kind == "f":
        return np.bincount(x.reshape(-1).astype(np.int64), _flat(weights), minlength=length)
    out = np.zeros(length, np.uint64 if weights.dtype.kind == "u" else np.int64)
    np.add.at(out, x.reshape(-1), _flat(weights))
    return out


def _flat(x: Any) -> Any:
    return None if x is None else x.reshape(-1)
