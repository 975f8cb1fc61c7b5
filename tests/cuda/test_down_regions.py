"""Sums over the first axes with what is around them: one launch, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.prim import down_region
from tests.cuda.test_fold_regions import close
from tests.cuda.test_regions import launched, normal


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((300, 40), "float32"),
        ((40, 3, 10), "bfloat16"),
        ((5, 300), "float64"),
        ((20, 4500), "float32"),
    ],
)
def test_a_sum_of_what_is_written_as_well(device: str, shape: Any, dtype: str) -> None:
    def plain(x: Any, y: Any) -> Any:
        z = x * y + 1
        return z, z.sum(axis=tuple(range(len(shape) - 1)))

    args = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype, seed=1)
    (name,) = close(plain, *args, kernels=1, length=300)
    assert name.startswith("down_multiply_add_sum")


def test_sums_are_cast_and_scaled_in_their_launches(device: str) -> None:
    w = normal(24, seed=2)

    def plain(x: Any, rate: float) -> Any:
        return x.sum(axis=0).astype("float32") * rate + w, (x * x).mean(axis=0)

    for rate in (0.5, 2.0):
        close(plain, normal(200, 24, dtype="float16"), rate, kernels=1, length=200)


def test_a_sum_of_the_columns_of_a_view(device: str) -> None:
    x = normal(12, 150)

    def plain(x: Any) -> Any:
        return (x.mT * 2).max(axis=0), (x.mT * 2).min(axis=0)

    close(plain, x, kernels=1, length=150)


def test_elements_that_need_the_sum_come_later(device: str) -> None:
    def plain(x: Any) -> Any:
        y = x * 2
        return y - y.mean(axis=0)

    close(plain, normal(70, 30), kernels=2, length=70)


@pytest.fixture
def _of_any_size(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few elements are as good as many."""
    monkeypatch.setattr(down_region, "_LEAST_INNER", 0)


@pytest.mark.usefixtures("_of_any_size")
@pytest.mark.parametrize("axis", [0, 1])
def test_a_softmax_down_columns_that_is_written_out(axis: int) -> None:
    def plain(x: Any) -> Any:
        y = ruda.exp(x - x.max(axis=axis, keepdims=True))
        return y / y.sum(axis=axis, keepdims=True)

    close(plain, normal(6, 40, 24), kernels=3, length=40)


def test_the_same_bits_in_each_replay(device: str) -> None:
    x = normal(2000, 20)
    step = ruda.compile(lambda x: (x * 3).sum(axis=0))
    found = {step(x).numpy().tobytes() for _ in range(4)}
    assert len(found) == 1


def test_gradients_of_biases(device: str) -> None:
    x, b = normal(64, 8, 12), normal(12, seed=1).requires_grad_()

    def plain(x: Any) -> Any:
        b.grad = None
        F.gelu(x + b, approximate="tanh").sum().backward()
        out, b.grad = b.grad, None
        return out

    step = ruda.compile(plain)
    step(x)
    found, names = launched(lambda: step(x))
    assert "down" in names[-1], names
    np.testing.assert_allclose(found.numpy(), plain(x).numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("_of_any_size")
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((6, 40, 24), 1), ((5, 7, 11, 8), (0, 2)), ((2, 3000, 8), 1), ((3, 9, 4, 6), 1)],
)
def test_sums_over_axes_in_the_middle(shape: Any, axis: Any) -> None:
    def plain(x: Any) -> Any:
        y = x * x
        return y, y.mean(axis=axis) * 2, y.max(axis=axis)

    length = int(np.prod(np.take(shape, axis)))
    (name,) = close(plain, normal(*shape), kernels=1, length=length)
    assert name.startswith("down_multiply_mean_max")


@pytest.mark.usefixtures("_of_any_size")
def test_operands_of_sums_over_the_middle() -> None:
    ones, fewer = normal(5, 1, 8, seed=1), normal(5, 1, seed=2)
    x = normal(8, 70, 5).permute_dims((2, 1, 0))

    def plain(x: Any) -> Any:
        y = ruda.exp(x)
        return y.sum(axis=1, keepdims=True) * ones, y.sum(axis=1) * fewer

    close(plain, x, kernels=1, length=70)


@pytest.mark.parametrize(("least", "dtype"), [(1 << 18, "float32"), (0, "bfloat16")])
def test_few_elements_and_halves_are_summed_over_the_middle_apart(
    device: str, monkeypatch: pytest.MonkeyPatch, least: int, dtype: str
) -> None:
    monkeypatch.setattr(down_region, "_LEAST_INNER", least)
    x = normal(5, 70, 8, dtype=dtype)
    names = close(lambda x: (x * 2).max(axis=1), x, kernels=2, length=70)
    assert names[1].startswith("max")


def test_a_sum_over_the_middle_alone_has_its_own_kernel(device: str) -> None:
    (name,) = close(lambda x: x.sum(axis=1), normal(5, 70, 8), kernels=1, length=70)
    assert name.startswith("sum")
