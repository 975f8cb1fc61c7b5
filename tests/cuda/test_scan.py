"""Scans on an emulated GPU: every way through the memory, ties, NaN, nothing at all."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.ops.scan import recurrence
from ruda.testing import assert_close

Function = Callable[..., Any]
BOTH = (False, True)
# Lanes, a block, one pass of many blocks, columns, columns in segments.
SHAPES = [((5, 7), 1), ((3, 50), 1), ((2, 700), 1), ((1, 9001), 1), ((2, 40, 3), 1), ((2000, 3), 0)]


def alike(
    function: Function, device: str, *values: Any, dtype: Any = None, length: int = 1
) -> None:
    """The same outputs as on the CPU; of floats up to the rounding of ``length`` additions."""
    want, got = (
        function(*[ruda.asarray(v, dtype=dtype, device=where) for v in values])
        for where in ("cpu", device)
    )
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else ((want, got),)
    for expected, actual in pairs:
        assert actual.dtype is expected.dtype
        wide = expected.numpy()
        if expected.dtype.is_floating:
            wide = wide.astype("d")
        assert_close(actual.to("cpu"), wide, length=length)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_every_way_through(
    shape: tuple[int, ...], axis: int, device: str, rng: np.random.Generator
) -> None:
    x = rng.uniform(0.5, 1.5, shape)
    alike(lambda x: ruda.cumsum(x, axis=axis), device, x, dtype="float32", length=shape[axis])


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize(("exclusive", "reverse"), [*itertools.product(BOTH, BOTH)])
def test_every_way_through_in_both_directions(
    shape: tuple[int, ...],
    axis: int,
    exclusive: bool,
    reverse: bool,
    device: str,
    rng: np.random.Generator,
) -> None:
    n = shape[axis]
    x = rng.uniform(0.5, 1.5, shape)
    how = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    alike(lambda x: ruda.cumsum(x, **how), device, x, length=n)
    alike(lambda x: ruda.cumlogsumexp(x, **how), device, x, length=n)
    ties = rng.integers(-3, 4, shape).astype("f")
    ties.reshape(-1)[ties.size // 2 :: 97] = np.nan
    alike(lambda x: ruda.cummax(x, **how), device, ties)
    alike(lambda x: ruda.cummin(x, **how), device, ties)
    a, b = rng.uniform(-1, 1, (2, *shape))
    alike(lambda a, b: recurrence(a, b, axis, exclusive, reverse), device, a, b, length=n)


def test_many_tiles_fold_totals_of_groups(device: str, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, 530_003).astype("i1")
    alike(ruda.cumsum, device, x)


def test_tiles_on_the_way_go_to_the_right_row(device: str, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (2, 90_000)).astype("i4")
    alike(lambda x: ruda.cumsum(x, axis=1, exclusive=True, reverse=True), device, x)
    alike(lambda x: ruda.cummax(x, axis=1), device, x)
    a, b = rng.uniform(-1, 1, (2, 2, 90_000))
    alike(lambda a, b: recurrence(a, b, 1, False, False), device, a, b, length=90)


def test_running_extremes_keep_the_lower_index(device: str) -> None:
    x = np.tile([1.0, 3.0, -0.0, 0.0, 3.0, np.nan, 2.0, np.nan], 2000).astype("f")
    alike(lambda x: ruda.cummax(x, reverse=True), device, x)
    alike(lambda x: ruda.cummin(x, exclusive=True), device, x[:5])


def test_recurrence_of_broadcast_factors(device: str, rng: np.random.Generator) -> None:
    a, b = rng.uniform(-1, 1, (3, 1)), rng.standard_normal((3, 300))
    alike(lambda a, b: recurrence(a, b, 1, False, False), device, a, b, length=300)
    alike(lambda b: recurrence(0.5, b, 1, False, True), device, b, length=300)
    infinite = np.array([np.inf, np.inf, 0.5])
    alike(lambda a, b: recurrence(a, b, 0, False, False), device, infinite, np.ones(3))


def test_strided_operands(device: str, rng: np.random.Generator) -> None:
    x = rng.integers(-50, 50, (6, 60, 10))
    for pick in (
        lambda x: x[:, ::-2, 3],
        lambda x: ruda.moveaxis(x, 0, 1),
        lambda x: x[1:, :, ::3],
        lambda x: ruda.broadcast_to(x[:, :, :1], (6, 60, 10)),
    ):
        for axis in (0, -1):
            alike(lambda x, p=pick, a=axis: ruda.cumsum(p(x), axis=a), device, x)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_nothing(shape: tuple[int, ...], device: str) -> None:
    for axis in range(len(shape)):
        alike(lambda x, a=axis: ruda.cumsum(x, axis=a), device, np.zeros(shape))
        alike(lambda x, a=axis: ruda.cummax(x, axis=a), device, np.zeros(shape))


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float64", "complex64"],
)
def test_dtypes(dtype: str, device: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2, (2, 5000))
    alike(lambda x: ruda.cumsum(x, axis=1), device, x, dtype=dtype, length=5000)
    alike(lambda x: ruda.cumprod(x, axis=1), device, np.ones_like(x), dtype=dtype)
    alike(lambda x: ruda.cumsum(x, axis=0, dtype="complex128"), device, x, dtype=dtype)
    if dtype != "complex64":
        alike(lambda x: ruda.cummax(x, axis=1), device, x, dtype=dtype)
