"""Reductions on the emulated GPU: every geometry that has a kernel of its own, and its edges."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import ShapeError, StrategyError
from ruda.testing import assert_close

# Shapes whose reductions take one warp, several, a block, several blocks; odd and even sizes.
SHAPES = ((7,), (5000,), (40, 33), (3, 700), (600, 8), (6, 5, 32), (3, 4, 5, 6))


def moved(x: np.ndarray, device: str) -> ruda.Tensor:
    return ruda.asarray(x, device=device)


def layouts(x: np.ndarray, device: str) -> dict[str, tuple[Any, Any]]:
    """Views of ``x`` on the device and on the host, by name."""
    t = moved(x, device)
    found = {"dense": (t, x)}
    if x.ndim > 1:
        found["turned"] = (t.permute_dims(tuple(reversed(range(x.ndim)))), x.T)
    found["back to front"] = (ruda.flip(t), np.flip(x))
    found["every second"] = (t[..., 1::2], x[..., 1::2])
    found["from the second on"] = (t[..., 1:], x[..., 1:])
    return found


def axes_of(rank: int) -> list[tuple[int, ...]]:
    return [a for n in range(rank + 1) for a in itertools.combinations(range(rank), n)]


def check_layouts(shape: tuple[int, ...], device: str, rng: np.random.Generator) -> None:
    # Whole numbers: sums are exact in any order.
    x = rng.integers(-8, 9, shape).astype(np.float32)
    for name, (t, want) in layouts(x, device).items():
        for axes in axes_of(want.ndim):
            got = ruda.sum(t, axis=axes).numpy()
            np.testing.assert_array_equal(got, want.sum(axis=axes), f"{name} {shape} {axes}")


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_layouts(shape: tuple[int, ...], device: str, rng: np.random.Generator) -> None:
    check_layouts(shape, device, rng)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES[3:], ids=str)
def test_more_layouts(shape: tuple[int, ...], device: str, rng: np.random.Generator) -> None:
    check_layouts(shape, device, rng)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((200_003,), (0,)), ((9001, 24), (0,)), ((2, 33_000), (1,)), ((900, 50, 2), (0, 2))],
    ids=str,
)
def test_many_blocks(
    shape: tuple[int, ...], axes: tuple[int, ...], device: str, rng: np.random.Generator
) -> None:
    x = rng.integers(-8, 9, shape).astype(np.float32)
    got = ruda.sum(moved(x, device), axis=axes).numpy()
    np.testing.assert_array_equal(got, x.sum(axis=axes, dtype=np.float64))
    assert np.array_equal(got, ruda.sum(moved(x, device), axis=axes).numpy())


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("name", ["argmax", pytest.param("argmin", marks=pytest.mark.slow)])
def test_places(name: str, axis: int | None, device: str, rng: np.random.Generator) -> None:
    # Few values, so that ties abound; NaN is found before any number.
    x = rng.integers(0, 3, (90, 150)).astype(np.float32)
    function, reference = getattr(ruda, name), getattr(np, name)
    for shown in (x, x.T):
        t = moved(x, device) if shown is x else moved(x, device).T
        np.testing.assert_array_equal(function(t, axis=axis).numpy(), reference(shown, axis=axis))
    x[5, 7] = x[5, 9] = x[70, 7] = np.nan
    got = function(moved(x, device), axis=axis).numpy()
    np.testing.assert_array_equal(got, reference(x, axis=axis))


def test_an_extreme_is_nan_where_an_element_is(device: str) -> None:
    x = np.zeros((4, 70), np.float32)
    x[2, 69] = np.nan
    for function in (ruda.max, ruda.min):
        got = function(moved(x, device), axis=1).numpy()
        np.testing.assert_array_equal(got, [0, 0, np.nan, 0])


@pytest.mark.parametrize(
    "dtype",
    [ruda.float32, ruda.bfloat16, pytest.param(ruda.complex64, marks=pytest.mark.slow)],
    ids=str,
)
def test_a_spread_does_not_cancel(dtype: ruda.DType, device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 3000)) + 1000.0 * (dtype is not ruda.bfloat16)
    x = x.astype(dtype.numpy)
    wide = x.astype(np.complex128 if dtype is ruda.complex64 else np.float64)
    for axis in (0, 1, None):
        got = ruda.var(moved(x, device), axis=axis, correction=1)
        # Means of elements a thousand times larger round by a thousand times more; squares of
        # elements, which would cancel, by a million times.
        terms = {} if dtype is ruda.bfloat16 else {"rtol": 1000 * 2.0**-23}
        assert_close(got.to("cpu"), wide.var(axis=axis, ddof=1), name=str(axis), **terms)


@pytest.mark.parametrize("order", [0, 1, 2, 3.5, np.inf, -np.inf])
def test_norms(order: float, device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((20, 50)).astype(np.float32)
    got = ruda.norm(moved(x, device), axis=1, ord=order)
    want = np.linalg.norm(x.astype(np.float64), ord=order, axis=1)
    assert_close(got.to("cpu"), want, length=50)


def test_logsumexp_of_infinite_elements(device: str) -> None:
    low = -np.inf
    x = np.array([[low, low, low], [low, 0, 1e4], [np.inf, 0, low], [np.nan, 0, 1], [-1e4, low, 0]])
    t = moved(x.astype(np.float32), device)
    want = [low, 1e4, np.inf, np.nan, 0.0]
    np.testing.assert_array_equal(ruda.logsumexp(t, axis=1).numpy(), np.float32(want))


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all", "count_nonzero", "norm"])
def test_of_nothing(name: str, device: str) -> None:
    x = np.zeros((3, 0, 2), np.float32)
    function = getattr(ruda, name)
    for axis in (1, None):
        got = function(moved(x, device), axis=axis).numpy()
        np.testing.assert_array_equal(got, function(ruda.asarray(x), axis=axis).numpy())
    assert function(moved(x, device), axis=0).shape == (0, 2)


def test_no_extreme_of_nothing(device: str) -> None:
    with pytest.raises(ShapeError, match="nothing to choose from"):
        ruda.max(moved(np.zeros((3, 0), np.float32), device), axis=1)


def test_more_than_eight_separate_axes(device: str) -> None:
    x = ruda.zeros((3,) * 10, device=device)[(slice(0, 2),) * 10]
    with pytest.raises(StrategyError, match="more than 8 separate dimensions"):
        ruda.sum(x)
