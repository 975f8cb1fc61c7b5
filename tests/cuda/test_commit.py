"""A step on the GPU that finds no memory for what it returns has not happened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import optim
from ruda.backends.cuda.memory import Pool
from ruda.core.errors import OutOfMemoryError


class Exhausted:
    """Makes the pool refuse the block of a certain number from now on, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pool: Pool) -> None:
        self.left = 0
        real = Pool.take

        def take(pool: Pool, nbytes: int) -> tuple[int, int]:
            self.left -= 1
            if self.left == 0:
                raise OutOfMemoryError("test", "nothing left")
            return real(pool, nbytes)

        monkeypatch.setattr(pool, "plain", False)
        monkeypatch.setattr(Pool, "take", take)


@pytest.mark.parametrize("begins", [0, 1])
def test_state_is_as_it_was_where_there_is_no_memory_for_results(
    deferred: Any, monkeypatch: pytest.MonkeyPatch, begins: int
) -> None:
    """In the first call, operator by operator, as in a replay of the graph."""

    def made() -> tuple[Any, Any, Any]:
        generator = ruda.random.Generator(5)
        weight = ruda.ones((8,), device="cuda:0").requires_grad_()
        opt = optim.SGD([weight], lr=0.1, momentum=0.9)

        def step(x: Any) -> Any:
            kept = F.dropout(x * weight, 0.5, generator=generator)
            loss = (kept * kept).sum()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss, kept.detach()

        return step, weight, generator

    x = ruda.asarray(np.arange(8.0, dtype="f"), device="cuda:0")
    eager, wanted, _ = made()
    function, weight, generator = made()
    step, pool = ruda.compile(function), Exhausted(monkeypatch, deferred.pool)
    for call in range(4):
        before = weight.numpy().copy(), weight.handle.version, generator.draw
        for block in range(1, 3 + 5 * (not call)) if call >= begins else ():
            pool.left = block
            with pytest.raises(OutOfMemoryError, match="nothing left"):
                step(x)
            np.testing.assert_array_equal(weight.numpy(), before[0])
            assert (weight.handle.version, generator.draw) == before[1:]
        pool.left = 0
        loss, kept = step(x)
        for got, want in zip((loss, kept, weight), (*eager(x), wanted), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
    assert "replayed as one graph" in step.explain()
