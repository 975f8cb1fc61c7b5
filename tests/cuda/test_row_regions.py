"""Row kernels of compiled steps with elementwise steps in them: as many, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from tests.cuda.test_regions import launched, normal


def same(plain: Any, *args: Any, kernels: int) -> list[str]:
    """Compare a compiled call with an eager one, bit by bit, and count its kernels."""
    step = ruda.compile(plain)
    step(*args)
    found, names = launched(lambda: step(*args))
    want = plain(*args)
    pairs = zip(found, want, strict=True) if isinstance(want, tuple) else ((found, want),)
    for got, wanted in pairs:
        assert got.dtype is wanted.dtype
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    assert len(names) == kernels, names
    return names


@pytest.mark.parametrize("n", [96, 20, 7])
def test_a_residual_a_norm_and_a_cast_are_one_kernel(device: str, n: int) -> None:
    x, y = normal(5, 3, n), normal(5, 3, n, dtype="bfloat16", seed=1)
    w, b = normal(n, seed=2), normal(n, seed=3)

    def plain(x: Any, y: Any) -> Any:
        total = x + y
        normed = F.layer_norm(total, w, b)
        return total, normed.astype("bfloat16")

    (name,) = same(plain, x, y, kernels=1)
    assert name.startswith("layer_norm")


def test_operands_of_rows_columns_and_scalars(device: str) -> None:
    x, row, column = normal(6, 8), normal(6, 1, seed=1), normal(8, seed=2)

    def plain(x: Any, rate: float) -> Any:
        y = ruda.nn.functional.softmax(x * row + column - 0.5, axis=-1)
        return (y * rate + column) * row

    for rate in (0.5, 0.25):
        same(plain, x, rate, kernels=1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_round_between_steps(device: str, dtype: str) -> None:
    x = normal(4, 24, dtype=dtype)
    w = normal(24, dtype=dtype, seed=1)

    def plain(x: Any) -> Any:
        y = F.rms_norm(x * 1.3, w)
        return y, ruda.exp(y) + x

    same(plain, x, kernels=1)


def test_a_loss_reads_and_writes_what_was_cast(device: str) -> None:
    logits = normal(6, 40, dtype="bfloat16")
    labels = ruda.asarray(np.arange(6) % 5, device="cuda")

    def plain(logits: Any) -> Any:
        given = logits.detach().requires_grad_()
        F.cross_entropy(given.astype("float32"), labels, reduction="sum").backward()
        return given.grad

    names = same(plain, logits, kernels=1)
    assert not any(name.startswith(("astype", "fused")) for name in names)


@pytest.mark.parametrize("n", [64, 600])
def test_the_gradient_of_a_norm_joins_the_shortcut(device: str, n: int) -> None:
    x, g = normal(40, n), normal(40, n, seed=4, dtype="bfloat16")
    w, b = normal(n, seed=2).requires_grad_(), normal(n, seed=3).requires_grad_()

    def plain(x: Any, g: Any) -> Any:
        given = x.detach().requires_grad_()
        w.grad = b.grad = None
        y = given + F.layer_norm(given, w, b)
        (y * g.astype("float32")).sum().backward()
        out = given.grad
        dw, db = w.grad, b.grad
        w.grad = b.grad = None
        return out, out.astype("bfloat16"), dw, db

    names = same(plain, x, g, kernels=3)
    assert sum("layer_norm" in name for name in names) == 2


def test_what_would_wait_for_itself_stays_apart(device: str) -> None:
    x = normal(4, 16)

    def plain(x: Any) -> Any:
        y = F.softmax(x * 2, axis=-1)
        return y + y.sum(axis=0)

    step = ruda.compile(plain)
    step(x)
    found, names = launched(lambda: step(x))
    # The sum goes down the columns in another order.
    np.testing.assert_allclose(found.numpy(), plain(x).numpy(), rtol=1e-6)
    assert len(names) == 3, names


def test_a_step_that_reads_one_value_of_each_row_stays_behind(device: str) -> None:
    def plain(x: Any) -> Any:
        y = x * 2
        z = y[:5] * 3
        return y - ruda.logsumexp(y, axis=-1, keepdims=True), z * ruda.logsumexp(z, axis=1)

    step, x = ruda.compile(plain), normal(6, 5)
    for got, wanted in zip(step(x), plain(x), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
