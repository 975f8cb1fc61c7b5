"""Joining, splitting, repeating, rolling and padding against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import DTypeError
from ruda.testing import gradcheck


@pytest.fixture
def x(rng: np.random.Generator) -> Any:
    return rng.standard_normal((3, 4, 2))


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_concat(axis: int | None, x: Any) -> None:
    parts = [x, x[:, :, ::-1], x * 2]
    got = ruda.concat([ruda.asarray(p) for p in parts], axis=axis)
    assert np.array_equal(got.numpy(), np.concatenate(parts, axis=axis))
    gradcheck(lambda *parts: ruda.concat([p * p for p in parts], axis=axis), parts)


def test_concat_promotes() -> None:
    got = ruda.concat([ruda.ones(1, dtype="int8"), ruda.ones(1, dtype="float16")])
    assert got.dtype is ruda.float16
    assert ruda.concat([ruda.ones(1, dtype="bool")] * 2).dtype is ruda.bool
    with pytest.raises(DTypeError, match="astype"):
        ruda.concat([ruda.ones(1, dtype="int64"), ruda.ones(1, dtype="uint64")])


def test_concat_gives_gradients_to_those_that_ask(x: Any) -> None:
    a, b = ruda.tensor(x, requires_grad=True), ruda.asarray(x)
    ruda.concat([b, a * 2, b]).sum().backward()
    assert a.grad is not None
    assert np.array_equal(a.grad.numpy(), np.full(x.shape, 2.0))


@pytest.mark.parametrize("axis", [0, 1, -1, -4])
def test_stack_and_unstack(axis: int, x: Any) -> None:
    parts = [x, x + 1]
    got = ruda.stack([ruda.asarray(p) for p in parts], axis=axis)
    assert np.array_equal(got.numpy(), np.stack(parts, axis=axis))
    back = ruda.unstack(got, axis=axis)
    assert all(v.is_view for v in back)
    assert all(np.array_equal(v.numpy(), p) for v, p in zip(back, parts, strict=True))


@pytest.mark.parametrize("sizes", [1, 2, 3, 9, [1, 3], [0, 4, 0], (4,)])
def test_split(sizes: Any, x: Any) -> None:
    parts = ruda.split(ruda.asarray(x), sizes, axis=1)
    ends = np.cumsum(sizes)[:-1] if not isinstance(sizes, int) else range(sizes, 4, sizes)
    expected = np.split(x, ends, axis=1)
    assert [p.tolist() for p in parts] == [p.tolist() for p in expected]
    assert all(p.is_view for p in parts)


@pytest.mark.parametrize(("count", "lengths"), [(1, [4]), (2, [2, 2]), (3, [2, 2]), (4, [1] * 4)])
def test_chunk(count: int, lengths: list[int], x: Any) -> None:
    assert [p.shape[1] for p in ruda.chunk(ruda.asarray(x), count, axis=1)] == lengths


def test_parts_change_the_whole(x: Any) -> None:
    def call(x: Any) -> Any:
        whole = x * x
        first, second = ruda.chunk(whole, 2, axis=1)
        first += second
        for v in ruda.unstack(second, axis=2):
            v *= 3
        return whole * whole

    gradcheck(call, [x])


@pytest.mark.parametrize("repeats", [0, 1, 3])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_repeat(repeats: int, axis: int | None, x: Any) -> None:
    got = ruda.repeat(ruda.asarray(x), repeats, axis=axis)
    assert np.array_equal(got.numpy(), np.repeat(x, repeats, axis=axis))


@pytest.mark.parametrize("given", ["list", "array", "tensor"])
def test_repeat_by_counts(given: str, x: Any) -> None:
    counts = [2, 0, 1, 3]
    own = {"list": counts, "array": np.array(counts), "tensor": ruda.asarray(counts)}[given]
    got = ruda.repeat(ruda.asarray(x), own, axis=1)
    assert np.array_equal(got.numpy(), np.repeat(x, counts, axis=1))
    gradcheck(lambda x: ruda.repeat(x * x, own, axis=1), [x])


@pytest.mark.parametrize("counts", [2, (2,), (1, 3), (2, 1, 1, 2), (2, 2, 3, 1, 1), (0, 1), ()])
def test_tile(counts: Any, x: Any) -> None:
    assert np.array_equal(ruda.tile(ruda.asarray(x), counts).numpy(), np.tile(x, counts))


@pytest.mark.parametrize(
    ("shift", "axis"),
    [(1, None), (-7, None), (5, 0), (0, 1), ((1, -2), (0, 1)), ((1, 2), (1, 1)), (3, (0, 2))],
)
def test_roll(shift: Any, axis: Any, x: Any) -> None:
    got = ruda.roll(ruda.asarray(x), shift, axis=axis)
    assert np.array_equal(got.numpy(), np.roll(x, shift, axis))


def test_roll_of_nothing() -> None:
    assert ruda.roll(ruda.zeros((0, 3)), 2, axis=0).shape == (0, 3)
    assert ruda.roll(ruda.asarray(3.0), 2).item() == 3


MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("widths", [0, 1, [(0, 2), (3, 1), (0, 1)], [(2, 0), (0, 0), (1, 1)]])
def test_pad(mode: str, widths: Any, x: Any) -> None:
    got = ruda.pad(ruda.asarray(x), widths, mode=mode)
    assert np.array_equal(got.numpy(), np.pad(x, widths, mode=MODES[mode]))
    gradcheck(lambda x: ruda.pad(x * x, widths, mode=mode), [x])


def test_pad_with_a_value_and_crop(x: Any) -> None:
    got = ruda.pad(ruda.asarray(x), [(-1, 1), (1, -2), (-1, -1)], value=7.0)
    expected = np.pad(x[1:, :2, 1:1], [(0, 1), (1, 0), (0, 0)], constant_values=7.0)
    assert np.array_equal(got.numpy(), expected)
    assert ruda.pad(ruda.ones(2, dtype="bool"), 1, value=True).all().item()
