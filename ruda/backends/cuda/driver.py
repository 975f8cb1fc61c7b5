"""What this backend asks of the driver for one device, in one class.

Tests put another driver in its place that runs kernels on the CPU, so nothing else here may call
CuPy or cuda-python; libraries (cuBLAS and the like) are the exception, each in its own module.
"""

from __future__ import annotations

from typing import Any

from cupy.cuda import Stream, driver, runtime

from ruda.backends.cuda import cache
from ruda.backends.cuda.client import CudaClient
from ruda.core.devices import Device
from ruda.core.errors import DeviceError

_MAJOR, _MINOR, _MULTIPROCESSORS, _SHARED = 75, 76, 16, 97
_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3


class Driver:
    """One device: its facts, its memory, its streams, its kernels.

    Addresses, streams and kernels are integers. ``launch(kernel, gx, gy, gz, bx, by, bz, shared,
    stream, arguments, 0)`` is the driver's own function, without a layer of ours: ``arguments`` is
    the address of a table of addresses, one for each parameter.
    """

    launch = staticmethod(driver.launchKernel)

    def __init__(self, device: Device) -> None:
        self.index = device.index
        runtime.setDevice(device.index)
        major, minor = self._fact(_MAJOR), self._fact(_MINOR)
        self.arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
        self.multiprocessors = self._fact(_MULTIPROCESSORS)
        self.shared_memory = self._fact(_SHARED)
        self._modules: dict[tuple[str, str], Any] = {}

    def _fact(self, number: int) -> int:
        return int(runtime.deviceGetAttribute(number, self.index))

    def kernel(self, source: str, name: str, shared: int = 0) -> int:
        """The kernel ``name`` of ``source``, compiled and loaded once.

        ``shared`` is its dynamic shared memory in bytes; beyond 48 KiB the driver wants to be told.
        """
        found = self._modules.get((name, source))
        if found is None:
            module = driver.moduleLoadData(cache.cubin(source, name, self.arch))
            found = self._modules[name, source] = (module, driver.moduleGetFunction(module, name))
        if shared > 48 << 10:
            driver.funcSetAttribute(found[1], 8, shared)
        return int(found[1])

    def allocate(self, nbytes: int) -> int:
        """Fresh memory of the device; raises what CuPy raises."""
        return int(runtime.malloc(nbytes))

    def release(self, address: int) -> None:
        """Give memory back; waits for the device."""
        runtime.free(address)

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and bytes in all."""
        free, total = runtime.memGetInfo()
        return int(free), int(total)

    def allocate_host(self, nbytes: int) -> tuple[int, int]:
        """Page-locked memory that the device sees: its address on the host and on the device."""
        host = int(runtime.hostAlloc(nbytes, runtime.hostAllocMapped | runtime.hostAllocPortable))
        return host, int(runtime.pointerGetAttributes(host).devicePointer)

    def release_host(self, address: int) -> None:
        """Give page-locked memory back by its address on the host; waits for the device."""
        runtime.freeHost(address)

    def new_stream(self) -> Any:
        """A stream that does not wait for the legacy default stream; ``ptr`` is its number."""
        return Stream(non_blocking=True)

    def to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy from the host's memory."""
        runtime.memcpyAsync(target, source, nbytes, _TO_DEVICE, stream)

    def to_host(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy to the host's memory."""
        runtime.memcpyAsync(target, source, nbytes, _TO_HOST, stream)

    def on_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy within the device."""
        runtime.memcpyAsync(target, source, nbytes, _ON_DEVICE, stream)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Queue setting bytes."""
        runtime.memsetAsync(address, byte, nbytes, stream)

    def wait(self, stream: int) -> None:
        """Wait for all that is queued in ``stream``."""
        runtime.streamSynchronize(stream)

    def wait_all(self) -> None:
        """Wait for all that is queued on the device."""
        runtime.deviceSynchronize()


def make(device: Device) -> CudaClient:
    """The client of ``device``; raises ``DeviceError`` when the machine has no such GPU."""
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise DeviceError("device", f"no usable GPU ({error})", device, hint='"cpu"') from None
    if device.index >= count:
        raise DeviceError("device", "no such GPU", device, f"cuda:0 to cuda:{count - 1}")
    return CudaClient(device, Driver(device), runtime.CUDARuntimeError)
