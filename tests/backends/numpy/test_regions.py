"""Chains of elementwise operators of compiled steps give the bits of eager code, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.tensor.dispatch import clear_plans

# More than two tiles, and the last one is odd.
SIZE = 600_001


@pytest.fixture(params=["auto", "off"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With the extra and without; plans are made anew by each test and after it."""
    monkeypatch.setenv("RUDA_CPU_KERNELS", request.param)
    clear_plans()
    yield
    clear_plans()


def values(*shape: int, seed: int = 0) -> Any:
    found = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    found.reshape(-1)[:3] = np.nan, np.inf, -0.0
    return ruda.asarray(found)


def several(x: Any, y: Any) -> Any:
    middle = x * y + 1.5
    return ruda.tanh(middle) - x, middle, middle > x


CHAINS: dict[str, Callable[..., Any]] = {
    "scalars on both sides": lambda x, y: 2.0 / ((x * x * 0.5 + 3) * y),
    "results that are needed twice": several,
    "booleans": lambda x, y: ((x > 0.0) | (y > 0.0)) == (x < y),
    "kernels of the extra": lambda x, y: ruda.sigmoid(x + y) * x - y,
    "one operand at many places": lambda x, y: ((x + x) * (x - 1.0) + x) * (x + x),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("shape", [(SIZE,), (700, 900)])
def test_a_chain_has_the_bits_of_eager_code(name: str, shape: Any, kernels: None) -> None:
    function = CHAINS[name]
    step = ruda.compile(function)
    x, y = values(*shape), values(*shape, seed=1)
    expected = function(x, y)
    for _ in range(2):
        found = step(x, y)
        pairs = (
            zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        )
        for a, b in pairs:
            np.testing.assert_array_equal(a.numpy().view(np.uint8), b.numpy().view(np.uint8))
    assert "+" in step.explain(), "some operators run as one"


def test_small_and_broadcast_operands_stay_apart() -> None:
    row = ruda.asarray(np.arange(900, dtype="float32"))
    step = ruda.compile(lambda x, y: (x + y) * y)
    small = ruda.asarray(np.ones(10, "float32"))
    np.testing.assert_array_equal(step(small, small).numpy(), np.full(10, 2, "float32"))
    x = values(700, 900)
    np.testing.assert_array_equal(step(x, row).numpy(), ((x + row) * row).numpy())


def test_results_outlive_the_next_run() -> None:
    step = ruda.compile(lambda x: (x * 2.0 + 1.0) * x)
    x, other = values(SIZE), values(SIZE, seed=1)
    first = step(x)
    before = first.numpy().copy()
    step(other)
    np.testing.assert_array_equal(first.numpy(), before)


def test_gradients_come_through_a_region() -> None:
    def loss(x: Any) -> Any:
        return (ruda.tanh(x * 0.5) * x).sum()

    x = ruda.asarray(np.random.default_rng(0).standard_normal(SIZE).astype("float32"))
    eager = ruda.grad(loss)(x)
    np.testing.assert_array_equal(ruda.compile(ruda.grad(loss))(x).numpy(), eager.numpy())
