"""What this backend asks of the driver for one device, in one class.

Tests put another driver in its place that runs kernels on the CPU, so nothing else here may call
CuPy or cuda-python; libraries (cuBLAS and the like) are the exception, each in its own module.
Of CuPy it is the functions of the driver and the runtime alone, which need nothing else of it: all
of CuPy takes 0.15 s to import.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from cupy_backends.cuda.api import driver, runtime

from ruda.backends.cuda import (
    batch_compile,
    cache,
    dependent_launch,
    multi_device,
    resident_clusters,
)
from ruda.backends.cuda.bindings import binding
from ruda.backends.cuda.client import CudaClient
from ruda.backends.cuda.memory import Block
from ruda.core.devices import Device
from ruda.core.errors import DeviceError

_MAJOR, _MINOR, _MULTIPROCESSORS, _SHARED, _KILOHERTZ = 75, 76, 16, 97, 13
_MOST_SHARED, _WIDE_CLUSTERS = 8, 14
# In the source of kernels whose clusters are larger than all devices have them.
_WIDE = "__cluster_dims__(1, 1, 16)"
# Kernels that an error of the device names.
RECENT = 8
_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3
_NO_MEMORY, _NOT_READY, _REACHED_ALREADY = 2, 600, 704


class OutOfDeviceMemory(Exception):
    """The driver has no memory left; any other failure keeps its own class."""


class _Stream:
    """A stream by its number ``ptr``; destroyed with this object, but not at exit."""

    def __init__(self, priority: int) -> None:
        self.ptr = int(runtime.streamCreateWithPriority(runtime.streamNonBlocking, priority))
        weakref.finalize(self, runtime.streamDestroy, self.ptr).atexit = False


class Driver:
    """One device: its facts, its memory, its streams, its kernels.

    Addresses, streams and kernels are integers. ``launch(kernel, gx, gy, gz, bx, by, bz, shared,
    stream, arguments, 0)`` is the driver's own function, without a layer of ours: ``arguments`` is
    the address of a table of addresses, one for each parameter.
    """

    launch = staticmethod(driver.launchKernel)
    # A kernel is compiled when it is first launched: most operators of a compiled step never are.
    lazy = True
    # Whether the process uses another GPU as well.
    crowded = False
    # Whether kernels of a graph begin before those ahead of them are over.
    chains = True
    errors: tuple[type[Exception], ...] = (
        runtime.CUDARuntimeError,
        driver.CUDADriverError,
        dependent_launch.DependentLaunchError,
    )

    def __init__(self, device: Device) -> None:
        self.index = device.index
        runtime.setDevice(device.index)
        major, minor = self._fact(_MAJOR), self._fact(_MINOR)
        self.arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
        self.multiprocessors = self._fact(_MULTIPROCESSORS)
        self.shared_memory = self._fact(_SHARED)
        # The names of the last kernels: when the device fails, one of them may be why.
        self.recent: deque[str] = deque(maxlen=RECENT)
        # By source, which may hold several kernels; and the kernels, by name and source.
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        # Kernels that wait by themselves for those ahead of them; before sm_90 the wait is nothing.
        self._may_chain = major >= 9
        self._waiting: set[int] = set()
        # The devices whose memory this one reads by itself.
        self._reached: set[int] = set()
        # The most dynamic shared memory that each kernel was asked for, beyond what all may have.
        self._most_shared: dict[int, int] = {}
        self._clusters: dict[int, int] = {}

    def _fact(self, number: int) -> int:
        return int(runtime.deviceGetAttribute(number, self.index))

    @property
    def hertz(self) -> int:
        """The highest clock of the multiprocessors."""
        return 1000 * self._fact(_KILOHERTZ)

    def kernel(self, source: str, name: str, shared: int = 0) -> int:
        """The kernel ``name`` of ``source``, compiled and loaded once.

        ``shared`` is its dynamic shared memory in bytes. Where that and what the kernel declares
        are beyond 48 KiB the driver wants to be told: it is, as soon as that may be.
        """
        found = self._functions.get((name, source))
        if found is None:
            self.activate()
            module = self._modules.get(source)
            if module is None:
                module = driver.moduleLoadData(cache.cubin(source, name, self.arch))
                module = self._modules.setdefault(source, module)
            found = self._functions[name, source] = driver.moduleGetFunction(module, name)
            if _WIDE in source:
                driver.funcSetAttribute(int(found), _WIDE_CLUSTERS, 1)
            if self._may_chain and dependent_launch.waits(source):
                self._waiting.add(int(found))
        function = int(found)
        # A launch of an older plan may want more than the newest one.
        if shared > self._most_shared.get(function, 8 << 10):
            driver.funcSetAttribute(function, _MOST_SHARED, shared)
            self._most_shared[function] = shared
        return function

    def clusters(self, blocks: int) -> int:
        """Clusters of ``blocks`` that run at a time, where each has its multiprocessors alone."""
        found = self._clusters.get(blocks)
        if found is None:
            kernel = self.kernel(*resident_clusters.probe(blocks), self.shared_memory)
            with self.visited():
                found = resident_clusters.count(kernel, blocks, self.shared_memory)
            self._clusters[blocks] = found
        return found

    @staticmethod
    def range_begin(name: str) -> None:
        """Open a range for profilers, in the calling thread."""
        from cupy.cuda import nvtx

        nvtx.RangePush(name)

    @staticmethod
    def range_end() -> None:
        """Close the range that was opened last."""
        from cupy.cuda import nvtx

        nvtx.RangePop()

    def lacks(self, source: str, name: str) -> bool:
        """Whether a kernel would have to be compiled: it is neither loaded nor on disk."""
        return source not in self._modules and cache.find(source, name, self.arch) is None

    def load_all(self, wanted: Sequence[tuple[str, str]]) -> None:
        """Have kernels, each a (source, name), ready at once, compiled in few programs."""
        missing = [(source, name) for source, name in wanted if source not in self._modules]
        for found in batch_compile.loadable(missing, self.arch) if missing else ():
            self.activate()
            module = driver.moduleLoadData(found.code)
            for source, _ in found.kernels:
                self._modules.setdefault(source, module)

    def allocate(self, nbytes: int) -> int:
        """Fresh memory of the device; raises ``OutOfDeviceMemory`` when there is none left."""
        self.activate()
        try:
            return int(runtime.malloc(nbytes))
        except runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
        raise OutOfDeviceMemory

    def release(self, address: int) -> None:
        """Give memory back; waits for the device."""
        runtime.free(address)

    def allocate_ordered(self, nbytes: int, stream: int) -> int:
        """As ``allocate``, from the driver's own pool and in the order of ``stream``."""
        try:
            return int(runtime.mallocAsync(nbytes, stream))
        except runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
        raise OutOfDeviceMemory

    def release_ordered(self, address: int, stream: int) -> None:
        """Give memory of ``allocate_ordered`` back in the order of ``stream``."""
        runtime.freeAsync(address, stream)

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and bytes in all."""
        with self.visited():
            free, total = runtime.memGetInfo()
        return int(free), int(total)

    def allocate_host(self, nbytes: int) -> tuple[int, int]:
        """Page-locked memory that the device sees: its address on the host and on the device."""
        flags = runtime.hostAllocMapped | runtime.hostAllocPortable
        with self.visited():
            host = int(runtime.hostAlloc(nbytes, flags))
            return host, int(runtime.pointerGetAttributes(host).devicePointer)

    def release_host(self, address: int) -> None:
        """Give page-locked memory back by its address on the host; waits for the device."""
        runtime.freeHost(address)

    def new_stream(self, priority: int | None = None) -> Any:
        """A stream that does not wait for the legacy default stream; ``ptr`` is its number."""
        with self.visited():
            return _Stream(priority or 0)

    def to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy from the host's memory."""
        runtime.memcpyAsync(target, source, nbytes, _TO_DEVICE, stream)

    def to_host(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy to the host's memory."""
        runtime.memcpyAsync(target, source, nbytes, _TO_HOST, stream)

    def on_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy within the device."""
        runtime.memcpyAsync(target, source, nbytes, _ON_DEVICE, stream)

    def from_peer(self, target: int, source: int, nbytes: int, stream: int, other: int) -> None:
        """Queue a copy from the memory of the GPU with the index ``other``."""
        runtime.memcpyPeerAsync(target, self.index, source, other, nbytes, stream)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Queue setting bytes."""
        self.activate()
        runtime.memsetAsync(address, byte, nbytes, stream)

    def wait(self, stream: int) -> None:
        """Wait for all that is queued in ``stream``."""
        runtime.streamSynchronize(stream)

    def wait_all(self) -> None:
        """Wait for all that is queued on the device."""
        with self.visited():
            runtime.deviceSynchronize()

    def stream_done(self, stream: int) -> bool:
        """Whether nothing is left to do in ``stream``."""
        return self._ready(runtime.streamQuery, stream)

    def _ready(self, query: Any, number: int) -> bool:
        status = query(number)
        if status not in (0, _NOT_READY):
            raise runtime.CUDARuntimeError(status)
        return bool(status == 0)

    def new_event(self, timing: bool = False, shared: bool = False) -> int:
        """An event: one that measures time, or one for other processes, or one that only orders."""
        flags = 0 if timing else runtime.eventDisableTiming
        with self.visited():
            return int(runtime.eventCreateWithFlags(flags | shared * runtime.eventInterprocess))

    def release_event(self, event: int) -> None:
        """Give an event back; waits that are queued on it still count."""
        runtime.eventDestroy(event)

    def record(self, event: int, stream: int) -> None:
        """Let ``event`` happen after all that is queued in ``stream`` now."""
        runtime.eventRecord(event, stream)

    def stream_wait(self, stream: int, event: int) -> None:
        """Hold what is queued in ``stream`` from now on until ``event`` has happened."""
        runtime.streamWaitEvent(stream, event)

    def event_done(self, event: int) -> bool:
        """Whether ``event`` has happened."""
        return self._ready(runtime.eventQuery, event)

    def wait_event(self, event: int) -> None:
        """Wait on the host for ``event``."""
        runtime.eventSynchronize(event)

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds between two events that measure time."""
        return float(runtime.eventElapsedTime(start, end))

    def begin_capture(self, stream: int) -> None:
        """Record what is queued in ``stream`` from now on instead of running it.

        Relaxed: allocations are allowed, and other threads go on working.
        """
        runtime.streamBeginCapture(stream, runtime.streamCaptureModeRelaxed)

    def end_capture(self, stream: int) -> tuple[int, int]:
        """The graph that was recorded, and that graph made ready to launch."""
        self.activate()
        graph = int(runtime.streamEndCapture(stream))
        try:
            if self.chains:
                dependent_launch.chain(graph, self._waiting)
            return graph, int(runtime.graphInstantiate(graph))
        except self.errors:
            runtime.graphDestroy(graph)
            raise

    def abandon_capture(self, stream: int) -> None:
        """End a capture whose graph nobody wants."""
        try:
            graph = int(runtime.streamEndCapture(stream))
        except runtime.CUDARuntimeError:
            # An invalidated capture has no graph; ending it is what frees the stream.
            return
        if graph:
            runtime.graphDestroy(graph)

    def launch_graph(self, graph: tuple[int, int], stream: int) -> None:
        """Queue all of a graph."""
        if self.crowded:
            self.activate()
        runtime.graphLaunch(graph[1], stream)

    def release_graph(self, graph: tuple[int, int]) -> None:
        """Give a graph back."""
        runtime.graphExecDestroy(graph[1])
        runtime.graphDestroy(graph[0])

    def share_memory(self, address: int) -> bytes:
        """What another process opens the allocation at ``address`` with."""
        return bytes(runtime.ipcGetMemHandle(address))

    def open_memory(self, handle: bytes) -> int:
        """The address here of an allocation of another process."""
        with self.visited():
            return int(runtime.ipcOpenMemHandle(handle, runtime.cudaIpcMemLazyEnablePeerAccess))

    def close_memory(self, address: int) -> None:
        """Let go of another process' allocation."""
        runtime.ipcCloseMemHandle(address)

    def share_event(self, event: int) -> bytes:
        """What another process opens ``event`` with."""
        return bytes(runtime.ipcGetEventHandle(event))

    def open_event(self, handle: bytes) -> int:
        """An event of another process."""
        with self.visited():
            return int(runtime.ipcOpenEventHandle(handle))

    def properties(self) -> dict[str, Any]:
        """The facts of the device by the driver's names."""
        return dict(runtime.getDeviceProperties(self.index))

    @staticmethod
    def owner(address: int) -> int:
        """The index of the device whose memory ``address`` lies in."""
        return int(runtime.pointerGetAttributes(address).device)

    def peer(self, other: int) -> bool:
        """Whether this device reads the memory of ``other`` directly."""
        return bool(runtime.deviceCanAccessPeer(self.index, other))

    def reach(self, other: int) -> None:
        """Let this device read the memory of ``other`` itself, where it can."""
        if other in self._reached or not self.peer(other):
            return
        with self.visited():
            try:
                runtime.deviceEnablePeerAccess(other)
            except runtime.CUDARuntimeError as error:
                if error.status != _REACHED_ALREADY:
                    raise
        self._reached.add(other)

    def lend_to_cupy(self, pool: Any) -> None:
        """Let CuPy take its memory of this device from ``pool``."""
        from cupy.cuda import MemoryPointer, UnownedMemory, get_allocator, set_allocator

        others = get_allocator()

        def lend(nbytes: int) -> Any:
            # CuPy has one allocator for all devices, and asks it for memory of the current one.
            if runtime.getDevice() != self.index:
                return others(nbytes)
            address, size = pool.take(nbytes)
            block = Block()
            block.pool, block.address, block.size = pool, address, size
            memory = UnownedMemory(block.address, block.size, block, self.index)
            return MemoryPointer(memory, 0)

        set_allocator(lend)

    def activate(self) -> None:
        """Make this the device of the calling thread."""
        runtime.setDevice(self.index)

    @contextlib.contextmanager
    def visited(self) -> Iterator[None]:
        """Make this the device of the calling thread in the block alone.

        Garbage is collected anywhere, so what ends objects leaves the device as it was.
        """
        before = runtime.getDevice()
        if before == self.index:
            yield
            return
        runtime.setDevice(self.index)
        try:
            yield
        finally:
            runtime.setDevice(before)


def make(device: Device) -> CudaClient:
    """The client of ``device``; raises ``DeviceError`` when the machine has no such GPU."""
    with contextlib.suppress(ImportError):
        # Sooner or later something multiplies, which says if it fails: now the context is made.
        binding("cublasLt")
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise DeviceError("device", f"no usable GPU ({error})", device, hint='"cpu"') from None
    if device.index >= count:
        raise DeviceError("device", "no such GPU", device, f"cuda:0 to cuda:{count - 1}")
    return multi_device.join(lambda: CudaClient(device, Driver(device), OutOfDeviceMemory))
