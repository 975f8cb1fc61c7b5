"""Order between streams on a driver that runs nothing before it must."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import cuda
from ruda.core.errors import ArgumentError, CaptureError, DeviceError


def values(n: int = 8) -> Any:
    return np.arange(n, dtype="float32")


def test_one_stream_runs_without_guards(deferred: Any) -> None:
    x = ruda.asarray(values(), device="cuda:0")
    assert not deferred.driver.log
    y = x + 1
    assert not deferred.guarded
    assert deferred.pool.special is None
    assert not deferred.order.marks
    np.testing.assert_array_equal(y.numpy(), values() + 1)


def test_a_tensor_made_in_one_stream_is_read_in_another(deferred: Any) -> None:
    side = cuda.Stream()
    x = ruda.asarray(values(), device="cuda:0")
    y = x + 1
    with cuda.stream(side):
        z = y * 2
        assert cuda.current_stream() == side
        np.testing.assert_array_equal(z.numpy(), (values() + 1) * 2)
    assert cuda.current_stream() == cuda.default_stream() != side


def test_reading_waits_for_the_producing_stream_alone(deferred: Any) -> None:
    side = cuda.Stream()
    with cuda.stream(side):
        z = ruda.asarray(values(), device="cuda:0") * 3
    y = ruda.asarray(values(), device="cuda:0") + 1
    np.testing.assert_array_equal(z.numpy(), values() * 3)
    assert deferred.driver.queues[deferred.order.main.ptr], "the main stream was not waited for"
    np.testing.assert_array_equal(y.numpy(), values() + 1)


@pytest.mark.parametrize("several", [False, True])
def test_results_are_of_the_epoch_that_they_were_launched_in(
    deferred: Any, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, x = cuda.Stream(), ruda.asarray(values(), device="cuda:0")
    with cuda.stream(side):
        ruda.asarray(values(), device="cuda:0")
    order, launch = deferred.order, deferred.driver.launch

    def behind_another_thread(*given: Any) -> Any:
        order.end_epoch(order.main)
        return launch(*given)

    monkeypatch.setattr(deferred.driver, "launch", behind_another_thread)
    y = F.layer_norm(x) if several else x + 1
    monkeypatch.undo()
    with cuda.stream(side):
        got = (y * 2).numpy()
    wanted = (values() - 3.5) / np.sqrt(5.25 + 1e-5) if several else values() + 1
    np.testing.assert_allclose(got, 2 * wanted, rtol=1e-5)


def test_writing_waits_for_readers_elsewhere(deferred: Any) -> None:
    side = cuda.Stream()
    x = ruda.asarray(values(), device="cuda:0")
    with cuda.stream(side):
        y = x + 1
    x.assign(0.0)
    np.testing.assert_array_equal(x.numpy(), np.zeros(8))
    np.testing.assert_array_equal(y.numpy(), values() + 1)


def test_a_late_read_in_the_writing_stream_counts_as_well(deferred: Any) -> None:
    side = cuda.Stream()
    x = ruda.asarray(values(), device="cuda:0")
    with cuda.stream(side):
        first = x + 1
    late = x * 5
    with cuda.stream(side):
        x.assign(-1.0)
        np.testing.assert_array_equal(x.numpy(), np.full(8, -1))
    np.testing.assert_array_equal(late.numpy(), values() * 5)
    np.testing.assert_array_equal(first.numpy(), values() + 1)


def test_freed_memory_is_reused_elsewhere_behind_its_last_use(deferred: Any) -> None:
    side = cuda.Stream()
    x = ruda.asarray(values(), device="cuda:0")
    with cuda.stream(side):
        held = [ruda.asarray(values(), device="cuda:0") for _ in range(3)]
        y = held[0] + held[1]
        freed = {t.data_ptr() for t in held}
        deferred.pool.free[512].clear()
        del held
    taken = [x * i for i in range(3)]
    assert freed == {t.data_ptr() for t in taken}
    for i, t in enumerate(taken):
        np.testing.assert_array_equal(t.numpy(), values() * i)
    np.testing.assert_array_equal(y.numpy(), values() * 2)


def test_memory_of_the_same_stream_is_taken_without_a_wait(deferred: Any) -> None:
    side = cuda.Stream()
    mine = ruda.asarray(values(), device="cuda:0")
    with cuda.stream(side):
        other = ruda.asarray(values(), device="cuda:0")
    place = mine.data_ptr()
    del mine, other
    assert ruda.asarray(values(), device="cuda:0").data_ptr() == place


def test_waiting_again_costs_no_event(deferred: Any) -> None:
    side = cuda.Stream()
    x = ruda.asarray(values(), device="cuda:0") + 1
    with cuda.stream(side):
        _ = x * 2
        queue = deferred.driver.queues[side.ptr]
        before = sum(isinstance(item, tuple) for item in queue)
        _ = x * 2
    assert before == sum(isinstance(item, tuple) for item in queue) == 1


def test_gradients_across_streams(deferred: Any) -> None:
    side = cuda.Stream()
    x = ruda.asarray(values(), device="cuda:0").requires_grad_()
    with cuda.stream(side):
        loss = (x * x).sum()
    loss.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * values())


def test_threads_have_streams_of_their_own(deferred: Any) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    x = ruda.asarray(values(), device="cuda:0")
    found: dict[int, Any] = {}

    def work(i: int) -> None:
        with cuda.stream(cuda.Stream()):
            y = x
            for _ in range(5):
                y = y + i
            found[i] = y

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    sys.setswitchinterval(before)
    for i in range(3):
        np.testing.assert_array_equal(found[i].numpy(), values() + 5 * i)
    assert cuda.current_stream() == cuda.default_stream()


def test_events_order_and_measure(deferred: Any) -> None:
    side, start, end = cuda.Stream(), cuda.Event(), cuda.Event()
    assert start.query()
    start.record()
    end.record(side)
    assert not end.query()
    assert start.elapsed_time(end) >= 0
    assert end.query()
    assert side.query()
    with pytest.raises(ArgumentError, match="never recorded"):
        start.elapsed_time(cuda.Event())
    with pytest.raises(ArgumentError, match="no time"):
        start.elapsed_time(side.record_event())


def test_user_ordered_streams(deferred: Any) -> None:
    side, raw = cuda.Stream(), ruda.asarray(values(), device="cuda:0")
    side.wait_stream(cuda.current_stream())
    done = cuda.default_stream().record_event()
    side.wait_event(done)
    side.synchronize()
    assert done.query()
    np.testing.assert_array_equal(raw.numpy(), values())


def test_a_dropped_stream_is_used_again(deferred: Any) -> None:
    ptr = cuda.Stream().ptr
    assert cuda.Stream().ptr == ptr
    assert cuda.Stream(priority=-1).ptr != ptr


def test_external_streams_and_record_stream(deferred: Any) -> None:
    outside = cuda.ExternalStream(999)
    x = ruda.asarray(values(), device="cuda:0")
    place, seen = x.data_ptr(), []
    deferred.driver.queues[999].append(lambda: seen.append("their kernel"))
    outside.record_stream(x)
    del x
    y = ruda.asarray(values() + 1, device="cuda:0")
    if y.data_ptr() == place:
        y.numpy()
        assert seen
    with cuda.stream(outside):
        z = y + 1
    np.testing.assert_array_equal((z + 1).numpy(), values() + 3)


def test_two_gpus_exchange_copies_alone(deferred: Any) -> None:
    from ruda.backends.cuda.client import CudaClient
    from ruda.core import devices
    from tests.cuda.emulator.driver import NoMemoryLeft

    where = devices.Device("cuda", 1)
    second = devices._clients[where] = CudaClient(where, deferred.driver, NoMemoryLeft)
    try:
        for client in (deferred, second):
            client.keep_order()
            client.order.crowded = True
        x = ruda.asarray(values(), device="cuda:0") + 1
        y = x.to("cuda:1")
        z = x[::-2].to("cuda:1") * 2
        x.assign(-1.0)
        assert y.device == (y + 1).device == "cuda:1"
        np.testing.assert_array_equal(y.numpy(), values() + 1)
        np.testing.assert_array_equal(z.numpy(), (values() + 1)[::-2] * 2)
        with pytest.raises(DeviceError, match="different devices"):
            _ = x + y
        x.copy_(y)
        np.testing.assert_array_equal(x.numpy(), values() + 1)
    finally:
        del devices._clients[where]


def test_what_is_no_stream_is_refused(deferred: Any) -> None:
    with pytest.raises(DeviceError, match="not a stream"), cuda.stream(3):
        pass
    with cuda.stream(None):
        assert cuda.current_stream() == cuda.default_stream()


def test_an_error_of_the_device_names_the_last_kernels(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = ruda.asarray(np.arange(6.0), device="cuda:0")
    for _ in range(9):
        x = ruda.exp(x)
    x = ruda.cumsum(x)

    def fails() -> None:
        raise deferred.driver.errors[0]("illegal address")

    monkeypatch.setattr(deferred.driver, "wait_all", fails)
    with pytest.raises(DeviceError, match="work queued before") as caught:
        cuda.synchronize()
    assert str(caught.value.got).count("exp_") == 7
    assert "cumsum_" in str(caught.value.got)


def test_a_tensor_of_a_trace_says_so_when_streams_are_kept_in_order(deferred: Any) -> None:
    bag, place = type("Bag", (), {})(), {"name": "kept"}

    def escaping(x: Any) -> Any:
        object.__setattr__(bag, place["name"], x * 2.0)
        return x * 1.0

    x = ruda.asarray(values(), device="cuda:0")
    ruda.compile(escaping)(x)
    cuda.Stream()
    assert deferred.guarded
    with pytest.raises(CaptureError, match="belongs to a trace"):
        bag.kept + 1.0


def test_a_step_run_by_operators_waits_for_streams_that_came_later(deferred: Any) -> None:
    # Operator by operator, as launches are waited for.
    deferred.blocking = True
    step = ruda.compile(lambda x: (x * 2 + 1) * x)
    x = ruda.asarray(values(), device="cuda:0")
    for _ in range(2):
        np.testing.assert_allclose(step(x).numpy(), (values() * 2 + 1) * values())
    side = cuda.Stream()
    for _ in range(2):
        with cuda.stream(side):
            x = ruda.asarray(values() + 1, device="cuda:0")
        np.testing.assert_allclose(step(x).numpy(), (values() * 2 + 3) * (values() + 1))
    assert "one graph" not in step.explain()
