"""Plans: what they depend on, how many there may be, and many threads that share them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.random
from ruda.core import spec as specs
from ruda.tensor.dispatch import CAPACITY, OPS, clear_plans


@pytest.fixture
def fresh_plans() -> Iterator[None]:
    clear_plans()
    yield
    clear_plans()


@pytest.fixture
def defaults() -> Iterator[None]:
    yield
    ruda.set_default_dtypes(floating="float32", integer="int32")


def test_changed_default_dtypes_reach_calls_that_were_planned(defaults: None) -> None:
    i = ruda.asarray([1, 2], dtype="int8")

    def found() -> list[str]:
        results = (i * 0.5, i / 2, i.mean(), ruda.sqrt(i), ruda.asarray([True]) + 1, i * 1j)
        made = (ruda.asarray([1]), ruda.asarray(1.5), ruda.arange(3), ruda.zeros(1), ruda.ones(1))
        drawn = (ruda.random.uniform((1,)), ruda.random.integers(0, 9, (1,)), ruda.full((1,), 1j))
        return [t.dtype.name for t in (*results, *made, *drawn)]

    narrow = found()
    ruda.set_default_dtypes(floating="float64", integer="int64")
    wide = found()
    assert wide == [{"complex64": "complex128"}.get(n, n.replace("32", "64")) for n in narrow]
    ruda.set_default_dtypes(floating="float32", integer="int32")
    assert found() == narrow


@pytest.mark.parametrize(
    "bad",
    [{"floating": "int32"}, {"integer": "float32"}, {"integer": "bool"}, {"floating": "float31"}],
)
def test_defaults_are_checked_and_then_left_alone(defaults: None, bad: Any) -> None:
    with pytest.raises(ruda.RudaError, match=r"^set_default_dtypes: "):
        ruda.set_default_dtypes(**bad)
    assert ruda.asarray(1).dtype is ruda.int32 and ruda.asarray(1.0).dtype is ruda.float32


def test_the_environment_sets_the_defaults() -> None:
    code = "import ruda; print(ruda.asarray(1).dtype, ruda.asarray(1.5).dtype)"

    def run(**variables: str) -> Any:
        env = {**os.environ, **variables}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    wide = run(RUDA_DEFAULT_INT="int64", RUDA_DEFAULT_FLOAT="float64")
    assert wide.stdout.split() == ["int64", "float64"]
    assert (
        "RUDA_DEFAULT_INT: not a dtype of ruda. Got 'int31'" in run(RUDA_DEFAULT_INT="int31").stderr
    )


def test_ten_thousand_shapes_do_not_grow_without_bound(fresh_plans: None) -> None:
    x = ruda.ones(1)
    for n in range(1, 10_001):
        x.broadcast_to((n,))
    expand = OPS["expand"]
    assert len(expand.hot) <= CAPACITY and len(expand.cold) <= CAPACITY
    assert len(expand.hot) + len(expand.cold) > CAPACITY, "a full hot cache turns cold"
    clear_plans()
    gc.collect()
    left = [s for s in specs._specs.values() if s.size > 5000 and s.strides == (0,)]
    assert not left, "specs are interned weakly"


def test_a_cold_plan_is_promoted_instead_of_made_again(fresh_plans: None) -> None:
    x, expand = ruda.ones(1), OPS["expand"]
    x.broadcast_to((7,))
    plan = next(iter(expand.hot.values()))
    for n in range(8, 8 + CAPACITY):
        x.broadcast_to((n,))
    assert plan in expand.cold.values()
    x.broadcast_to((7,))
    assert plan in expand.hot.values()


def test_values_are_no_part_of_a_plan(fresh_plans: None) -> None:
    x = ruda.arange(3000.0)
    for i in range(1000):
        x[i], x[i : i + 5], x[i] = x[i] * float(i), x[i + 1 : i + 6] + i, 0.5 * i
        ruda.clip(x[:3], float(i), 1e9)
        ruda.where(x[:3] > i, x[:3], float(i))
        ruda.full((2,), float(i))
        ruda.arange(float(i), i + 3.0)
        ruda.random.uniform((2,), low=0.0, high=1.0 + i)
        ruda.roll(x[:5], 1)
    large = {name: len(op.hot) for name, op in OPS.items() if len(op.hot) > 20}
    assert not large


def test_axes_of_other_types_share_one_plan(fresh_plans: None) -> None:
    x = ruda.ones((2, 3))
    for axis in (0, -2, (0,), [0], np.int64(0), np.uint8(0)):
        assert ruda.sum(x, axis=axis, keepdims=np.bool_(False)).tolist() == [2, 2, 2]
    assert len(OPS["sum"].hot) == 1


def _trained(seed: int) -> bool:
    """Forward and backward of many shapes, against the same written out for NumPy."""
    rng = np.random.default_rng(seed)
    for _ in range(25):
        n = int(rng.integers(1, 40))
        a, b = rng.standard_normal((n, 5)), rng.standard_normal((5, 3))
        x, w = ruda.tensor(a, requires_grad=True), ruda.tensor(b, requires_grad=True)
        y = (ruda.tanh(x @ w) * x[:, :3]).sum(axis=0)
        (y * y).sum().backward()
        t = np.tanh(a @ b)
        g = 2 * (t * a[:, :3]).sum(0) * np.ones((n, 1))
        inner = g * a[:, :3] * (1 - t * t)
        outer = inner @ b.T
        outer[:, :3] += g * t
        np.testing.assert_allclose(x.grad.numpy(), outer, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(w.grad.numpy(), a.T @ inner, rtol=1e-9, atol=1e-12)
        with ruda.no_grad():
            assert (x * 2).node is None
    return True


def test_eight_threads_get_right_results_and_modes_of_their_own(fresh_plans: None) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(_trained, range(8)))


def test_threads_may_view_and_draw_from_one_object() -> None:
    shared, generator = ruda.asarray(np.arange(12.0).reshape(3, 4)), ruda.random.Generator(1)

    def work(_: int) -> list[int]:
        for i in range(200):
            assert shared[i % 3][1:].sum().item() == 12 * (i % 3) + 6
        return [generator.advance() for _ in range(300)]

    with ThreadPoolExecutor(8) as pool:
        draws = [d for part in pool.map(work, range(8)) for d in part]
    assert sorted(draws) == list(range(2400)) and shared.share_count == 1


def test_threads_may_call_one_compiled_step() -> None:
    state = ruda.zeros(2)

    @ruda.compile
    def step(x: Any) -> Any:
        state.assign(state + x)
        return x * 2

    with ThreadPoolExecutor(8) as pool:
        parts = pool.map(lambda i: [step(ruda.ones(2) * i).tolist() for _ in range(25)], range(8))
        assert [p[0][0] for p in parts] == [2.0 * i for i in range(8)]
    assert state.tolist() == [25 * 28] * 2
