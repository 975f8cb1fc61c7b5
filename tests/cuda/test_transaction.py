"""Reads together: everything is queued before anything is waited for, in order, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda import cuda
from ruda.core.errors import ArgumentError, CaptureError, DeviceError, DTypeError


def on(n: int) -> ruda.Tensor:
    return ruda.asarray(np.arange(n, dtype="float32"), device="cuda:0")


def test_results_come_in_order_from_every_device_and_stream(deferred: Any) -> None:
    side = cuda.Stream()
    a, b = on(4) + 1, ruda.asarray([5, 6])
    with cuda.stream(side):
        c = on(3) * 2
    with ruda.transaction() as t:
        readings = [t.read(x) for x in (a, b, c, a.flip())]
    assert [r.tolist() for r in readings] == [[1, 2, 3, 4], [5, 6], [0, 2, 4], [4, 3, 2, 1]]
    assert [v.tolist() for v in t.results] == [r.tolist() for r in readings]
    assert np.asarray(readings[1]).tolist() == [5, 6]


def test_all_copies_are_queued_before_any_is_awaited(deferred: Any) -> None:
    xs, done = [on(10) + i for i in range(4)], []
    to_host, wait = deferred.driver.to_host, deferred.driver.wait_event
    deferred.driver.to_host = lambda *a: (done.append("copy"), to_host(*a))[1]
    deferred.driver.wait_event = lambda e: (done.append("wait"), wait(e))[1]
    values = ruda.read_many(*xs)
    assert done == ["copy"] * 4 + ["wait"] * 4
    for i, v in enumerate(values):
        np.testing.assert_array_equal(v, np.arange(10) + i)


def test_large_reads_are_queued_whole(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ruda.backends.cuda import pinned

    monkeypatch.setattr(pinned, "_CHUNK", 1 << 12)
    data = np.arange(20_000, dtype="float32")
    a, b = ruda.read_many(*(ruda.asarray(data, device="cuda:0") for _ in range(2)))
    np.testing.assert_array_equal(a, data)
    np.testing.assert_array_equal(b, data)


def test_a_failure_names_its_tensor(deferred: Any) -> None:
    a, b = on(4), on(7)
    wait, calls = deferred.driver.wait_event, []

    def fail(event: int) -> None:
        calls.append(event)
        if len(calls) == 2:
            raise deferred.driver.errors[0]("broken")
        wait(event)

    deferred.driver.wait_event = fail
    t = ruda.transaction()
    first, second = t.read(a), t.read(b)
    with pytest.raises(DeviceError, match=r"reading 1, of float32\[7\]@cuda:0, failed: .*broken"):
        t.__exit__(None, None, None)
    assert first.tolist() == [0, 1, 2, 3]
    with pytest.raises(ArgumentError, match="not over, or failed"):
        second.numpy()


def test_an_empty_one_is_legal() -> None:
    with ruda.transaction() as t:
        pass
    assert t.results == ruda.read_many() == []


def test_on_the_cpu() -> None:
    x = ruda.asarray([1.5, 2.5])
    with ruda.transaction() as t:
        r = t.read(x)
        with pytest.raises(ArgumentError, match="not over"):
            r.numpy()
    assert r.tolist() == [1.5, 2.5]
    with pytest.raises(ArgumentError, match="the block is over"):
        t.read(x)
    with pytest.raises(DTypeError, match="not a tensor"):
        ruda.read_many(3)  # type: ignore[arg-type]
    assert ruda.read_many(ruda.asarray(2.5, dtype="bfloat16"))[0].item() == 2.5


def test_an_error_in_the_block_is_the_users_own() -> None:
    def block() -> None:
        with ruda.transaction() as t:
            t.read(ruda.asarray(1))
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        block()


def test_a_trace_has_no_values() -> None:
    def step(x: ruda.Tensor) -> ruda.Tensor:
        ruda.read_many(x)
        return x + 1

    with pytest.raises(CaptureError):
        ruda.compile(step)(ruda.asarray([1.0]))
