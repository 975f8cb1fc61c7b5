"""Compiled steps on an emulated GPU: what becomes one kernel, and that it computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.devices import client as client_of


def launched(function: Any) -> tuple[Any, list[str]]:
    """The result of a call and the kernels of the step that it launched.

    Those that bring arguments and scalars to the places of a captured step are left out.
    """
    launches = client_of("cuda").driver.launches
    start = len(launches)
    result = function()
    return result, [
        n for n in launches[start:] if not n.startswith(("copy", "store_numbers", "bring_"))
    ]


def normal(*shape: int, dtype: str = "float32", seed: int = 0, device: str = "cuda") -> ruda.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape)
    return ruda.asarray(values, dtype=dtype, device=device)


def gelu(x: Any) -> Any:
    return x * (1 + ruda.tanh(0.8 * (x + 0.04 * x * x * x))) * 0.5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(1000,), (3, 5), (7, 1030)])
def test_a_chain_is_one_kernel(device: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = normal(*shape, dtype=dtype)
    step = ruda.compile(gelu)
    step(x)
    found, names = launched(lambda: step(x))
    assert len(names) == 1 and names[0].startswith("fused_")
    np.testing.assert_array_equal(found.numpy(), gelu(x).numpy())


def test_broadcast_strided_and_scalar_operands(device: str) -> None:
    x, row, column = normal(6, 10).T, normal(6, seed=1), normal(10, 1, seed=2)

    @ruda.compile
    def step(x: Any, rate: float) -> Any:
        y = (x + row) * rate
        return y, ruda.exp(y - column) + 1

    def plain(x: Any, rate: float) -> Any:
        y = (x + row) * rate
        return y, ruda.exp(y - column) + 1

    for rate in (0.5, 0.25):
        step(x, rate)
        found, names = launched(lambda rate=rate: step(x, rate))
        assert len(names) == 1
        for got, want in zip(found, plain(x, rate), strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_group_never_waits_for_itself(device: str) -> None:
    x = normal(4, 8)

    def plain(x: Any) -> Any:
        y = x * 2
        total = y.sum(axis=0)
        z = y + total
        return ruda.sqrt(z * z) + y, total

    step = ruda.compile(plain)
    step(x)
    found, names = launched(lambda: step(x))
    assert len(names) <= 2
    for got, want in zip(found, plain(x), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


def test_what_is_computed_twice_runs_once(device: str) -> None:
    x = normal(5, 5)
    step = ruda.compile(lambda x: (ruda.exp(x).sum(), ruda.exp(x).max()))
    step(x)
    _, names = launched(lambda: step(x))
    assert sum("exp" in name for name in names) == 1


def test_gradients_of_a_compiled_step(device: str) -> None:
    x, w = normal(6, 5), normal(5, seed=1).requires_grad_()

    def plain(x: Any) -> Any:
        loss = (gelu(x * w) ** 2).mean()
        loss.backward()
        return loss

    step = ruda.compile(plain)
    for _ in range(2):
        w.grad = None
        got = step(x)
        grad = w.grad.numpy()
        w.grad = None
        want = plain(x)
        np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(grad, w.grad.numpy(), rtol=2e-6, atol=1e-7)


def test_numbers_beyond_float32_are_infinite_as_on_the_cpu(device: str) -> None:
    def step(x: Any, number: Any) -> Any:
        return x * number, ruda.where(x > 0, number, x), ruda.maximum(x, number)

    here, there = (ruda.asarray([1.0, -2.0], dtype="float32", device=d) for d in ("cpu", device))
    compiled = ruda.compile(step)
    for number in (1e39, -1e39, 3.4028235677973366e38):
        for want, *found in zip(
            step(here, number), step(there, number), compiled(there, number), strict=True
        ):
            assert [y.tolist() for y in found] == [want.tolist()] * 2
    z = ruda.asarray([1.0], dtype="complex64", device=device) + complex(1e39, 2.0)
    assert z.tolist() == [complex(np.inf, 2.0)]
