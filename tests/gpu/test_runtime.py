"""Streams with long kernels, memory, staged copies and failures on a real GPU."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import cuda
from ruda.core.errors import ArgumentError, DeviceError, OutOfMemoryError

MANY = 1 << 26


@pytest.fixture(autouse=True)
def _tidy(device: str) -> Any:
    # What tests of other files have left would be counted, or freed in the middle.
    gc.collect()
    cuda.empty_cache()
    yield
    cuda.set_memory_limit(None)
    gc.collect()
    cuda.empty_cache()


def long_work(x: ruda.Tensor, steps: int = 40) -> ruda.Tensor:
    """Work of some milliseconds whose result is ``x`` plus ``steps``."""
    for _ in range(steps):
        x = x + 1.0
    return x


def test_a_late_result_is_read_elsewhere(device: str) -> None:
    side = cuda.Stream()
    x = ruda.zeros(MANY, device=device)
    for _ in range(5):
        y = long_work(x)
        with cuda.stream(side):
            z = y[:1000] * 2.0
        np.testing.assert_array_equal(z.numpy(), np.full(1000, 80, "f"))


def test_a_late_reader_is_not_overtaken_by_a_writer(device: str) -> None:
    side = cuda.Stream()
    x = ruda.zeros(MANY, device=device)
    for i in range(5):
        x.assign(float(i))
        with cuda.stream(side):
            y = long_work(x)
        x.assign(-1.0)
        assert y[::100_000].numpy().tolist() == [40.0 + i] * len(y[::100_000])


def test_memory_is_not_handed_over_early(device: str) -> None:
    side = cuda.Stream()
    for i in range(10):
        with cuda.stream(side):
            x = ruda.full((MANY,), float(i), device=device)
            y = long_work(x, 10)
            del x
        other = ruda.full((MANY,), -7.0, device=device)
        assert y[:: MANY // 7].numpy().max() == y[:: MANY // 7].numpy().min() == i + 10
        del y, other


def test_events_measure_the_device(device: str) -> None:
    start, end = cuda.Event(), cuda.Event()
    x = ruda.zeros(1 << 20, device=device)
    long_work(x, 3)
    begin = time.perf_counter()
    start.record()
    long_work(x, 300)
    end.record()
    alone = start.elapsed_time(end)
    waited = (time.perf_counter() - begin) * 1e3
    # Two clocks: that of the device is known to the microsecond.
    assert 0 < alone < 1.01 * waited + 0.1


def test_threads_train_in_streams_of_their_own(device: str) -> None:
    found: dict[int, float] = {}

    def work(i: int) -> None:
        with cuda.stream(cuda.Stream()):
            w = ruda.full((1 << 16,), float(i), device=device).requires_grad_()
            for _ in range(20):
                (w * w).sum().backward()
                with ruda.no_grad():
                    w.assign(w - w.grad * 0.25)
                w.grad = None
            found[i] = w.sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expected = {i: i * 0.5**20 * (1 << 16) for i in range(4)}
    for i, value in expected.items():
        np.testing.assert_allclose(found[i], value, rtol=1e-5)


def test_memory_is_flat_over_many_steps(device: str) -> None:
    w = ruda.ones((512, 512), device=device).requires_grad_()

    def step() -> None:
        ((w @ w) * w).sum().backward()
        w.grad = None

    step()
    gc.collect()
    gc.disable()
    try:
        used, reserved = cuda.memory_allocated(), cuda.memory_reserved()
        for _ in range(200):
            step()
        assert cuda.memory_allocated() == used
        assert cuda.memory_reserved() == reserved
    finally:
        gc.enable()


def test_running_out_again_and_again(device: str) -> None:
    cuda.set_memory_limit(cuda.memory_reserved() + (1 << 30))
    w = ruda.ones((1 << 24,), device=device).requires_grad_()
    before, failures = cuda.memory_allocated(), 0
    for _ in range(50):
        held = [w]
        try:
            while True:
                held.append(held[-1] * held[-1])
        except OutOfMemoryError as error:
            failures += "float32[16777216]" in str(error)
        del held
    assert failures == 50
    assert cuda.memory_allocated() == before
    assert (w * 2)[0].item() == 2


def test_more_than_there_is(device: str) -> None:
    total = cuda.device_properties().total_memory
    with pytest.raises(OutOfMemoryError, match="out of memory"):
        ruda.zeros(2 * total, dtype="uint8", device=device)
    assert ruda.ones(3, device=device).sum().item() == 3


def test_large_tensors_travel_whole(device: str) -> None:
    data = np.random.default_rng(0).standard_normal(50_000_000).astype("float32")
    x = ruda.asarray(data, device=device)
    np.testing.assert_array_equal(x.numpy(), data)
    np.testing.assert_array_equal(x[::-7].numpy(), data[::-7])
    a, b = ruda.read_many(x, x + 1)
    np.testing.assert_array_equal(a, data)
    np.testing.assert_array_equal(b, data + 1)


def test_an_upload_does_not_wait_for_the_device(device: str) -> None:
    x, data = ruda.zeros(MANY, device=device), np.arange(1000.0)
    ruda.asarray(data, device=device).numpy()
    shares = []
    # The host may be busy with something else once, but not each time.
    for _ in range(5):
        y = long_work(x, 400)
        begin = time.perf_counter()
        batch = ruda.asarray(data, device=device)
        sent = time.perf_counter() - begin
        cuda.synchronize()
        shares.append(sent / (time.perf_counter() - begin))
        assert batch.sum().item() == 499500
        assert y[0].item() == 400
    assert min(shares) < 0.5


def test_pinned_tensors(device: str) -> None:
    x = ruda.asarray(np.arange(10_000_000, dtype="float32")).pin_memory()
    for _ in range(3):
        y = x.to(device, non_blocking=True)
        np.testing.assert_array_equal(y[::999_983].numpy(), np.arange(0, 10_000_000, 999_983))
    assert ruda.empty((3, 4), dtype="bfloat16", pin=True).shape == (3, 4)


def test_cupy_takes_its_memory_here(device: str) -> None:
    cupy = pytest.importorskip("cupy")
    cuda.share_memory_with_cupy()
    try:
        before = cuda.memory_allocated()
        array = cupy.ones(1 << 20, dtype="float32")
        assert cuda.memory_allocated() > before
        assert float(array.sum()) == 1 << 20
        del array
        assert cuda.memory_allocated() == before
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"RUDA_MEMORY_DEBUG": "redzone"},
        {"RUDA_ALLOC_CONF": "backend:direct"},
        {"RUDA_ALLOC_CONF": "backend:async"},
        {"RUDA_LAUNCH_BLOCKING": "1"},
    ],
    ids=lambda e: next(iter(e.values())),
)
def test_a_step_under_other_settings(device: str, environment: dict[str, str]) -> None:
    code = """
import ruda
from ruda import cuda
side = cuda.Stream()
w = ruda.ones((64, 64), device="cuda").requires_grad_()
for _ in range(3):
    with cuda.stream(side):
        y = w * 2
    (y.sum(axis=0) * w).sum().backward()
cuda.synchronize()
print(w.grad.sum().item(), cuda.memory_allocated() > 0)
"""
    found = {run(code, **settings).stdout for settings in ({}, environment)}
    assert len(found) == 1, found
    assert "True" in found.pop()


def test_the_default_device_is_this_one(device: str) -> None:
    done = run("import ruda; print(ruda.ones(2).device)", RUDA_DEVICE="")
    assert done.stdout.strip() == "cuda:0", done.stderr


def test_a_broken_kernel_is_named_when_launches_block(device: str) -> None:
    code = """
import ruda
from ruda.core.errors import DeviceError
x = ruda.ones(1 << 20, device="cuda")
x.handle.address += 1 << 44
try:
    y = x + 1
    y.numpy()
except DeviceError as error:
    print(error)
"""
    blocking = run(code, RUDA_LAUNCH_BLOCKING="1").stdout
    assert blocking.startswith("add: the device failed")
    assert "<string>:7" in blocking
    told = run(code).stdout
    assert "RUDA_LAUNCH_BLOCKING=1" in told
    # Without it the kernels that were queued last.
    assert "last kernels" in told and "add_" in told


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_the_device_usable(device: str) -> None:
    code = """
import signal, threading, ruda
x = ruda.zeros(1 << 24, device="cuda")
over = threading.Event()
def interrupt():
    # Python drops an interrupt that falls into a finaliser: the next one will do.
    while not over.wait(0.3):
        signal.raise_signal(signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    while True:
        x = x + 1
except KeyboardInterrupt:
    over.set()
y = ruda.arange(10, device="cuda")
print((y * 2).sum().item())
"""
    done = run(code)
    assert done.stdout.strip() == "90", done.stderr


def test_facts_and_limits(device: str) -> None:
    assert cuda.is_available()
    assert cuda.device_count() >= 1
    assert cuda.get_device_name()
    facts = cuda.device_properties(device)
    assert facts.capability >= (7, 0)
    assert facts.multiprocessors > 0
    with pytest.raises(ArgumentError):
        cuda.set_memory_limit(2.0)
    with pytest.raises(DeviceError):
        cuda.synchronize(99)
    assert cuda.precompile(["add", "exp"], ["float32"]) == 2


def test_two_gpus(device: str) -> None:
    if cuda.device_count() < 2:
        pytest.skip("a copy between GPUs takes two of them")
    x = long_work(ruda.zeros(1 << 22, device="cuda:0"))
    y = x.to("cuda:1")
    x.assign(-1.0)
    z = y * 2
    assert z.device == "cuda:1"
    assert z[:: 1 << 18].tolist() == [80.0] * 16
    assert y[::-2].to("cuda:0").sum().item() == 40.0 * (1 << 21)
    with cuda.device(1):
        assert ruda.ones(3).device == "cuda:1"
    w = y.requires_grad_()
    (w.to("cuda:0") * 3).sum().backward()
    assert w.grad.device == "cuda:1"
    assert w.grad[5].item() == 3
