"""Random programs that write through many live views of one tensor, beside NumPy's own views.

Values must be NumPy's, the gradient what finite differences say, and the compiled program must give
what the eager one gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from tests.ops.keys import random_key

Rng = np.random.Generator
# A step works on a list of views and returns what it adds to the loss, or None.
Step = Callable[[list[Any], Any], Any]


def _view(rng: Rng, views: list[Any], v: Any) -> Step | None:
    key = tuple(k for k in random_key(rng, v.shape) if not isinstance(k, np.ndarray | bool))
    try:
        shown = v[(*key, ...)]
    except IndexError:
        return None
    return None if not shown.size else lambda vs, i: vs.append(vs[i][(*key, ...)])


def _permuted(rng: Rng, views: list[Any], v: Any) -> Step:
    order = tuple(int(a) for a in rng.permutation(v.ndim))
    return lambda vs, i: vs.append(
        vs[i].permute_dims(order) if isinstance(vs[i], ruda.Tensor) else vs[i].transpose(order)
    )


def _filled(rng: Rng, views: list[Any], v: Any) -> Step:
    value = float(rng.uniform(-1, 1))
    return lambda vs, i: vs[i].__setitem__(..., value)


def _scaled(rng: Rng, views: list[Any], v: Any) -> Step:
    factor, term = (float(x) for x in rng.uniform(-2, 2, 2))

    def step(vs: list[Any], i: Any) -> None:
        vs[i] *= factor
        vs[i] += term

    return step


def _squared(rng: Rng, views: list[Any], v: Any) -> Step:
    def step(vs: list[Any], i: Any) -> None:
        own = vs[i] * 1
        vs[i][...] = own * own - 0.5

    return step


def _copied(rng: Rng, views: list[Any], v: Any) -> Step | None:
    source, factor = int(rng.integers(len(views))), float(rng.uniform(-1, 1))
    if views[source] is None:
        return None
    try:
        np.broadcast_to(views[source], v.shape)
    except ValueError:
        return None
    return lambda vs, i: vs[i].__setitem__(..., vs[source] * factor)


def _moved(rng: Rng, views: list[Any], v: Any) -> Step | None:
    """Straight from one view into another, which may overlap it."""
    source = int(rng.integers(len(views)))
    if views[source] is None or views[source].shape != v.shape:
        return None

    def step(vs: list[Any], i: Any) -> None:
        # NumPy is given a copy: on one axis it overwrites what it has yet to read.
        vs[i][...] = vs[source] if isinstance(vs[i], ruda.Tensor) else vs[source].copy()

    return step


def _listed(rng: Rng, views: list[Any], v: Any) -> Step | None:
    if not v.ndim:
        return None
    places = rng.permutation(v.shape[0])[: int(rng.integers(1, v.shape[0] + 1))]

    def step(vs: list[Any], i: Any) -> None:
        vs[i][places] = vs[i][places] * 0.5 + 0.1

    return step


def _read(rng: Rng, views: list[Any], v: Any) -> Step:
    weights = rng.standard_normal(v.shape)
    return lambda vs, i: (vs[i] * weights).sum()


def _dropped(rng: Rng, views: list[Any], v: Any) -> Step | None:
    return (lambda vs, i: vs.__setitem__(i, None)) if len(views) > 1 else None


KINDS = [_view, _view, _permuted, _filled, _scaled, _squared, _copied, _moved, _listed, _read]
KINDS.append(_dropped)


def program(seed: int) -> tuple[Any, list[tuple[int, Step]]]:
    """A starting point and the steps, drawn while NumPy runs them."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(-1, 1, tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(1, 4)))))
    views: list[Any] = [start.copy()]
    steps: list[tuple[int, Step]] = []
    for _ in range(int(rng.integers(2, 14))):
        place = int(rng.integers(len(views)))
        if views[place] is None:
            continue
        step = KINDS[int(rng.integers(len(KINDS)))](rng, views, views[place])
        if step is not None:
            step(views, place)
            steps.append((place, step))
    for place, view in enumerate(views):
        if view is not None:
            steps.append((place, _read(rng, views, view)))
    return start, steps


def loss(x: Any, steps: list[tuple[int, Step]]) -> Any:
    """What the program on a copy of ``x`` adds up."""
    views, total = [x * 1], x.sum() * 0
    for place, step in steps:
        found = step(views, place)
        total = total if found is None else total + found
    return total


@pytest.mark.parametrize("block", range(8))
def test_programs(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        start, steps = program(seed)
        x = ruda.tensor(start, requires_grad=True)
        result = loss(x, steps)
        expected = float(loss(start, steps))
        scale = max(1.0, abs(expected))
        # A few hundred operations in float64.
        assert abs(result.item() - expected) <= 1e-12 * scale
        result.backward()
        along, h = np.random.default_rng(seed).standard_normal(start.shape), 1e-6
        ends = [float(loss(start + s * h * along, steps)) for s in (1, -1)]
        slope = float((x.grad.numpy() * along).sum())
        # Rounding of the difference, and its third order term.
        assert abs(slope - (ends[0] - ends[1]) / (2 * h)) <= 1e-6 * max(scale, abs(slope))


@pytest.mark.parametrize("block", range(3))
def test_compiled_programs_equal_eager_ones(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        start, steps = program(seed)
        x, y = (ruda.tensor(start, requires_grad=True) for _ in range(2))
        loss(x, steps).backward()
        run = ruda.compile(trained(steps))
        for _ in range(2):
            y.grad = None
            assert run(y).item() == loss(x, steps).item()
            # Sums of a few cotangents may be taken in another order.
            np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), 1e-12, 1e-13)


def trained(steps: list[tuple[int, Step]]) -> Any:
    """The program as a step to compile: forward and backward."""

    def step(t: Any) -> Any:
        total = loss(t, steps)
        total.backward()
        return total

    return step
