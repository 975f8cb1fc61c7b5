"""Prefix operators against loops and PyTorch; gradients where elements are zero or infinite."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.ops.scan import recurrence
from ruda.testing import assert_close, gradcheck

IDENTITY = {"cumsum": 0.0, "cumprod": 1.0, "cumlogsumexp": -math.inf}
COMBINE = {"cumsum": np.add, "cumprod": np.multiply, "cumlogsumexp": np.logaddexp}
WAYS = list(itertools.product((0, 1, -1), (False, True), (False, True)))


def looped(name: str, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    lines = np.moveaxis(x[:], axis, 0)
    order = range(len(lines))
    state = np.full(lines.shape[1:], IDENTITY[name])
    out = np.empty_like(lines)
    for i in reversed(order) if reverse else order:
        if exclusive:
            out[i] = state
        state = COMBINE[name](state, lines[i])
        if not exclusive:
            out[i] = state
    return np.moveaxis(out, 0, axis)


@pytest.mark.parametrize(("axis", "exclusive", "reverse"), WAYS)
@pytest.mark.parametrize("name", IDENTITY)
def test_against_a_loop(name: str, axis: int, exclusive: bool, reverse: bool) -> None:
    x = np.random.default_rng(3).standard_normal((3, 7, 2))
    how = {"exclusive": exclusive, "reverse": reverse}
    got = getattr(ruda, name)(ruda.asarray(x), axis, **how)
    assert_close(got, looped(name, x, axis, **how), length=7)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_dtypes_and_names(name: str) -> None:
    call = getattr(ruda, name)
    assert getattr(ruda, f"cumulative_{name.removeprefix('cum')}") is call
    assert call(ruda.ones(3, dtype="int8")).dtype == ruda.int64
    assert call(ruda.ones(3, dtype="uint16")).dtype == ruda.uint64
    assert call(ruda.ones(3, dtype="int8"), dtype="int16").dtype == ruda.int16
    assert call(ruda.ones(3, dtype="float16")).dtype == ruda.float16


def test_half_accumulates_in_float32() -> None:
    ones = ruda.ones(4000, dtype="float16")
    # In float16 itself the sum would stay at 2048.
    assert ruda.cumsum(ones).tolist()[-1] == 4000.0


@pytest.mark.parametrize("reverse", [False, True])
def test_include_initial(reverse: bool) -> None:
    x = ruda.asarray([[1, 2, 3], [4, 5, 6]])
    got = ruda.cumulative_sum(x, axis=1, include_initial=True, reverse=reverse).tolist()
    want = [[6, 5, 3, 0], [15, 11, 6, 0]] if reverse else [[0, 1, 3, 6], [0, 4, 9, 15]]
    assert got == want
    assert ruda.cumulative_prod(ruda.zeros((0,)), include_initial=True).tolist() == [1.0]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("zeros", [[], [2], [0, 3], [1, 2, 4]])
def test_cumprod_gradient_at_zeros(zeros: list[int], exclusive: bool, reverse: bool) -> None:
    x = np.random.default_rng(5).standard_normal((5, 2))
    x[zeros] = 0
    gradcheck(lambda t: ruda.cumprod(t, 0, exclusive=exclusive, reverse=reverse), [x])


def test_cumprod_gradient_of_complex_zeros() -> None:
    x = np.random.default_rng(5).standard_normal((5, 2)).view(np.complex128)
    x[[1, 3]] = 0
    gradcheck(lambda t: ruda.cumprod(t, 0), [x])


def test_cumlogsumexp_of_infinities() -> None:
    x = ruda.tensor([-math.inf, -math.inf, 1.0, 1001.0], dtype="float64", requires_grad=True)
    got = ruda.cumlogsumexp(x)
    assert got.tolist() == [-math.inf, -math.inf, 1.0, 1001.0]
    got.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("length", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrence_against_a_loop(length: int, reverse: bool) -> None:
    rng = np.random.default_rng(length)
    a, b = rng.standard_normal((2, length, 3))
    h, states = np.zeros(3), []
    for i in reversed(range(length)) if reverse else range(length):
        h = a[i] * h + b[i]
        states.append(h)
    want = np.stack(states[::-1] if reverse else states)
    got = recurrence(ruda.asarray(a), ruda.asarray(b), 0, False, reverse)
    assert_close(got, want, length=2 * length)


def positions(values: list[float], largest: bool, reverse: bool) -> list[int]:
    """The lowest index of the extreme of each prefix (suffix), a NaN being the extreme."""
    pick = np.argmax if largest else np.argmin
    if reverse:
        return [i + int(pick(values[i:])) for i in range(len(values))]
    return [int(pick(values[: i + 1])) for i in range(len(values))]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes(name: str, reverse: bool) -> None:
    nan = math.nan
    rows = [[2, 3, 3, 1, 1, 3, 0], [nan, 1, 2, nan, 0, 3, 3], [1, 1, nan, 5, 5, nan, 2]]
    got = getattr(ruda, name)(ruda.asarray(rows, dtype="float32"), 1, reverse=reverse)
    want = [positions(row, name == "cummax", reverse) for row in rows]
    assert got.indices.tolist() == want
    taken = np.take_along_axis(np.array(rows, np.float32), np.array(want), 1)
    np.testing.assert_array_equal(got.values.numpy(), taken)


def test_running_extremes_exclusive() -> None:
    got = ruda.cummax(ruda.asarray([3, 1, 5]), exclusive=True)
    assert got.values.tolist() == [-(2**31), 3, 3]
    assert got.indices.tolist() == [-1, 0, 0]
    x = ruda.tensor([3.0, 1.0, 5.0], requires_grad=True)
    ruda.sum(ruda.cummin(x, exclusive=True).values[1:]).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("name", ["cumprod", "cumlogsumexp", "cummax"])
def test_gradients_against_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(8).standard_normal((4, 6))
    ours, theirs = ruda.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    reference = {
        "cumprod": torch.cumprod,
        "cumlogsumexp": torch.logcumsumexp,
        "cummax": torch.cummax,
    }
    got, want = getattr(ruda, name)(ours, 1), reference[name](theirs, 1)
    got, want = (got.values, want.values) if name == "cummax" else (got, want)
    ruda.sum(got * got).backward()
    torch.sum(want * want).backward()
    assert_close(ours.grad, theirs.grad.numpy(), length=24)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_diff(n: int) -> None:
    x = np.random.default_rng(2).standard_normal((3, 4))
    t, first = ruda.asarray(x), np.ones((3, 2))
    for axis in (0, 1):
        assert_close(ruda.diff(t, axis=axis, n=n), np.diff(x, n=n, axis=axis))
    got = ruda.diff(t, n=n, prepend=ruda.asarray(first), append=ruda.asarray(first))
    assert_close(got, np.diff(np.concatenate([first, x, first], 1), n=n))
    assert ruda.diff(ruda.asarray([1, 4], dtype="uint8")).dtype == ruda.uint8
