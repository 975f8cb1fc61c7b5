"""Reductions and statistics against NumPy, and the decisions that NumPy leaves open."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import ShapeError
from ruda.testing import assert_close

AXES = [None, 0, -1, (0, 2), (), (2, 0, 1)]
VALUED = ["sum", "prod", "mean", "var", "std", "min", "max"]
NARROW = ["int8", "int16", "int32", "bool"]


@pytest.fixture
def x() -> Any:
    return np.random.default_rng(7).standard_normal((3, 4, 5))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", [*VALUED, "any", "all", "count_nonzero"])
def test_against_numpy(name: str, axis: Any, keepdims: bool, x: Any) -> None:
    x[0, 1, :2] = 0
    got = getattr(ruda, name)(ruda.asarray(x), axis=axis, keepdims=keepdims)
    want = np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert_close(got, want, length=x.size, name=name)


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name: str, axis: Any, x: Any) -> None:
    got = getattr(ruda, name)(ruda.asarray(x), axis=axis, keepdims=True)
    assert np.array_equal(got.numpy(), getattr(np, name)(x, axis=axis, keepdims=True))
    assert got.dtype == ruda.int64


def test_position_of_a_tie_and_of_nan() -> None:
    assert ruda.argmax(ruda.asarray([1, 3, 3])).item() == 1
    assert ruda.argmin(ruda.asarray([1, 0, 0])).item() == 1
    spoilt = ruda.asarray([1.0, math.nan, 9.0, math.nan])
    assert ruda.argmax(spoilt).item() == ruda.argmin(spoilt).item() == 1
    assert math.isnan(ruda.max(spoilt).item())
    assert math.isnan(ruda.min(spoilt).item())


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_narrow_integers_accumulate_in_64_bits(name: str) -> None:
    for dtype in NARROW:
        assert getattr(ruda, name)(ruda.ones(3, dtype=dtype)).dtype == ruda.int64
    assert getattr(ruda, name)(ruda.ones(3, dtype="uint8")).dtype == ruda.uint64
    assert ruda.sum(ruda.full((300,), 127, dtype="int8")).item() == 38100
    assert getattr(ruda, name)(ruda.ones(3, dtype="int8"), dtype="int8").dtype == ruda.int8


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["sum", "mean", "std", "norm", "logsumexp"])
def test_half_types_round_once(name: str, dtype: str) -> None:
    x = ruda.full((5000,), 0.5, dtype=dtype)
    single = getattr(ruda, name)(x.astype("float32"))
    assert getattr(ruda, name)(x).item() == single.astype(dtype).item()


def test_nothing() -> None:
    empty = ruda.zeros((0, 3))
    assert ruda.sum(empty).item() == 0
    assert ruda.prod(empty, axis=0).tolist() == [1.0, 1.0, 1.0]
    assert math.isnan(ruda.mean(empty).item())
    assert math.isnan(ruda.median(empty).item())
    assert ruda.logsumexp(empty).item() == -math.inf
    assert ruda.max(empty, axis=1).shape == (0,)
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ShapeError, match=f"{name}: nothing to choose from"):
            getattr(ruda, name)(empty, axis=0)


def test_float32_sums_do_not_drift() -> None:
    x = np.random.default_rng(0).random(2**20, np.float32)
    assert ruda.sum(ruda.asarray(x)).item() == np.sum(x)
    assert_close(ruda.sum(ruda.asarray(x)), x.sum(dtype=np.float64), length=20)


def test_mean_of_integers_is_exact_until_it_is_rounded() -> None:
    x = ruda.asarray(np.full(3, 2**40 + 1))
    assert ruda.mean(x).dtype == ruda.float32
    assert ruda.mean(x, dtype="float64").item() == 2**40 + 1


def test_var_of_a_large_offset_does_not_cancel() -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32) + np.float32(1e4)
    assert_close(ruda.var(ruda.asarray(x)), np.var(x.astype(np.float64)), length=1000)


def test_var_without_freedom() -> None:
    assert math.isnan(ruda.var(ruda.ones(1), correction=1).item())
    assert ruda.var(ruda.asarray([1.0, 3.0]), correction=2).item() == math.inf


def test_complex_spread_is_real(x: Any) -> None:
    z = x + 1j * x[::-1]
    for name in ("var", "std"):
        got = getattr(ruda, name)(ruda.asarray(z), axis=1)
        assert got.dtype == ruda.float64
        assert_close(got, getattr(np, name)(z, axis=1), length=4)


@pytest.mark.parametrize("order", [2, 1, 0, 3, 0.5, math.inf, -math.inf])
def test_norm(order: float, x: Any) -> None:
    z = x + 1j * x[::-1]
    for values in (x, z):
        for axis in (None, 1, (0, 2)):
            want = np.linalg.vector_norm(values, axis=axis, ord=order)
            assert_close(ruda.norm(ruda.asarray(values), axis=axis, ord=order), want, length=60)


def test_logsumexp_at_infinity() -> None:
    inf = math.inf
    values = [[1000.0, 1000.0], [-inf, -inf], [inf, 0.0], [-inf, 1.0], [-1000.0, -1000.0]]
    want = [1000 + math.log(2), -inf, inf, 1.0, -1000 + math.log(2)]
    x = ruda.tensor(values, dtype="float64", requires_grad=True)
    got = ruda.logsumexp(x, axis=1)
    assert got.tolist() == pytest.approx(want, rel=1e-15)
    got.sum().backward()
    shares = [[0.5, 0.5], [0, 0], [1, 0], [0, 1], [0.5, 0.5]]
    # The output is rounded to 1000 eps, and the exponential of the difference carries that on.
    assert_close(x.grad, np.array(shares), rtol=1000 * 2.0**-52)
    spoilt = ruda.asarray([math.nan, -inf])
    assert math.isnan(ruda.logsumexp(spoilt).item())


@pytest.mark.parametrize("axis", [None, 0, (0, 2), -1])
def test_order_statistics(axis: Any, x: Any) -> None:
    t = ruda.asarray(x)
    assert_close(ruda.median(t, axis=axis), np.median(x, axis=axis))
    kept = ruda.median(t, axis=axis, keepdims=True)
    assert kept.shape == np.median(x, axis=axis, keepdims=True).shape
    for q in (0, 0.3, 0.75, 1):
        assert_close(ruda.quantile(t, q, axis=axis), np.quantile(x, q, axis=axis))


def test_median_of_nan_infinities_and_integers() -> None:
    assert math.isnan(ruda.median(ruda.asarray([1.0, math.nan, 0.0])).item())
    assert ruda.median(ruda.asarray([math.inf, math.inf])).item() == math.inf
    assert ruda.median(ruda.asarray([1, 2])).item() == 1.5
    assert ruda.median(ruda.ones(4, dtype="bfloat16")).dtype == ruda.bfloat16


def gradient(call: Any, values: Any) -> list[float]:
    x = ruda.tensor(values, dtype="float64", requires_grad=True)
    call(x).sum().backward()
    assert x.grad is not None
    return x.grad.tolist()  # type: ignore[no-any-return]


def test_ties_share_the_gradient() -> None:
    assert gradient(ruda.max, [3.0, 1.0, 3.0]) == [0.5, 0.0, 0.5]
    assert gradient(ruda.min, [3.0, 1.0, 1.0]) == [0.0, 0.5, 0.5]
    assert gradient(ruda.max, [3.0, math.nan, 1.0]) == [0.0, 1.0, 0.0]
    assert gradient(lambda x: ruda.norm(x, ord=math.inf), [-2.0, 2.0, 1.0]) == [-0.5, 0.5, 0.0]


def test_gradient_is_the_least_where_there_is_no_derivative() -> None:
    assert gradient(ruda.std, [2.0, 2.0, 2.0]) == [0.0, 0.0, 0.0]
    assert gradient(ruda.norm, [0.0, 0.0]) == [0.0, 0.0]
    assert gradient(lambda x: ruda.norm(x, ord=0.5), [0.0, 4.0]) == [0.0, 1.0]


@pytest.mark.parametrize("zeros", [[], [1], [1, 3]])
def test_prod_gradient_at_zeros(zeros: list[int]) -> None:
    values = np.array([1.5, -2.0, 3.0, 0.5])
    values[zeros] = 0
    others = [np.prod(np.delete(values, i)) for i in range(4)]
    assert gradient(ruda.prod, values) == pytest.approx(others, rel=1e-15)


def test_prod_second_gradient_at_zeros() -> None:
    x = ruda.tensor([2.0, 0.0, 0.0, 5.0], requires_grad=True)
    ruda.prod(x).backward(create_graph=True)
    first, x.grad = x.grad, None
    assert first is not None
    assert first.tolist() == [0.0, 0.0, 0.0, 0.0]
    ruda.sum(first).backward()
    assert x.grad.tolist() == [0.0, 10.0, 10.0, 0.0]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["var", "std", "norm", "logsumexp", "max", "median"])
def test_gradients_against_torch(name: str, x: Any) -> None:
    torch = pytest.importorskip("torch")
    ours = ruda.tensor(x, requires_grad=True)
    theirs = torch.tensor(x, requires_grad=True)
    reference = {
        "var": lambda t: torch.var(t, 1, correction=0),
        "std": lambda t: torch.std(t, 1, correction=0),
        "norm": lambda t: torch.linalg.vector_norm(t, dim=1),
        "logsumexp": lambda t: torch.logsumexp(t, 1),
        "max": lambda t: torch.amax(t, 1),
        "median": lambda t: torch.quantile(t, 0.5, 1),
    }[name]
    weight = np.random.default_rng(1).standard_normal((3, 5))
    (getattr(ruda, name)(ours, axis=1) ** 2 * ruda.asarray(weight)).sum().backward()
    (reference(theirs) ** 2 * torch.tensor(weight)).sum().backward()
    assert_close(ours.grad, theirs.grad.numpy(), length=60)


def test_out() -> None:
    out = ruda.zeros(3)
    assert ruda.sum(ruda.ones((3, 4)), axis=1, out=out) is out
    assert out.tolist() == [4.0, 4.0, 4.0]


def test_autocast_raises_reductions_to_float32() -> None:
    with ruda.autocast("bfloat16"):
        assert ruda.sum(ruda.ones(3, dtype="bfloat16")).dtype == ruda.float32
