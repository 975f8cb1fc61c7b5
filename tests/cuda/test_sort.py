"""Ordering on an emulated GPU: short rows, blocks, passes over memory; ties, NaN, both zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.backends.cuda.prim.sort import numbering

Function = Callable[..., Any]
DTYPES = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("bool", "float16", "bfloat16", "float32", "float64"),
]


def alike(function: Function, device: str, *values: Any, dtype: Any = None) -> None:
    """Exactly the outputs of the CPU."""
    want, got = (
        function(*[ruda.asarray(v, dtype=dtype, device=where) for v in values])
        for where in ("cpu", device)
    )
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else ((want, got),)
    for expected, actual in pairs:
        assert actual.dtype is expected.dtype
        a, b = expected.numpy(), actual.numpy()
        if expected.dtype.is_floating:
            a, b = a.astype("d"), b.astype("d")
        np.testing.assert_array_equal(b, a)


def mixed(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """Values of the whole range with ties; of floats also NaN of both signs, infinities, zeros."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        limits = np.iinfo(dtype)
        x = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        x.reshape(-1)[::5] = 7
        return x
    x = rng.standard_normal(shape).round(1)
    special = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0)
    for i, value in enumerate(special):
        x.reshape(-1)[i :: 11 + i] = value
    return x


def orders(
    device: str, x: Any, dtype: str, axis: int = -1, ways: tuple[bool, ...] = (False, True)
) -> None:
    for down in ways:
        alike(lambda x, d=down: ruda.argsort(x, axis=axis, descending=d), device, x, dtype=dtype)
        alike(lambda x, d=down: ruda.sort(x, axis=axis, descending=d), device, x, dtype=dtype)


@pytest.mark.parametrize("shape", [(1,), (5, 33), (3, 700), (2, 9000)])
def test_rows_of_every_length(
    shape: tuple[int, ...], device: str, rng: np.random.Generator
) -> None:
    orders(device, mixed(rng, shape), "float32", ways=(len(shape) == 1 or shape[1] < 9000,))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 33), (2, 900), (2, 4000), (2, 14000)])
def test_dtypes(shape: tuple[int, ...], dtype: str, device: str, rng: np.random.Generator) -> None:
    orders(device, mixed(rng, shape, dtype), dtype)


def test_strided_operands(device: str, rng: np.random.Generator) -> None:
    x = mixed(rng, (4, 40, 3), "int16")
    for axis in range(3):
        alike(lambda x, a=axis: ruda.argsort(x, axis=a), device, x)
        alike(lambda x, a=axis: ruda.argsort(x[::-1, ::2, 1:], axis=a), device, x)
    alike(lambda x: ruda.argsort(ruda.broadcast_to(x[:1, :, 0], (9, 40))), device, x)
    for shape in ((0,), (0, 3), (3, 0)):
        alike(ruda.sort, device, np.zeros(shape))
        alike(ruda.argsort, device, np.zeros(shape))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("n", [60, 9000])
def test_topk(n: int, largest: bool, device: str, rng: np.random.Generator) -> None:
    x = mixed(rng, (3, n))
    # More ties than places for them: those of the lowest indices win.
    x[2] = np.where(np.arange(n) % 3, 0.5, -0.5)
    alike(lambda x: ruda.topk(x, 50, largest=largest), device, x)


def test_topk_along_another_axis_and_of_almost_all(device: str, rng: np.random.Generator) -> None:
    x = mixed(rng, (4999, 2), "int8")
    alike(lambda x: ruda.topk(x, 4, axis=0), device, x)
    alike(lambda x: ruda.topk(x, 4500, axis=0), device, x)
    alike(lambda x: ruda.topk(x, 0, axis=0), device, x)


def test_few_winners_of_long_rows(device: str, rng: np.random.Generator) -> None:
    x = mixed(rng, (4, 30_000))
    x[1] = np.sort(rng.standard_normal(30_000))
    x[2] = 2.0
    x[3, :29_000] = -np.inf
    for k in (1, 64, 96):
        alike(lambda x, k=k: ruda.topk(x, k), device, x, dtype="float32")
    alike(lambda x: ruda.topk(x, 40, largest=False), device, x[:, :29_999], dtype="float32")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_topk_dtypes(dtype: str, device: str, rng: np.random.Generator) -> None:
    for n, k in ((300, 300), (6000, 7), (20000, 1000)):
        alike(lambda x, k=k: ruda.topk(x, k), device, mixed(rng, (2, n), dtype), dtype=dtype)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side: str, device: str, rng: np.random.Generator) -> None:
    lines = np.sort(mixed(rng, (3, 50)).astype("f"), axis=-1)
    values = mixed(rng, (3, 20))

    def find(lines: Any, values: Any) -> Any:
        return ruda.searchsorted(lines, values, side=side)

    alike(find, device, lines, values)
    alike(find, device, lines[0], values.astype("f"))
    alike(lambda x: find(x, 0.0), device, lines[0])
    alike(lambda x, y: find(x[::2], y.T), device, lines[0], values.astype("f"))
    alike(find, device, np.zeros(0), values)
    alike(find, device, lines, np.zeros((3, 0)))


def test_many_tiles_of_several_rows(device: str, rng: np.random.Generator) -> None:
    x = mixed(rng, (2, 40_000))
    x[1, 30_000:] = 3
    orders(device, x, "float32", ways=(False,))


@pytest.mark.parametrize(
    ("n", "largest"), [(50, 1000), (3000, 200), (20_000, 255), (20_000, 70_000)]
)
def test_numbers_below_a_limit(client: Any, n: int, largest: int, rng: np.random.Generator) -> None:
    numbers = rng.integers(0, largest + 1, n).astype("u4")
    numbers[::3] = largest
    given = ruda.asarray(numbers, device="cuda:0")
    found = [client.read(given.spec, h) for h in numbering(client, n, largest)(given.handle)]
    order = np.argsort(numbers, kind="stable")
    np.testing.assert_array_equal(found[0], numbers[order])
    np.testing.assert_array_equal(found[1], order)
