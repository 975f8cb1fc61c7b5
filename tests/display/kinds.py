"""Tensors of every kind that a notebook shows: dtypes, ranks, layouts, special values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ruda


def noise(*shape: int) -> Any:
    """Standard normal float32 values, the same at each call."""
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def integers(low: int, high: int, *shape: int) -> Any:
    """Integers from ``low`` to below ``high``."""
    return np.random.default_rng(0).integers(low, high, shape)


def with_specials(values: Any) -> Any:
    """A copy with NaN, inf and -inf in its first three places."""
    values = values.copy()
    values.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    return values


KINDS: dict[str, Callable[[], Any]] = {
    "scalar": lambda: ruda.asarray(3.5),
    "leaf": lambda: ruda.tensor(2.5, requires_grad=True),
    "vector": lambda: ruda.asarray(noise(5)),
    "long vector": lambda: ruda.asarray(noise(20_000)),
    "matrix": lambda: ruda.asarray(noise(20, 30)),
    "positive": lambda: ruda.asarray(np.abs(noise(20, 30))),
    "negative": lambda: ruda.asarray(-np.abs(noise(20, 30))),
    "bool": lambda: ruda.asarray(noise(24, 40) > 0),
    "few integers": lambda: ruda.asarray(integers(0, 5, 16, 32)),
    "integers": lambda: ruda.asarray(integers(-100, 100, 16, 32).astype(np.int16)),
    "bytes": lambda: ruda.asarray(integers(0, 256, 64, 64).astype(np.uint8)),
    "large integers": lambda: ruda.asarray(np.array([2**64 - 1, 2**63, 0] * 9, np.uint64)),
    "float16": lambda: ruda.asarray(noise(8, 8).astype(np.float16)),
    "bfloat16": lambda: ruda.asarray(noise(64, 64)).astype("bfloat16"),
    "float8": lambda: ruda.asarray(noise(16, 64)).astype("float8_e4m3"),
    "float4": lambda: ruda.asarray(noise(4, 8)).astype("float4_e2m1"),
    "complex": lambda: ruda.asarray((noise(9, 9) + 1j * noise(9, 9)).astype(np.complex64)),
    "specials": lambda: ruda.asarray(with_specials(noise(12, 20))),
    "all NaN": lambda: ruda.asarray(np.full((4, 4), np.nan)),
    "constant": lambda: ruda.ones((8, 8)),
    "outlier": lambda: ruda.asarray(np.append(noise(64, 64), 1e3)),
    "extremes": lambda: ruda.asarray(np.array([-1.7e308, 1.7e308, 0.0])),
    "tiles": lambda: ruda.asarray(noise(12, 20, 30)),
    "grid of tiles": lambda: ruda.asarray(noise(32, 16, 3, 3)),
    "five axes": lambda: ruda.asarray(noise(2, 3, 4, 5, 6)),
    "ten axes": lambda: ruda.zeros((2,) * 10),
    "empty": lambda: ruda.zeros((0, 3)),
    "transposed": lambda: ruda.asarray(noise(30, 80)).T,
    "reversed": lambda: ruda.asarray(noise(30, 80))[::-1],
    "expanded": lambda: ruda.broadcast_to(ruda.asarray(noise(1, 1000)), (1_000_000, 1000)),
    "skinny": lambda: ruda.asarray(noise(2000, 3)),
    "recorded": lambda: ruda.tensor(noise(6, 6), requires_grad=True) * 2,
}
