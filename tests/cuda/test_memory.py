"""The pool: classes, reuse, running out, limits, records, red zones, pools and allocators apart."""

from __future__ import annotations

import ctypes
import gc
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import cuda, nn
from ruda.backends.cuda import alloc_conf
from ruda.backends.cuda.memory import size_class
from ruda.core.errors import ArgumentError, DeviceError, OutOfMemoryError, RudaError

MIB = 1 << 20


def make(nbytes: int) -> ruda.Tensor:
    return ruda.zeros(nbytes, dtype="uint8", device="cuda:0")


def test_size_classes_waste_little() -> None:
    for nbytes in (0, 1, 512):
        assert size_class(nbytes) == 512
    for nbytes in range(513, MIB, 9973):
        assert nbytes <= size_class(nbytes) < 2 * nbytes
    for nbytes in range(40 * MIB, 200 * MIB, 7_654_321):
        assert nbytes <= size_class(nbytes) <= nbytes * 1.13
        assert nbytes <= size_class(nbytes, 2) <= nbytes * 1.6


def test_a_freed_block_serves_its_class_and_somewhat_smaller_ones(deferred: Any) -> None:
    pool, deferred.driver.dry = deferred.pool, True
    place = make(40 * MIB).data_ptr()
    assert make(36 * MIB).data_ptr() == place
    reserved = pool.reserved
    small = make(20 * MIB)
    assert small.data_ptr() != place
    assert pool.reserved > reserved
    del small
    assert pool.used == 0
    assert pool.arena.cached() >= 60 * MIB


def test_running_out_flushes_first_and_then_names_the_holders(deferred: Any) -> None:
    deferred.driver.total, deferred.driver.dry = 64 * MIB, True
    make(30 * MIB)
    make(24 * MIB)
    assert make(50 * MIB).nbytes == 50 * MIB, "cached blocks were not given back"
    cuda.record_memory()
    kept = ruda.zeros((5, MIB), dtype="float32", device="cuda:0")
    with pytest.raises(OutOfMemoryError) as caught:
        make(63 * MIB)
    text = str(caught.value)
    assert "float32[5, 1048576]" in text
    assert "test_memory.py:" in text
    assert isinstance(caught.value, MemoryError)
    deferred.driver.dry = False
    assert kept[:, :3].copy().shape == (5, 3), "the device is of no use after running out"


def test_running_out_fifty_times_leaves_nothing_behind(deferred: Any) -> None:
    deferred.driver.total, deferred.driver.dry = 64 * MIB, True
    w = ruda.ones(MIB, device="cuda:0").requires_grad_()
    gc.collect()
    before, free, found = deferred.pool.used, deferred.driver.memory()[0], []
    gc.disable()
    try:
        for _ in range(50):
            held = [w]
            try:
                while True:
                    held.append(held[-1] * held[-1])
            except OutOfMemoryError as error:
                found.append(error.__context__)
            del held
        assert found == [None] * 50
        assert deferred.pool.used == before
        cuda.empty_cache()
        assert deferred.driver.memory()[0] >= free
    finally:
        gc.enable()
    assert cuda.memory_stats()["out_of_memory"] == 50


def test_emptying_the_cache_returns_slabs_and_large_blocks(deferred: Any) -> None:
    held = [make(1000) for _ in range(10)]
    deferred.driver.dry = True
    make(8 * MIB)
    freed = cuda.empty_cache()
    assert freed >= 8 * MIB
    assert cuda.memory_reserved() == 2 * MIB, "a slab with a live block stays"
    held.clear()
    cuda.empty_cache()
    assert cuda.memory_reserved() == cuda.memory_allocated() == 0
    deferred.driver.dry = False
    assert make(1000).sum().item() == 0


def test_limits(deferred: Any) -> None:
    deferred.driver.dry = True
    cuda.set_memory_limit(16 * MIB)
    held = make(8 * MIB)
    with pytest.raises(OutOfMemoryError, match="a limit of 16,777,216"):
        make(16 * MIB)
    cuda.set_memory_limit(0.5)
    assert make(32 * MIB).nbytes + held.nbytes == 40 * MIB
    cuda.set_memory_limit(None)
    for bad in (0, -1, 1.5, 0.0, True):
        with pytest.raises(ArgumentError, match="not a limit"):
            cuda.set_memory_limit(bad)


def test_statistics_and_peaks(deferred: Any) -> None:
    deferred.driver.dry = True
    held = make(4 * MIB)
    make(8 * MIB)
    assert cuda.memory_allocated() == 4 * MIB
    assert cuda.max_memory_allocated() == 12 * MIB
    assert cuda.max_memory_reserved() == cuda.memory_reserved() == 12 * MIB
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == held.nbytes
    stats = cuda.memory_stats()
    assert stats["cached"] == 8 * MIB
    assert stats["segments"] == stats["segments_made"] == 2
    assert "peak_reserved" in cuda.memory_summary()


class Doubled(nn.Module):
    """A module that takes memory."""

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        return x + x


def test_a_snapshot_names_lines_and_modules(deferred: Any) -> None:
    x = ruda.ones((3, 5), device="cuda:0")
    [plain] = cuda.memory_snapshot()
    assert (plain.tensor, plain.line, plain.module) == ("float32[3, 5]", "", "")
    cuda.record_memory()
    y = nn.Sequential(Doubled())(x)
    entry = next(h for h in cuda.memory_snapshot() if h.address == y.data_ptr())
    assert Path(entry.line.rpartition(":")[0]).name == "test_memory.py"
    assert entry.module == "Sequential/Doubled"
    assert entry.nbytes == 512
    cuda.record_memory(False)
    assert cuda.memory_snapshot()[0].line == ""


def test_red_zones_see_a_write_outside(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cuda.emulator.deferred import deferred_client

    monkeypatch.setenv("RUDA_MEMORY_DEBUG", "redzone")
    client = deferred_client()
    block, size = client.pool.take(1000)
    client.driver.wait_all()
    assert ctypes.string_at(block, 1000) == b"\xff" * 1000
    client.synchronize()
    for at, place in ((block - 1, "before"), (block + 1000, "behind")):
        saved = ctypes.string_at(at, 1)
        ctypes.memset(at, 7, 1)
        with pytest.raises(DeviceError, match=f"{place} a block of 1,000 bytes from .*test_memory"):
            client.synchronize()
        ctypes.memmove(at, saved, 1)
        client.synchronize()
    ctypes.memset(block + 1000, 7, 1)
    client.pool.give(block, size)
    with pytest.raises(DeviceError, match="wrote outside of its memory"):
        client.synchronize()
    client.synchronize()
    assert client.pool.take(1000)[0] == block
    client.pool.take(0)


def test_pools_apart_never_mix(deferred: Any) -> None:
    common = make(1000)
    apart = cuda.MemPool()
    with cuda.use_mem_pool(apart):
        x = make(1000)
        again = make(3000)
    place = x.data_ptr()
    del x
    assert make(1000).data_ptr() != place
    with cuda.use_mem_pool(apart):
        assert make(1000).data_ptr() == place
    del apart
    held = [make(1000) for _ in range(2)]
    assert place in {t.data_ptr() for t in held}, "its free blocks did not come back"
    assert again.sum().item() == common.sum().item() == 0
    del held, again, common
    cuda.empty_cache()
    assert cuda.memory_reserved() == 0


def test_an_allocator_from_a_shared_library(deferred: Any, tmp_path: Path) -> None:
    source, library = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text(
        "#include <stdlib.h>\nint live;\n"
        "void* take(size_t n, int d, void* s) {\n"
        "    if (n > (1 << 24)) return 0;\n    ++live; return malloc(n); }\n"
        "void give(void* p, size_t n, int d, void* s) { --live; free(p); }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    before = make(100)
    cuda.empty_cache()
    cuda.use_allocator(cuda.PluggableAllocator(str(library), "take", "give"))
    live = ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "live")
    x = make(4000)
    assert live.value == 1
    assert x.sum().item() == 0
    with pytest.raises(OutOfMemoryError):
        make(32 * MIB)
    cuda.use_allocator(None)
    del x, before
    cuda.empty_cache()
    assert live.value == 0
    assert cuda.memory_reserved() == 0


def test_settings_are_read_and_checked() -> None:
    found = alloc_conf.parse("backend:async, split:0.5,rounding:4,gc_threshold:0.8")
    assert found == {"backend": "async", "split": 0.5, "rounding": 4.0, "gc_threshold": 0.8}
    assert alloc_conf.parse("") == {}
    for bad in ("blocks:3", "backend:cache", "split:2", "rounding:x"):
        with pytest.raises(ArgumentError, match="RUDA_ALLOC_CONF"):
            alloc_conf.parse(bad)


def test_the_direct_backend_keeps_nothing(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cuda.emulator.deferred import deferred_client

    monkeypatch.setenv("RUDA_CUDA_ALLOC", "backend:direct,rounding:2")
    client = deferred_client()
    assert client.pool.shift == 2
    address, size = client.pool.take(3 * MIB)
    assert client.pool.reserved == size
    client.pool.give(address, size)
    assert client.pool.reserved == client.pool.used == 0


def test_tidying_from_a_share_of_the_limit(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deferred.driver.dry = True
    deferred.pool.gc_threshold, deferred.pool.limit = 0.5, 64 * MIB
    make(20 * MIB)
    make(8 * MIB)
    assert cuda.memory_stats()["segments_freed"] == 0
    make(30 * MIB)
    assert cuda.memory_stats()["segments_freed"] == 2


def test_sending_and_reading_in_pieces(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ruda.backends.cuda import pinned

    monkeypatch.setattr(pinned, "_CHUNK", 1 << 12)
    monkeypatch.setattr(pinned, "_MOST", 1 << 15)
    data = np.arange(50_001, dtype="float32")
    x = ruda.asarray(data, device="cuda:0")
    sent = data.copy()
    data[:] = -1
    np.testing.assert_array_equal(x.numpy(), sent)
    assert deferred.staging.under_way <= 1 << 15
    np.testing.assert_array_equal(x[::-3].numpy(), sent[::-3])
    assert cuda.empty_cache() > 0
    assert not deferred.staging.pieces
    np.testing.assert_array_equal(x.numpy(), sent)


def test_pinned_tensors(deferred: Any) -> None:
    x = ruda.asarray(np.arange(6, dtype="float32").reshape(2, 3)).pin_memory()
    assert x.device == "cpu"
    assert deferred.is_pinned(x)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    y = x.to("cuda:0", non_blocking=True)
    assert deferred.driver.queues[deferred.order.main.ptr], "the copy was waited for"
    z = x.to("cuda:0")
    x.assign(-1.0)
    assert z.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert y.shape == (2, 3)
    half = ruda.empty((4, 2), dtype="bfloat16", pin=True)
    assert deferred.is_pinned(half)
    assert half.dtype == ruda.bfloat16
    assert ruda.empty((0, 3), pin=True).shape == (0, 3)
    with pytest.raises(DeviceError, match="pinned memory is the CPU's"):
        ruda.empty(3, device="cuda:0", pin=True)
    with pytest.raises(DeviceError, match="not on the CPU"):
        y.pin_memory()


def test_a_pinned_tensor_outlives_its_copy(deferred: Any) -> None:
    x = ruda.asarray(np.arange(1000, dtype="float32")).pin_memory()
    y = x.to("cuda:0", non_blocking=True)
    del x
    others = [ruda.empty(1000, pin=True).assign(-1.0) for _ in range(3)]
    np.testing.assert_array_equal(y.numpy(), np.arange(1000))
    assert others


def test_a_failing_launch_is_an_error_of_ours(deferred: Any) -> None:
    x = make(100)
    _ = x + x
    real = deferred.driver.launch

    def refuse(*_: Any) -> None:
        raise deferred.driver.errors[0]("invalid configuration")

    deferred.driver.launch = refuse
    with pytest.raises(DeviceError, match=r"multiply.*invalid configuration"):
        _ = x * x
    deferred.driver.launch = real
    assert (x + x).sum().item() == 0


def test_a_failing_device_is_an_error_of_ours(deferred: Any) -> None:
    x = make(100)

    def fail(_: int) -> None:
        raise deferred.driver.errors[0]("illegal address")

    deferred.driver.wait_event = fail
    with pytest.raises(DeviceError, match=r"illegal address.*RUDA_LAUNCH_BLOCKING=1"):
        (x + x).numpy()
    del deferred.driver.wait_event


def test_launch_blocking_names_the_operator(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = make(100)
    deferred.blocking = True
    _ = x - x
    assert not deferred.driver.queues[deferred.order.main.ptr]

    def fail(_: int) -> None:
        raise deferred.driver.errors[0]("illegal address")

    monkeypatch.setattr(deferred.driver, "wait", fail)
    with pytest.raises(DeviceError, match=r"^maximum: .*illegal address.*test_memory\.py:\d+"):
        ruda.maximum(x, x)


def test_errors_have_one_root() -> None:
    assert issubclass(OutOfMemoryError, RudaError)


def test_an_interrupted_launch_leaves_the_device_usable(deferred: Any) -> None:
    x = make(100)
    _ = x + x
    real, used = deferred.driver.launch, deferred.pool.used

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    deferred.driver.launch = interrupt
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            _ = x * x
    deferred.driver.launch = real
    gc.collect()
    assert deferred.pool.used <= used
    assert (x + 1).sum().item() == 100
