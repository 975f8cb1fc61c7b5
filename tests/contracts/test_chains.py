"""Random chains of operators beside NumPy, finite differences, and themselves compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from tests.contracts import chains

STEP = 1e-6
# A central difference in float64 is good to about eps / STEP + STEP**2 of the largest derivative.
NEAR = 1e-5


def difference(f: Any) -> tuple[float, bool]:
    """A derivative at 0, and whether two step sizes agree on it: no kink lies in between."""
    first = (f(STEP) - f(-STEP)) / (2 * STEP)
    second = (f(2 * STEP) - f(-2 * STEP)) / (4 * STEP)
    return first, abs(first - second) <= NEAR * max(1.0, abs(first))


def case(seed: int) -> tuple[Any, Any, Any, Any]:
    """A starting point, a chain, and weights that make its result a number."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(0, 4))))
    x = np.asarray(rng.uniform(-1.5, 1.5, shape))
    steps = chains.drawn(rng, x, int(rng.integers(1, 10)))
    weights = rng.standard_normal(chains.by_numpy(steps, x).shape)
    return x, steps, weights, np.asarray(rng.standard_normal(shape))


def gradient(x: Any, steps: Any, weights: Any) -> Any:
    leaf = ruda.tensor(x, requires_grad=True)
    out = chains.by_ruda(steps, leaf)
    if not out.requires_grad:
        return leaf, out, ruda.zeros_like(leaf)
    (out * ruda.asarray(weights)).sum().backward(create_graph=True)
    return leaf, out, leaf.grad


def check(seed: int) -> None:
    x, steps, weights, direction = case(seed)
    leaf, out, g = gradient(x, steps, weights)
    expected = chains.by_numpy(steps, x)
    assert out.shape == expected.shape
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-11, atol=1e-12)
    slope, smooth = difference(
        lambda s: float((chains.by_numpy(steps, x + s * direction) * weights).sum())
    )
    along = (g * ruda.asarray(direction)).sum()
    scale = max(1.0, abs(along.item()), float(np.abs(g.detach().numpy()).max()))
    assert not smooth or abs(along.item() - slope) <= NEAR * scale
    if along.requires_grad:
        (second,) = ruda.gradients([along], [leaf])

        def moved(s: float) -> float:
            at = gradient(x + s * direction, steps, weights)[2]
            return float((at.detach().numpy() * direction).sum())

        curve, smooth = difference(moved)
        found = 0.0 if second is None else float((second.numpy() * direction).sum())
        assert not smooth or abs(found - curve) <= 10 * NEAR * max(scale, abs(curve))


def trained(steps: Any, weights: Any) -> Any:
    """The chain as a step to compile: forward and backward."""

    def step(t: Any) -> Any:
        result = chains.by_ruda(steps, t)
        if result.requires_grad:
            (result * weights).sum().backward()
        return result

    return step


@pytest.mark.parametrize("block", range(8))
def test_values_and_gradients_of_orders_one_and_two(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        check(seed)


@pytest.mark.parametrize("block", range(4))
def test_compiled_chains_equal_eager_ones(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        x, steps, weights, _ = case(seed)
        _, out, g = gradient(x, steps, weights)
        leaf = ruda.tensor(x, requires_grad=True)

        step = ruda.compile(trained(steps, ruda.asarray(weights)))
        for _ in range(2):
            leaf.grad = None
            try:
                again = step(leaf)
            except ruda.CaptureError as error:
                # A mask in a key: the shape of the result is in its values.
                if error.op != "true_places":
                    raise
                break
            assert np.array_equal(again.detach().numpy(), out.detach().numpy())
            if leaf.grad is not None:
                # Sums of a few cotangents may be taken in another order.
                np.testing.assert_allclose(leaf.grad.numpy(), g.detach().numpy(), 1e-12, 1e-13)
