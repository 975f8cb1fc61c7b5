"""Reductions of compiled steps with what is around them: one kernel, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.testing import assert_close
from tests.cuda.test_regions import launched, normal


def close(plain: Any, *args: Any, kernels: int, length: int) -> list[str]:
    """Compare a compiled call with an eager one and count its kernels."""
    step = ruda.compile(plain)
    step(*args)
    found, names = launched(lambda: step(*args))
    want = plain(*args)
    pairs = zip(found, want, strict=True) if isinstance(want, tuple) else ((found, want),)
    for got, wanted in pairs:
        assert got.dtype is wanted.dtype
        assert_close(got.numpy(), wanted.numpy(), length=length, scale=4)
    assert len(names) == kernels, names
    return names


def softmax(x: Any) -> Any:
    e = ruda.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("shape", "dtype"), [((150, 40), "float32"), ((3, 7, 5), "float64")])
def test_a_softmax_by_hand(device: str, shape: tuple[int, ...], dtype: str) -> None:
    (name,) = close(softmax, normal(*shape, dtype=dtype), kernels=1, length=shape[-1])
    assert name.startswith("folded_max")


def test_a_norm_by_hand_with_several_results(device: str) -> None:
    w, b = normal(24, seed=1), normal(24, seed=2)

    def plain(x: Any, y: Any) -> Any:
        total = x + y
        mean = total.mean(axis=-1, keepdims=True)
        far = total - mean
        var = (far * far).mean(axis=-1, keepdims=True)
        return total, far / ruda.sqrt(var + 1e-5) * w + b, var

    close(plain, normal(4, 33, 24), normal(4, 33, 24, seed=3), kernels=1, length=24)


@pytest.mark.parametrize("shape", [(150, 40), (130, 3000), (12, 12)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_facts_of_the_same_elements(device: str, shape: tuple[int, int], dtype: str) -> None:
    def plain(x: Any, y: Any) -> Any:
        axis: Any = -1 if shape[0] > 100 else (0, 1)
        spread = ruda.square(x.astype("float32")).mean(axis=axis)
        made = y * x + 1
        return ruda.abs(x).sum(axis=axis), spread, made.max(axis=axis), made

    args = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype, seed=1)
    (name,) = close(plain, *args, kernels=1, length=shape[1])
    assert name.startswith("folded")


def test_facts_that_wait_for_each_other_stay_apart(device: str) -> None:
    def plain(x: Any) -> Any:
        level = ruda.abs(x).sum(axis=-1)
        return level, (x * ruda.cumsum(level, axis=0)[:, None]).sum(axis=-1)

    step, x = ruda.compile(plain), normal(150, 40)
    step(x)
    found, names = launched(lambda: step(x))
    for got, wanted in zip(found, plain(x), strict=True):
        assert_close(got.numpy(), wanted.numpy(), length=6000, scale=4)
    assert sum(name.startswith("folded") for name in names) == 2, names


def test_a_cross_entropy_by_hand(device: str) -> None:
    labels = ruda.asarray(np.eye(50, dtype="f4")[np.arange(130) % 50], device="cuda")

    def plain(x: Any) -> Any:
        top = x.max(axis=-1, keepdims=True)
        shifted = x - top
        level = ruda.log(ruda.exp(shifted).sum(axis=-1, keepdims=True))
        return -((shifted - level) * labels).sum(axis=-1)

    close(plain, normal(130, 50), kernels=1, length=50)


def test_the_mean_of_a_loss_and_its_rate(device: str) -> None:
    x, y = normal(9, 31), normal(9, 31, seed=1)

    def plain(x: Any, y: Any, rate: float) -> Any:
        gap = x - y
        loss = (gap * gap).mean() * rate
        return loss, ruda.sqrt(loss), gap.max()

    for rate in (2.0, 0.5):
        close(plain, x, y, rate, kernels=1, length=279)


def test_masks_and_integers_are_counted(device: str) -> None:
    labels = ruda.asarray(np.arange(40) % 4, device="cuda")

    def plain(labels: Any, loss: Any) -> Any:
        count = (labels != 3).astype("float32").sum()
        return loss.sum() / count, 1.0 / count

    close(plain, labels, normal(40), kernels=1, length=40)


def test_rows_through_strides_and_nan(device: str) -> None:
    x = normal(30, 8, 5)
    x[3, 2, 1] = float("nan")

    def plain(x: Any) -> Any:
        y = ruda.permute_dims(x, (0, 2, 1)) * 2
        return y.min(axis=-1), y.max(axis=-1), y + y.sum(axis=-1, keepdims=True)

    close(plain, x, kernels=1, length=8)


def test_rows_that_are_read_again(device: str) -> None:
    close(softmax, normal(128, 20000), kernels=1, length=20000)


def test_gradients_of_shares_by_hand(device: str) -> None:
    def plain(x: Any, g: Any) -> Any:
        given = x.detach().requires_grad_()
        e = ruda.exp(given)
        (e / e.sum(axis=-1, keepdims=True) * g).sum().backward()
        return given.grad

    names = close(plain, normal(140, 24), normal(140, 24, seed=1), kernels=2, length=24)
    assert any(name.startswith("folded") for name in names)


def test_a_large_sum_is_left_to_many_blocks(device: str) -> None:
    names = close(lambda x: (x * 2).sum(), normal(300, 300), kernels=3, length=90000)
    assert not any(name.startswith("folded") for name in names)


# Sums whose shape lacks the folded axes broadcast to other axes than those of their rows.
BESIDE: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "along other axes": (lambda x, b: x * b - (x * b).sum(axis=-1), (4, 4, 4), (4,)),
    "along the only other": (lambda x, b: x * b * (x * b).max(axis=-1), (5, 5), (5,)),
    "fewer axes": (lambda x, b: (x * 2).sum(axis=-1) + b, (6, 5, 40), (5,)),
    "fewer axes, and ones": (lambda x, b: (x * 2).sum(axis=-1) + b, (6, 5, 3, 8), (5, 1)),
    "axes kept as ones": (
        lambda x, b: (x * 2).sum(axis=-1, keepdims=True) + b, (6, 5, 40), (5, 1)),
    "one of both": (
        lambda x, b: ((x * 2).sum(axis=-1, keepdims=True) + b, (x * 2).max(axis=-1) + b),
        (5, 5, 40), (5, 1)),
    "with the elements as well": (lambda x, b: (x * b).sum(axis=-1) + b, (5, 5), (5,)),
    "down columns": (
        lambda x, b: (x * 2).sum(axis=0, keepdims=True) * b, (40, 6, 5), (6, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_operands_that_lack_axes_mean_the_same_rows(device: str, name: str) -> None:
    plain, shape, other = BESIDE[name]
    args = normal(*shape), normal(*other, seed=1)
    found, wanted = ruda.compile(plain)(*args), plain(*args)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for one, two in pairs:
        assert one.shape == two.shape
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(6, 5), (600, 700)])
def test_a_sum_of_what_is_the_same_in_all_of_a_row(device: str, shape: tuple[int, int]) -> None:
    def plain(x: Any) -> Any:
        return ruda.broadcast_to(x, shape).sum(axis=-1) * 2 + 1

    close(plain, normal(shape[0], 1), kernels=1, length=shape[1])
