"""The memory of a GPU: how much is used and by whom, limits, pools, the user's allocators."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ruda.backends.cuda import snapshot
from ruda.backends.cuda.snapshot import Holder
from ruda.core.errors import ArgumentError, CaptureError
from ruda.cuda.devices import gpu


def memory_allocated(device: Any = None) -> int:
    """Bytes of the blocks that are in use."""
    return int(gpu(device).pool.used)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in use at a time, since ``reset_peak_memory_stats``."""
    return int(gpu(device).pool.peak)


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the driver, in use or cached."""
    return int(gpu(device).pool.reserved)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were taken from the driver, since ``reset_peak_memory_stats``."""
    return int(gpu(device).pool.peak_reserved)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks start from what is in use now."""
    pool = gpu(device).pool
    pool.peak, pool.peak_reserved = pool.used, pool.reserved


reset_peak = reset_peak_memory_stats


def memory_stats(device: Any = None) -> dict[str, int]:
    """The counters of the pool: bytes in use, reserved and cached, peaks, and how often what."""
    return dict(gpu(device).pool.statistics())


def memory_summary(device: Any = None) -> str:
    """The counters and the largest holders as text."""
    client = gpu(device)
    lines = [f"memory of {client.device}"]
    lines += [f"  {name:<16} {value:>18,}" for name, value in memory_stats(device).items()]
    lines += ["largest holders", *(f"  {text}" for text in snapshot.largest(client.pool, 10))]
    return "\n".join(lines)


def record_memory(enabled: bool = True, device: Any = None) -> None:
    """Note the Python line and the running modules for each block that is taken from now on."""
    guards = gpu(device).guards
    guards.records = enabled
    if not enabled:
        guards.origins.clear()


def memory_snapshot(device: Any = None) -> list[Holder]:
    """The live blocks, the largest first: address, bytes, dtype and shape.

    With ``record_memory`` on, also the line that asked for it and the modules around that.
    """
    return list(snapshot.holders(gpu(device).pool))


def empty_cache(device: Any = None) -> int:
    """Give cached memory back to the driver, page-locked memory as well; returns the bytes."""
    client = gpu(device)
    client.check_open("the cache is emptied")
    return int(client.pool.release()) + int(client.staging.release())


def set_memory_limit(limit: float | None, device: Any = None) -> None:
    """Take at most ``limit`` from the driver: bytes, or a fraction of the GPU's; None: no limit.

    Beyond it an operator raises ``OutOfMemoryError``, as on a smaller GPU.
    """
    client = gpu(device)
    if limit is None:
        client.pool.limit = None
        return
    is_share = isinstance(limit, float) and 0 < limit <= 1
    if isinstance(limit, bool) or not (is_share or (isinstance(limit, int) and limit > 0)):
        expected = "bytes as an int, or a fraction above 0 and up to 1.0 as a float"
        raise ArgumentError("set_memory_limit", "not a limit", limit, expected)
    client.pool.limit = int(limit * client.driver.memory()[1]) if is_share else int(limit)


class MemPool:
    """Memory apart from the common pool's: a block of one is never handed out from the other."""

    def __init__(self, device: Any = None) -> None:
        self._client = gpu(device)
        self._arena = self._client.guards.open()
        self._graphs: list[weakref.ref[Any]] = []
        self._last: Any = None

    def join(self, graph: Any) -> None:
        """Note a graph that lives on this memory."""
        self._graphs.append(weakref.ref(graph))

    def check_turn(self, graph: Any) -> None:
        """Raise ``CaptureError`` unless ``graph`` may be replayed now.

        Graphs of one pool overwrite each other's memory, so their order is that of their captures.
        """
        living = [g for g in (ref() for ref in self._graphs) if g is not None]
        place = living.index(graph)
        turn = living.index(self._last) + 1 if self._last in living else 0
        if place not in (0, turn):
            what = "graphs that share a pool are replayed in the order of their captures"
            raise CaptureError("graph", what, f"number {place}", f"number {turn}, or 0 again")
        self._last = graph

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending() and hasattr(self, "_arena"):
            self._client.guards.close(self._arena)


@contextmanager
def use_mem_pool(pool: MemPool) -> Iterator[None]:
    """Take the memory of the calling thread's new tensors from ``pool`` in the block."""
    local = pool._client.guards.local
    before, local.arena = local.arena, pool._arena
    try:
        yield
    finally:
        local.arena = before


class PluggableAllocator:
    """An allocator from a shared library: ``void* alloc(size, device, stream)``, ``free`` likewise.

    C signatures: ``void* alloc(size_t size, int device, void* stream)`` and
    ``void free(void* address, size_t size, int device, void* stream)``; a null pointer means that
    there is no memory left. ruda asks for whole segments and divides them itself.
    """

    def __init__(self, path: str, alloc: str, free: str) -> None:
        library = ctypes.CDLL(path)
        self._alloc, self._free = getattr(library, alloc), getattr(library, free)
        self._alloc.restype = ctypes.c_void_p
        self._alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self._free.restype = None
        self._free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]


class _Source:
    """A ``PluggableAllocator`` as a source of segments for one client."""

    def __init__(self, client: Any, allocator: PluggableAllocator) -> None:
        self.client, self.allocator = client, allocator
        self.sizes: dict[int, int] = {}

    def allocate(self, nbytes: int) -> int:
        where = self.client.device.index, self.client.now.stream
        address = self.allocator._alloc(nbytes, *where)
        if not address:
            raise self.client.pool.out_of_memory
        self.sizes[address] = nbytes
        return int(address)

    def release(self, address: int) -> None:
        where = self.client.device.index, self.client.now.stream
        self.allocator._free(address, self.sizes.pop(address), *where)


def use_allocator(allocator: PluggableAllocator | None, device: Any = None) -> None:
    """Take segments from ``allocator`` from now on; None: from the driver again.

    What was taken before goes back to where it came from.
    """
    client = gpu(device)
    client.pool.source = client.driver if allocator is None else _Source(client, allocator)


def share_memory_with_cupy(device: Any = None) -> None:
    """Let CuPy take its memory from ruda's pool, so that neither caches what the other needs."""
    client = gpu(device)
    client.driver.lend_to_cupy(client.pool)
