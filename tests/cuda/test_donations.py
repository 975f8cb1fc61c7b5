"""Results in the memory of their operands: the same numbers, and less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F


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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("classes", [333, 512])
def test_the_gradient_of_logits_lies_where_the_logits_lay(
    device: Any, dtype: str, classes: int
) -> None:
    x, target = logits(device, 200, classes, dtype)

    def step(x: Any, target: Any) -> Any:
        x = x.detach().requires_grad_()
        # The sort is one more operator, no elementwise one: what it makes dies with the loss.
        made = ruda.sort(x, axis=-1)
        loss = F.cross_entropy(made, target)
        loss.backward()
        return loss, x.grad

    out, program = twice(step, x, target)
    assert any("cross_entropy_backward" in op for op in given(program)), given(program)
    for found, wanted in zip(out, step(x, target), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())


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
