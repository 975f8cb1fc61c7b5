"""A step on the GPU that finds no memory, or is interrupted: what has happened, and what not."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
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


def _decoding() -> tuple[Any, Any, Any]:
    """A step that writes into a cache and reads it, then takes memory; the cache, and a count."""
    cache = nn.KVCache(1, 8, heads=1, head_dim=4, device="cuda:0")
    calls = ruda.zeros((), device="cuda:0")

    def step(x: Any) -> Any:
        with ruda.no_grad():
            calls.assign(calls + 1.0)
            keys, values = cache.append(x, x * 0.5)
            return (keys * values).sum(axis=-1), ruda.exp(keys).sum(axis=-1)

    return step, cache, calls


def test_places_that_a_broken_first_call_has_written_are_not_counted(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eager code that breaks off there has written them as well, and counted them."""
    eager, wanted, _ = _decoding()
    function, cache, calls = _decoding()
    step, pool = ruda.compile(function), Exhausted(monkeypatch, deferred.pool)
    x, written = ruda.arange(1.0, 5.0, device="cuda:0").reshape((1, 1, 1, 4)), 0
    for block in range(1, 40):
        pool.left = block
        try:
            step(x)
        except OutOfMemoryError:
            pool.left = 0
            versions = [t.handle.version for t in (cache.key, cache.value, cache.position, calls)]
            assert (cache.position.item(), calls.item(), versions) == (0, 0.0, [0] * 4)
            assert not cache.key.numpy()[:, :, 1:].any()
            written += bool(cache.key.numpy().any())
        else:
            break
    assert written, "no call has broken off behind the writes"
    pool.left = 0
    eager(x)
    for i in range(1, 4):
        for got, want in zip(step(x * i), eager(x * i), strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())
    np.testing.assert_array_equal(cache.key.numpy(), wanted.key.numpy())
    assert cache.position.item() == calls.item() == 4


def test_want_of_memory_that_can_be_foreseen_leaves_places_as_they_were(deferred: Any) -> None:
    """Eager code that breaks off there has written them."""
    place = ruda.asarray(np.array([1]), device="cuda:0")
    x, pool = ruda.ones((), device="cuda:0"), deferred.pool

    def made() -> tuple[Any, Any]:
        cache = ruda.ones((4, 4), device="cuda:0")

        def step(x: Any) -> Any:
            with ruda.no_grad():
                cache[place] = cache[place] * 0.5
                return ruda.broadcast_to(x * cache.sum(), (1 << 19,)) + 1.0

        return step, cache

    (eager, there), (function, cache) = made(), made()
    compiled = ruda.compile(function)
    cache.numpy()
    pool.limit = pool.reserved + (1 << 20)
    try:
        with pytest.raises(OutOfMemoryError, match="the device is out of memory"):
            eager(x)
        with pytest.raises(OutOfMemoryError, match="behind its first writes into state"):
            compiled(x)
    finally:
        pool.limit = None
    assert (there.numpy()[1, 0], cache.numpy()[1, 0]) == (0.5, 1.0)
    for _ in range(3):
        found = compiled(x)
    assert cache.numpy()[1, 0] == 0.125 and found[0].item() == 13.5
    assert "replayed as one graph" in compiled.explain()


def test_an_interrupt_in_a_first_call_is_heard_when_all_has_happened(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, cache, calls = _decoding()
    step, real, armed = ruda.compile(function), Pool.take, [True]

    def take(pool: Pool, nbytes: int) -> tuple[int, int]:
        if armed and cache.key.numpy().any():
            # The cache is written, and there is more to do.
            armed.clear()
            signal.raise_signal(signal.SIGINT)
        return real(pool, nbytes)

    monkeypatch.setattr(deferred.pool, "plain", False)
    monkeypatch.setattr(Pool, "take", take)
    x = ruda.ones((1, 1, 1, 4), device="cuda:0")
    with pytest.raises(KeyboardInterrupt):
        step(x)
    for count in range(1, 4):
        rows = cache.key.numpy().any(axis=-1).sum()
        versions = (t.handle.version for t in (cache.key, cache.value, cache.position, calls))
        assert {cache.position.item(), calls.item(), rows, *versions} == {count}
        step(x)
    assert "replayed as one graph" in step.explain()
