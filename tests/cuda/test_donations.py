"""Results in the memory of their operands, and recomputed ones: the same numbers, less memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core import devices
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close
from tests.fusion.twins import bits


@pytest.fixture
def device() -> Iterator[str]:
    """An emulated GPU whose memory comes from the pool that a real one has: graphs are planned."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from ruda.backends.cuda.client import CudaClient
    from tests.cuda.emulator.driver import EmulatedDriver, NoMemoryLeft

    where = devices.Device("cuda", 0)
    before = devices._clients.get(where)
    devices._clients[where] = CudaClient(where, EmulatedDriver(), NoMemoryLeft)
    yield "cuda:0"
    clear_plans()
    devices._clients.pop(where)
    if before is not None:
        devices._clients[where] = before


def twice(step: Any, *args: Any) -> tuple[Any, Any]:
    """What a compiled step gives as a graph, and its program."""
    compiled = ruda.compile(step)
    compiled(*args)
    out = compiled(*args)
    (program,) = compiled._all()
    assert program.captured is not None, program.stepwise
    return out, program


def given(program: Any) -> list[str]:
    return [i.op for i in program.captured.given]


def logits(device: Any, rows: int = 200, classes: int = 333, dtype: str = "float32") -> Any:
    rng = np.random.default_rng(1)
    x = ruda.asarray(rng.standard_normal((rows, classes)).astype("f4"), dtype=dtype, device=device)
    return x, ruda.asarray(rng.integers(0, classes, rows), device=device)


@pytest.mark.parametrize(("classes", "dtype"), [(333, "float32"), (512, "bfloat16")])
def test_the_gradient_of_logits_lies_where_the_logits_lay(
    device: Any, classes: int, dtype: str
) -> None:
    x, target = logits(device, 200, classes, dtype)

    def step(x: Any, target: Any) -> Any:
        # A sum is one more operator, no elementwise one: what it makes dies with the loss.
        return ruda.value_and_grad(lambda x: F.cross_entropy(ruda.cumsum(x, axis=0), target))(x)

    out, program = twice(step, x, target)
    assert any("cross_entropy_joint" in op for op in given(program)), given(program)
    for found, wanted in zip(out, step(x, target), strict=True):
        # A thread has a longer part of a row that is kept: sums are in another order.
        assert_close(found, wanted, length=classes)
    again, _ = twice(step, x, target)
    assert bits(again) == bits(out)


def test_chains_take_over_what_they_are_last_to_read(device: Any) -> None:
    x = logits(device)[0]

    def step(x: Any) -> Any:
        made = ruda.cumsum(x, axis=0)
        return ruda.cumsum(ruda.tanh(made) * 2.0 + made, axis=0), made[0]

    def reading_twice(x: Any) -> Any:
        made = ruda.cumsum(x, axis=0)
        return ruda.cumsum(ruda.tanh(made) * 2.0, axis=0) + made

    out, program = twice(step, x)
    assert not given(program), "a view of it leaves the step"
    out, program = twice(reading_twice, x)
    assert len(given(program)) == 1
    np.testing.assert_array_equal(out.numpy(), reading_twice(x).numpy())


def test_one_that_is_read_in_another_order_too_stays(device: Any) -> None:
    x = logits(device, 256, 256)[0]

    def step(x: Any) -> Any:
        made = ruda.cumsum(x, axis=0)
        return ruda.cumsum(made + made.T, axis=0)

    out, program = twice(step, x)
    assert not given(program)
    np.testing.assert_array_equal(out.numpy(), step(x).numpy())


def test_a_block_that_was_given_goes_back_once(device: Any) -> None:
    x = logits(device)[0]
    step = ruda.compile(lambda x: ruda.cumsum(ruda.exp(ruda.cumsum(x, axis=0) * 0.001), axis=0))
    client = x.spec.client
    for _ in range(3):
        step(x)
    used = client.pool.used
    for _ in range(3):
        step(x)
    assert client.pool.used == used
    (program,) = step._all()
    assert given(program) and program.captured.graph.arena.extra == 0


def values(device: Any, dtype: str) -> Any:
    x = np.random.default_rng(0).standard_normal((48, 96)).astype("f4")
    return ruda.asarray(x, dtype=dtype, device=device)


def gated(x: Any) -> Any:
    def loss_of(x: Any) -> Any:
        gate = ruda.sigmoid(x)
        y = ruda.cumsum(ruda.where(gate > 0.4, x * gate, x - 1.0), axis=0)
        return (y * y).sum()

    return ruda.grad(loss_of)(x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_chains_are_the_same(device: Any, dtype: str) -> None:
    x = values(device, dtype)
    step = ruda.compile(gated)
    step(x)
    np.testing.assert_array_equal(step(x).numpy().view("u1"), gated(x).numpy().view("u1"))
    assert "recomputed: " in step.explain()


def test_a_step_within_its_memory_is_the_same(device: Any) -> None:
    def loss_of(x: Any) -> Any:
        for _ in range(6):
            x = ruda.cumsum(F.dropout(F.layer_norm(ruda.tanh(x)), 0.25), axis=0)
        return (x * x).sum()

    def step(x: Any) -> Any:
        return ruda.grad(loss_of)(x)

    x = ruda.asarray(np.random.default_rng(0).standard_normal((128, 1024), "f4"), device=device)
    free = ruda.compile(step)
    small = ruda.compile(step, memory=free.memory(x).peak - (1 << 20))
    # Before the other one has memory of its own.
    assert small.memory(x).exact
    for _ in range(2):
        ruda.random.manual_seed(7)
        wanted = free(x).numpy()
        ruda.random.manual_seed(7)
        np.testing.assert_array_equal(small(x).numpy(), wanted)
    assert small._all()[0].again and small._all()[0].captured is not None
