"""Ordering against NumPy: ties, NaN, stability, selection, searching, gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import DTypeError, ShapeError

NAN = math.nan


def draw(shape: Any, dtype: str = "float32", seed: int = 0) -> Any:
    """Few distinct values, so that there are ties."""
    return np.random.default_rng(seed).integers(0, 7, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort_against_numpy(axis: int, dtype: str) -> None:
    x = draw((5, 6, 4), dtype)
    t = ruda.asarray(x)
    assert np.array_equal(ruda.sort(t, axis=axis).numpy(), np.sort(x, axis))
    assert np.array_equal(ruda.argsort(t, axis=axis).numpy(), np.argsort(x, axis, kind="stable"))
    down = ruda.sort(t, axis=axis, descending=True).numpy()
    assert np.array_equal(down, np.flip(np.sort(x, axis), axis))
    assert ruda.sort(t).dtype == t.dtype


def test_stable_in_both_directions() -> None:
    x = ruda.asarray([1, 3, 1, 3, 2])
    assert ruda.argsort(x).tolist() == [0, 2, 4, 1, 3]
    assert ruda.argsort(x, descending=True).tolist() == [1, 3, 4, 0, 2]
    loose = ruda.argsort(x, descending=True, stable=False)
    assert ruda.take(x, loose).tolist() == [3, 3, 2, 1, 1]


def test_nan_is_above_every_number() -> None:
    x = ruda.asarray([NAN, 2.0, -math.inf, NAN, math.inf])
    assert ruda.argsort(x).tolist() == [2, 1, 4, 0, 3]
    assert ruda.argsort(x, descending=True).tolist() == [0, 3, 4, 1, 2]
    assert np.isnan(ruda.sort(x).numpy()).tolist() == [False, False, False, True, True]
    assert ruda.topk(x, 3).indices.tolist() == [0, 3, 4]
    assert ruda.topk(x, 4, largest=False).indices.tolist() == [2, 1, 4, 0]
    assert ruda.topk(x, 1).indices.item() == ruda.argmax(x).item()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16", "bool"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 3, 10, 20])
def test_topk_is_the_head_of_a_stable_sort(k: int, largest: bool, dtype: str) -> None:
    """Both routes, selecting for a small k and sorting for a large one, have the same ties."""
    t = ruda.asarray(draw((6, 20, 3))).astype(dtype)
    got = ruda.topk(t, k, axis=1, largest=largest)
    want = np.argsort(t.astype("float32").numpy() * (-1 if largest else 1), 1, kind="stable")
    assert np.array_equal(got.indices.numpy(), want[:, :k])
    taken = np.take_along_axis(t.numpy(), want[:, :k], 1)
    assert got.values.numpy().tobytes() == np.ascontiguousarray(taken).tobytes()
    assert np.array_equal(ruda.argtopk(t, k, axis=1, largest=largest).numpy(), want[:, :k])


@pytest.mark.parametrize("largest", [True, False])
def test_topk_selects_past_nan(largest: bool) -> None:
    x = draw((4, 30))
    x[np.random.default_rng(1).random((4, 30)) < 0.2] = NAN
    for k in (1, 5, 12):
        got = ruda.topk(ruda.asarray(x), k, largest=largest).indices.numpy()
        full = ruda.argsort(ruda.asarray(x), descending=largest).numpy()[:, :k]
        assert np.array_equal(got, full)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side: Any) -> None:
    x1, x2 = np.sort(draw(12)), draw((3, 4), seed=1)
    want = np.searchsorted(x1, x2, side)
    got = ruda.searchsorted(ruda.asarray(x1), ruda.asarray(x2), side=side)
    assert np.array_equal(got.numpy(), want)
    assert got.dtype == ruda.int64
    mixed = np.random.default_rng(4).permutation(x1)
    order = ruda.asarray(np.argsort(mixed))
    got = ruda.searchsorted(ruda.asarray(mixed), ruda.asarray(x2), side=side, sorter=order)
    assert np.array_equal(got.numpy(), want)


def test_searchsorted_in_batches() -> None:
    x1, x2 = np.sort(draw((2, 3, 8))), draw((2, 3, 5), seed=1)
    got = ruda.searchsorted(ruda.asarray(x1), ruda.asarray(x2)).numpy()
    for i in np.ndindex(2, 3):
        assert np.array_equal(got[i], np.searchsorted(x1[i], x2[i]))
    with pytest.raises(ShapeError, match="searchsorted: batches differ"):
        ruda.searchsorted(ruda.asarray(x1), ruda.asarray(x2[:1]))


def test_searchsorted_promotes_and_puts_nan_last() -> None:
    assert ruda.searchsorted(ruda.asarray([1, 3]), ruda.asarray([2.5, NAN])).tolist() == [1, 2]
    assert ruda.searchsorted(ruda.asarray([1, 3]), 3, side="right").item() == 2


def gradient(call: Any, values: Any, weight: Any) -> Any:
    x = ruda.tensor(values, requires_grad=True)
    ruda.sum(call(x) * ruda.asarray(weight)).backward()
    assert x.grad is not None
    return x.grad.tolist()


def test_gradients_go_where_the_values_came_from() -> None:
    values = [2.0, 3.0, 1.0]
    assert gradient(ruda.sort, values, [10.0, 20.0, 30.0]) == [20.0, 30.0, 10.0]
    down = gradient(lambda x: ruda.sort(x, descending=True), values, [10.0, 20.0, 30.0])
    assert down == [20.0, 10.0, 30.0]
    assert gradient(lambda x: ruda.topk(x, 2).values, values, [10.0, 20.0]) == [20.0, 10.0, 0.0]
    assert gradient(ruda.sort, [1.0, 1.0], [10.0, 20.0]) == [10.0, 20.0]


def test_complex_has_no_order() -> None:
    for name in ("sort", "argsort", "max", "argmax"):
        with pytest.raises(DTypeError, match=f"{name}: dtype not supported"):
            getattr(ruda, name)(ruda.ones(3, dtype="complex64"))
