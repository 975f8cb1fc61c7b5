"""What is promised of reductions, scans and ordering."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ruda

A = np.random.default_rng(0).permutation(60).reshape(3, 4, 5) / 7 - 3
AXES = [None, (), 0, -1, (0, 2), (2, 0), (-1, -2), (0, 1, 2)]
REDUCTIONS: dict[str, Any] = {
    "sum": np.sum,
    "prod": np.prod,
    "mean": np.mean,
    "min": np.min,
    "max": np.max,
    "any": np.any,
    "all": np.all,
    "var": np.var,
    "std": np.std,
    "count_nonzero": np.count_nonzero,
    "logsumexp": lambda a, axis, keepdims: np.log(np.exp(a).sum(axis, keepdims=keepdims)),
    "norm": lambda a, axis, keepdims: np.sqrt((a * a).sum(axis, keepdims=keepdims)),
}


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_any_axis_or_tuple_of_axes_with_keepdims(name: str, axis: Any) -> None:
    for keepdims, layout in itertools.product((False, True), (A, A.transpose(2, 0, 1)[::-1])):
        got = getattr(ruda, name)(ruda.asarray(layout), axis=axis, keepdims=keepdims)
        expected = REDUCTIONS[name](layout, axis=axis, keepdims=keepdims)
        assert got.shape == np.shape(expected)
        # A sum of at most 60 numbers of size 10, and functions of it without cancellation.
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_are_int64_of_one_axis(name: str) -> None:
    for axis in (None, 0, -1):
        got = getattr(ruda, name)(ruda.asarray(A), axis=axis)
        assert got.dtype is ruda.int64
        assert np.array_equal(got.numpy(), getattr(np, name)(A, axis=axis))


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_the_dtype_of_the_result_can_be_chosen_and_else_is_wide(name: str) -> None:
    reduce = getattr(ruda, name)
    wide = {"int8": "int64", "uint8": "uint64", "bool": "int64", "uint32": "uint64"}
    for dtype, expected in wide.items():
        assert reduce(ruda.ones(3, dtype=dtype)).dtype == expected
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64"):
        assert reduce(ruda.ones(3, dtype=dtype)).dtype == dtype
    assert reduce(ruda.ones(3, dtype="int8"), dtype="float64").dtype is ruda.float64
    assert ruda.sum(ruda.full((200,), 127, dtype="int8")).item() == 25400


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_accumulate_in_float32(dtype: str) -> None:
    # In the dtype itself a sum of ones stops growing at 2048 (float16) or 256 (bfloat16).
    x = ruda.ones(30_000, dtype=dtype)
    assert x.sum().dtype == dtype and x.sum().item() == ruda.asarray(3e4, dtype=dtype).item()
    assert x.mean().item() == 1 and x.sum(dtype="float32").item() == 30_000
    assert ruda.cumsum(x, axis=0)[-1].item() == x.sum().item()


@pytest.mark.parametrize("name", ["min", "max", "maximum", "minimum", "cummax", "cummin"])
def test_nan_propagates(name: str) -> None:
    x, f = ruda.asarray([1.0, float("nan"), 3.0]), getattr(ruda, name)
    if name.startswith("cum"):
        values = f(x, axis=0)
        values = values if isinstance(values, ruda.Tensor) else values[0]
        assert np.isnan(values.numpy()).tolist() == [False, True, True]
    elif name in ("min", "max"):
        assert np.isnan(f(x).item()) and np.isnan(f(x, axis=0, keepdims=True).item())
    else:
        assert np.isnan(f(x, 2.0).numpy()).tolist() == [False, True, False]


def test_ties_give_the_lower_index() -> None:
    x = ruda.asarray([2, 7, 7, 2, 7])
    assert ruda.argmax(x).item() == 1 and ruda.argmin(x).item() == 0
    assert ruda.topk(x, 4).indices.tolist() == [1, 2, 4, 0]
    assert ruda.argtopk(x, 2).tolist() == [1, 2]
    assert ruda.argsort(x).tolist() == [0, 3, 1, 2, 4]
    assert ruda.argsort(x, descending=True).tolist() == [1, 2, 4, 0, 3]


def test_nothing_has_a_sum_but_no_smallest_element() -> None:
    for x in (ruda.zeros(0), ruda.zeros((0, 3)), ruda.zeros((3, 0))):
        assert x.sum().item() == 0 and x.prod().item() == 1
        assert not x.any().item() and x.all().item() and x.count_nonzero().item() == 0
        assert x.norm().item() == 0 and x.logsumexp().item() == -np.inf
        assert np.isnan(x.mean().item()) and np.isnan(x.var().item())
        for name in ("min", "max", "argmin", "argmax"):
            with pytest.raises(ruda.ShapeError, match=f"{name}: nothing to choose from"):
                getattr(ruda, name)(x)
    assert ruda.zeros((0, 3)).max(axis=1).shape == (0,)
    assert ruda.zeros((0, 3)).sum(axis=0).tolist() == [0, 0, 0]


SCANS: dict[str, Any] = {
    "cumsum": (np.cumsum, 0),
    "cumprod": (np.cumprod, 1),
    "cumlogsumexp": (lambda a, axis: np.log(np.cumsum(np.exp(a), axis)), -np.inf),
}


@pytest.mark.parametrize("name", SCANS)
def test_scans_may_be_exclusive_and_reverse(name: str) -> None:
    x, (f, first) = ruda.asarray(A), SCANS[name]
    scan = getattr(ruda, name)
    for axis in (0, 1, -1):
        plain = f(A, axis)
        np.testing.assert_allclose(scan(x, axis=axis).numpy(), plain, rtol=1e-12)
        backwards = np.flip(f(np.flip(A, axis), axis), axis)
        np.testing.assert_allclose(scan(x, axis=axis, reverse=True).numpy(), backwards, rtol=1e-12)
        exclusive = np.moveaxis(scan(x, axis=axis, exclusive=True).numpy(), axis, 0)
        assert (exclusive[0] == first).all()
        np.testing.assert_allclose(exclusive[1:], np.moveaxis(plain, axis, 0)[:-1], rtol=1e-12)


def test_scans_run_in_linear_work() -> None:
    x = ruda.ones(1_000_000)
    # Quadratic work would be 10**12 additions: hours, not the timeout of this suite.
    assert ruda.cumsum(x, axis=0)[-1].item() == 1_000_000
    assert ruda.cumlogsumexp(x, axis=0).shape == x.shape


def test_ordering_by_axis() -> None:
    x = ruda.asarray(A)
    for axis in (0, 1, -1):
        assert np.array_equal(ruda.sort(x, axis=axis).numpy(), np.sort(A, axis))
        assert np.array_equal(ruda.argsort(x, axis=axis).numpy(), np.argsort(A, axis))
        top = ruda.topk(x, 2, axis=axis)
        assert np.array_equal(top.values.numpy(), -np.sort(-A, axis).take([0, 1], axis))
        assert np.allclose(ruda.median(x, axis=axis).numpy(), np.median(A, axis))
    assert ruda.sort(ruda.asarray([2.0, float("nan"), 1.0])).tolist()[:2] == [1, 2]


def test_searching_and_counting() -> None:
    edges, values = np.array([0.0, 1.0, 1.0, 3.0]), np.array([[-1.0, 1.0], [2.0, 9.0]])
    for side in ("left", "right"):
        got = ruda.searchsorted(ruda.asarray(edges), ruda.asarray(values), side=side)
        assert np.array_equal(got.numpy(), np.searchsorted(edges, values, side))
    counts = np.array([3, 0, 3, 1])
    assert np.array_equal(ruda.bincount(ruda.asarray(counts)).numpy(), np.bincount(counts))
    assert ruda.unique(ruda.asarray([3, 1, 3])).tolist() == [1, 3]
    numbers = ruda.histogram(ruda.asarray(A), bins=5)
    expected, bounds = np.histogram(A, 5)
    assert np.array_equal(numbers.counts.numpy(), expected)
    np.testing.assert_allclose(numbers.edges.numpy(), bounds, rtol=1e-14)


@pytest.mark.parametrize("axis", [3, -4, (0, 0), (0, -3), (0, 5)])
def test_axes_out_of_range_or_repeated_raise(axis: Any) -> None:
    for name in ("sum", "max", "mean", "any", "var", "logsumexp", "flip", "squeeze"):
        with pytest.raises(IndexError, match=rf"^{name}: .*axis .*Got "):
            getattr(ruda, name)(ruda.asarray(A), axis=axis)
    if isinstance(axis, int):
        for name in ("cumsum", "sort", "argmax", "topk"):
            extra = (1,) if name == "topk" else ()
            with pytest.raises(ruda.AxisError, match=f"^{name}: axis out of range"):
                getattr(ruda, name)(ruda.asarray(A), *extra, axis=axis)


@pytest.mark.parametrize("axis", [1.0, "0", True, np.array([0, 1]), (0.5,), [None]])
def test_axes_are_integers(axis: Any) -> None:
    with pytest.raises(TypeError, match="sum: axis must be an integer"):
        ruda.sum(ruda.asarray(A), axis=axis)
