"""Memory shown to other libraries and taken from them, with an emulated GPU on both sides."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import cuda
from ruda.core.errors import ArgumentError, DeviceError, DTypeError


class Library:
    """A tensor of another library: speaks DLPack alone, old or new, and remembers the stream."""

    def __init__(self, tensor: ruda.Tensor, version: tuple[int, int] | None = (1, 0)) -> None:
        self.tensor, self.version, self.stream = tensor, version, None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        if options and self.version is None:
            raise TypeError("no such keyword")
        self.stream = stream
        return self.tensor.__dlpack__(stream=stream, max_version=self.version)


class Interface:
    """A tensor of another library that has ``__cuda_array_interface__``."""

    def __init__(self, tensor: ruda.Tensor, **changes: Any) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__ | changes
        self.tensor = tensor


DTYPES = ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "complex128"]


@pytest.mark.parametrize("version", [(1, 0), None])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_round_trip_shares_memory(
    device: str, dtype: str, version: tuple[int, int] | None
) -> None:
    x = ruda.asarray(np.arange(12).reshape(3, 4) % 2, device=device).astype(dtype)
    for source in (x, x.T, x[1:, ::2], x[:0], x[0, 0]):
        y = ruda.from_dlpack(Library(source, version))
        assert (y.shape, y.dtype, y.device) == (source.shape, source.dtype, "cuda:0")
        if source.size:
            assert y.data_ptr() == source.data_ptr()
        np.testing.assert_array_equal(y.numpy(), source.numpy())
    z = ruda.asarray(Library(x, version))
    z.assign(True)
    assert np.all(x.numpy() == 1)
    assert ruda.asarray(Library(x, version), device="cpu").device == "cpu"
    assert ruda.from_dlpack(Library(x, version), copy=True).data_ptr() != x.data_ptr()


def test_memory_lives_as_long_as_its_consumer(device: str) -> None:
    pool = ruda.zeros(1, device=device).client.pool
    gc.collect()
    cuda.empty_cache()
    before = pool.used
    x = ruda.asarray([1.0, 2.0], device=device)
    y = ruda.from_dlpack(Library(x))
    capsule = x.__dlpack__()
    del x
    assert y.tolist() == [1, 2]
    del y
    cuda.empty_cache()
    assert pool.used > before, "the unused capsule still shows it"
    del capsule
    assert pool.used == before


def test_a_capsule_is_used_once(device: str) -> None:
    x = ruda.asarray([1.0], device=device)
    capsule = x.__dlpack__()

    class Again:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **_: Any) -> Any:
            return capsule

    assert ruda.from_dlpack(Again()).tolist() == [1]
    with pytest.raises(ArgumentError, match="already used"):
        ruda.from_dlpack(Again())


def test_streams_of_the_protocol(deferred: Any) -> None:
    x = ruda.asarray(np.arange(4, dtype="float32"), device="cuda:0") + 1
    driver, held = deferred.driver, []
    for stream, consumer in ((None, 1), (1, 1), (2, 2), (777, 777)):
        held.append(x.__dlpack__(stream=stream))
        assert any(isinstance(item, tuple) for item in driver.queues[consumer])
    x.__dlpack__(stream=-1)
    for bad in (0, -2, "side"):
        with pytest.raises(ArgumentError, match="not a stream"):
            x.__dlpack__(stream=bad)
    shown = Library(x)
    ruda.from_dlpack(shown)
    assert shown.stream == cuda.current_stream().ptr


def test_values_are_ready_in_the_consumers_stream(deferred: Any) -> None:
    side = cuda.Stream()
    with cuda.stream(side):
        x = ruda.asarray(np.arange(4, dtype="float32"), device="cuda:0") + 1
    y = ruda.from_dlpack(Library(x)) * 2
    np.testing.assert_array_equal(y.numpy(), (np.arange(4) + 1) * 2)
    z = ruda.asarray(Interface(x)) * 3
    np.testing.assert_array_equal(z.numpy(), (np.arange(4) + 1) * 3)


def test_freed_memory_waits_for_the_consumers_last_work(deferred: Any) -> None:
    x, seen = ruda.asarray([1.0], device="cuda:0"), []
    capsule = x.__dlpack__(stream=1)
    deferred.driver.queues[1].append(lambda: seen.append("their kernel"))
    del x, capsule
    (ruda.asarray([2.0], device="cuda:0") + 1).numpy()
    assert seen


def test_the_array_interface_both_ways(device: str) -> None:
    x = ruda.asarray(np.arange(12, dtype="float32").reshape(3, 4), device=device)
    facts = x.__cuda_array_interface__
    assert (facts["shape"], facts["typestr"], facts["strides"]) == ((3, 4), "<f4", None)
    assert facts["data"] == (x.data_ptr(), False)
    assert facts["stream"] == cuda.current_stream().ptr
    assert x.T.__cuda_array_interface__["strides"] == (4, 16)
    y = ruda.asarray(Interface(x.T))
    assert y.data_ptr() == x.data_ptr()
    np.testing.assert_array_equal(y.numpy(), x.numpy().T)
    shown = ruda.asarray(Interface(x, data=(x.data_ptr(), True), stream=None))
    assert (shown + 1).numpy()[0, 0] == 1
    with pytest.raises(ArgumentError, match="read-only"):
        shown.assign(0)
    assert not hasattr(ruda.asarray([1.0]), "__cuda_array_interface__")
    with pytest.raises(DTypeError, match="no type code"):
        _ = x.astype("bfloat16").__cuda_array_interface__
    with pytest.raises(ArgumentError, match="history"):
        _ = ruda.asarray([1.0], device=device).requires_grad_().__cuda_array_interface__


def test_other_devices_of_the_protocol(device: str) -> None:
    x = ruda.asarray([1.0, 2.0], device=device)
    assert x.__dlpack_device__() == (2, 0)
    on_host = x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    assert "dltensor" in repr(on_host)
    with pytest.raises(ArgumentError, match="not on that device"):
        x.__dlpack__(dl_device=(2, 3))
    with pytest.raises(ArgumentError, match="not on that device"):
        x.__dlpack__(dl_device=(1, 0), copy=False)


def test_borrowed_memory_is_let_go_after_the_work_on_it(deferred: Any) -> None:
    source = ruda.asarray([1.0, 2.0], device="cuda:0")
    y = ruda.from_dlpack(Library(source))
    z = y + 1
    used = deferred.pool.used
    del source, y
    assert deferred.pool.used == used, "it went before the work on it was done"
    assert z.tolist() == [2, 3]
    cuda.empty_cache()
    assert deferred.pool.used < used


def test_shared_handles(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ruda.cuda import ipc

    x = ruda.asarray(np.arange(6, dtype="float32").reshape(2, 3), device="cuda:0")
    handle = cuda.share_memory(x.T)
    assert handle.shape == (3, 2)
    with pytest.raises(ArgumentError, match="this process shared it"):
        cuda.open_memory(handle)
    monkeypatch.setattr(ipc.os, "getpid", lambda: handle.process + 1)
    y, z = cuda.open_memory(handle), cuda.open_memory(handle)
    np.testing.assert_array_equal(y.numpy(), x.numpy().T)
    assert deferred.driver.opened == 1
    x[0, 0] = 9.0
    assert z.numpy()[0, 0] == 9
    del y, z
    cuda.empty_cache()
    assert deferred.driver.opened == 0
    with pytest.raises(DeviceError, match="not on a GPU"):
        cuda.share_memory(ruda.asarray([1.0]))
    with pytest.raises(DeviceError, match="another library's"):
        cuda.share_memory(ruda.from_dlpack(Library(ruda.asarray(Foreign(), device="cuda:0"))))


class Foreign:
    """Memory of the emulated device that no pool knows."""

    def __init__(self) -> None:
        self.values = np.arange(3, dtype="float32")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.values.__array_interface__ | {"version": 3, "stream": None}
