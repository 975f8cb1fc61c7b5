"""The driver of a GPU that is not there."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ruda.backends.cuda import compiler
from ruda.backends.cuda.client import CudaClient
from ruda.backends.cuda.memory import Pool
from ruda.core.devices import Device

Action = Callable[[], None]
HERE = Path(__file__).parent
_CANARY, _GUARD = 0xA5, 64
_OPTIONS = ("-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-fno-strict-aliasing", "-fpermissive")


class NoMemoryLeft(Exception):
    """More than ``EmulatedDriver.total`` bytes are asked for."""


class EmulatedFailure(Exception):
    """What the emulated driver raises where a real one would fail."""


def open_memory_event(_driver: Any, handle: bytes) -> int:
    """An event of another process, which is this one."""
    return int.from_bytes(handle, "little")


class Taken(list[Action]):
    """What a capture took down, and the memory it took: a replay writes there, whoever has it."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms: list[Any] = []


class EmulatedDriver:
    """Does at once what a real driver queues; addresses are the host's own."""

    arch = "sm_90a"
    multiprocessors = 4
    shared_memory = 227 << 10
    index = 0
    total = 1 << 30
    opened = 0
    lazy = False
    errors: tuple[type[Exception], ...] = (EmulatedFailure,)
    # A kernel's library is loaded once, whatever the drivers: its fibers are of one launch.
    _one_at_a_time = threading.Lock()

    def __init__(self) -> None:
        self.launches: list[str] = []
        self.recent: deque[str] = deque(maxlen=8)
        # Names of the ranges that were opened, and how many are open.
        self.ranges: list[str] = []
        self.depth = 0
        self._kernels: list[tuple[str, Any]] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._memory: dict[int, tuple[Any, int]] = {}
        self._pinned: dict[int, Any] = {}
        self._times: dict[int, float] = {}
        # What a capture has taken down so far, and the streams that it takes it from.
        self.graph: Taken | None = None
        self.captured: set[int] = set()
        self._sources: dict[int, tuple[str, str]] = {}
        self._layouts: dict[int, list[int]] = {}
        # The first numbers mean the streams that every library knows.
        self._streams = itertools.count(101)

    def range_begin(self, name: str) -> None:
        self.ranges.append(name)
        self.depth += 1

    def range_end(self) -> None:
        self.depth -= 1

    def kernel(self, source: str, name: str, shared: int = 0) -> int:
        """The number of a kernel, compiled as C++ and kept on disk."""
        assert shared <= self.shared_memory
        key = (name, source)
        if key not in self._numbers:
            self._kernels.append((name, built(source, name).ruda_grid))
            self._numbers[key] = len(self._kernels) - 1
            self._sources[self._numbers[key]] = source, name
        return self._numbers[key]

    def clusters(self, blocks: int) -> int:
        """Clusters that run at a time."""
        return max(1, self.multiprocessors // blocks)

    def new_event(self, timing: bool = False, shared: bool = False) -> int:
        """An event by number."""
        return next(self._streams)

    def release_event(self, event: int) -> None:
        """Nothing to give back."""

    def record(self, event: int, stream: int) -> None:
        """Everything is done already."""
        self._times[event] = time.perf_counter()

    def stream_wait(self, stream: int, event: int) -> None:
        """Everything is done already; in a capture, the stream is of the graph from now on."""
        if self.graph is not None:
            self.captured.add(stream)

    def event_done(self, event: int) -> bool:
        """Yes."""
        return True

    stream_done = event_done

    def wait_event(self, event: int) -> None:
        """As ``wait``."""
        self.wait(0)

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds between two events."""
        return (self._times[end] - self._times[start]) * 1e3

    def share_memory(self, address: int) -> bytes:
        """What the emulated other process opens it with: the address."""
        return address.to_bytes(8, "little")

    def open_memory(self, handle: bytes) -> int:
        """The memory itself: the other process is this one."""
        self.opened += 1
        return int.from_bytes(handle, "little")

    def close_memory(self, address: int) -> None:
        """One less is open."""
        self.opened -= 1

    share_event, open_event = share_memory, open_memory_event

    def properties(self) -> dict[str, Any]:
        """The facts of the device by the driver's names."""
        return {"name": b"Emulated", "major": 9, "minor": 0, "totalGlobalMem": self.total}

    def owner(self, address: int) -> int:
        """The only one."""
        return self.index

    def peer(self, other: int) -> bool:
        """There is no other."""
        return False

    def activate(self) -> None:
        """There is no other."""

    def visited(self) -> Any:
        """There is no other."""
        return contextlib.nullcontext()

    def reach(self, other: int) -> None:
        """There is no other."""

    def launch(self, kernel: int, *rest: int) -> None:
        """Run every thread of every block, or take the launch down."""
        *sizes, _shared, stream, arguments, _ = rest
        name, run = self._kernels[kernel]
        assert all(sizes), f"{name}: an empty grid {sizes}"
        kept = self._copied(kernel, arguments) if stream in self.captured else None

        def act() -> None:
            table = arguments if kept is None else ctypes.addressof(kept[0])
            with self._one_at_a_time:
                self.launches.append(name)
                run(ctypes.c_void_p(table), *sizes)

        self._queue(stream, act)

    def _queue(self, stream: int, act: Action) -> None:
        """Take down what a capture gets; do anything else now."""
        if self.graph is not None and stream in self.captured:
            self.graph.append(act)
        else:
            act()

    def _copied(self, kernel: int, arguments: int) -> tuple[Any, list[Any]]:
        """A table of arguments of its own, for a launch that comes later."""
        if kernel not in self._layouts:
            found = (ctypes.c_ulong * 512)()
            count = built(*self._sources[kernel], sized=True).ruda_sizes(found)
            self._layouts[kernel] = list(found[:count])
        sizes = self._layouts[kernel]
        places = (ctypes.c_void_p * len(sizes)).from_address(arguments)
        values = [
            ctypes.create_string_buffer(ctypes.string_at(at, n), n)
            for at, n in zip(places, sizes, strict=True)
        ]
        return (ctypes.c_void_p * len(sizes))(*map(ctypes.addressof, values)), values

    def begin_capture(self, stream: int) -> None:
        """Take down what ``stream`` gets from now on."""
        self.graph, self.captured = Taken(), {stream}

    def end_capture(self, stream: int) -> Any:
        """What was taken down."""
        made, self.graph, self.captured = self.graph, None, set()
        return made

    def abandon_capture(self, stream: int) -> None:
        """Forget what was taken down."""
        self.end_capture(stream)

    def launch_graph(self, graph: Any, stream: int) -> None:
        """Do all of it."""
        for act in graph:
            self._queue(stream, act)

    def release_graph(self, graph: Any) -> None:
        """Forget it."""
        graph.clear()

    def allocate(self, nbytes: int) -> int:
        """Memory full of NaN between two canaries."""
        if sum(n for _, n in self._memory.values()) + nbytes > self.total:
            raise NoMemoryLeft
        room = ctypes.create_string_buffer(nbytes + 4 * _GUARD)
        start = -(-(ctypes.addressof(room) + _GUARD) // _GUARD) * _GUARD
        ctypes.memset(ctypes.addressof(room), _CANARY, len(room))
        ctypes.memset(start, 0xFF, nbytes)
        self._memory[start] = (room, nbytes)
        if self.graph is not None:
            self.graph.rooms.append(room)
        return start

    def check(self, address: int) -> None:
        """Fail if anything was written just outside of an allocation."""
        nbytes = self._memory[address][1]
        guard = bytes([_CANARY]) * _GUARD
        before = ctypes.string_at(address - _GUARD, _GUARD)
        after = ctypes.string_at(address + nbytes, _GUARD)
        assert before == guard, f"written before an allocation of {nbytes} bytes"
        assert after == guard, f"written behind an allocation of {nbytes} bytes"

    def release(self, address: int) -> None:
        """Give memory back."""
        self.check(address)
        del self._memory[address]

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        return self.total - sum(n for _, n in self._memory.values()), self.total

    def is_pinned(self, address: int) -> bool:
        """Whether the host's memory there is page-locked."""
        return any(a <= address < a + len(room) for a, room in self._pinned.items())

    def allocate_host(self, nbytes: int) -> tuple[int, int]:
        """Memory that the host and the emulated device see at one address."""
        room = ctypes.create_string_buffer(nbytes + _GUARD)
        start = -(-ctypes.addressof(room) // _GUARD) * _GUARD
        self._pinned[start] = room
        return start, start

    def release_host(self, address: int) -> None:
        """Give it back."""
        del self._pinned[address]

    def new_stream(self, priority: int | None = None) -> Any:
        """A stream by number."""
        return SimpleNamespace(ptr=next(self._streams), use=lambda: None)

    def to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy now, or when a graph is launched."""
        self._queue(stream, lambda: ctypes.memmove(target, source, nbytes) and None)

    to_host = on_device = to_device

    def from_peer(self, target: int, source: int, nbytes: int, stream: int, other: int) -> None:
        """A copy between GPUs that are both this machine."""
        self.on_device(target, source, nbytes, stream)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Fill now, or when a graph is launched."""
        self._queue(stream, lambda: ctypes.memset(address, byte, nbytes) and None)

    def wait(self, stream: int) -> None:
        """Nothing is queued: look whether all canaries stand."""
        for address in list(self._memory):
            self.check(address)

    def wait_all(self) -> None:
        """As ``wait``."""
        self.wait(0)


class EmulatedPool(Pool):
    """A pool that keeps nothing, so that each tensor has canaries of its own."""

    def take(self, nbytes: int) -> tuple[int, int]:
        """Memory of exactly this size."""
        self.used += nbytes
        return self.driver.allocate(nbytes), nbytes

    def give(self, address: int, size: int) -> None:
        """Back to the driver at once, unless a graph that is being captured may touch it."""
        if self.special is not None and self.special.capturing:
            self.special.order.capture.hold(address, size)
            return
        self.used -= size
        self.driver.release(address)


def emulated_client() -> CudaClient:
    """A CUDA client on the emulated driver."""
    client = CudaClient(Device("cuda", 0), EmulatedDriver(), NoMemoryLeft)
    client.pool = EmulatedPool(client.driver, NoMemoryLeft)
    return client


_SIZES = (
    "template <class... A> int sizes_of(void (*)(A...), unsigned long* out) {{\n"
    "    const unsigned long sizes[] = {{sizeof(A)..., 0}};\n"
    "    for (unsigned i = 0; i < sizeof...(A); ++i) out[i] = sizes[i];\n"
    "    return sizeof...(A);\n}}\n"
    'extern "C" int ruda_sizes(unsigned long* out) {{ return sizes_of({0}, out); }}\n'
)


def built(source: str, name: str, sized: bool = False) -> Any:
    """The library with the kernel ``name`` of ``source``; compiled once for all processes.

    ``sized`` adds a function that tells the sizes of the kernel's parameters.
    """
    inside = f"in_{name}::" if f"namespace in_{name} " in source else ""
    included = compiler.headers_of(source)
    clusters = "ruda/clusters.cuh" in included
    grid, size = ("grid_of_clusters", "CLUSTER, ") if clusters else ("grid", "")
    text = (
        f'#include "host.h"\n{source}\n'
        f"static void ruda_body(void** p) {{ emulated::invoke({inside}{name}, p); }}\n"
        'extern "C" void ruda_grid(void** p, unsigned a, unsigned b, unsigned c, unsigned x,'
        f" unsigned y, unsigned z) {{ emulated::{grid}(ruda_body, p, {size}a, b, c, x, y, z); }}\n"
    )
    text += _SIZES.format(inside + name) if sized else ""
    headers = [compiler.header(h) for h in sorted(included)]
    twins = sorted({"ruda/clusters.cuh", "ruda/doubles.cuh"} & set(included))
    own = [(HERE / n).read_text() for n in ("host.h", "ruda/ptx.cuh", *twins)]
    key = hashlib.sha256("\0".join([text, *headers, *own]).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"ruda-emulated-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    library = folder / f"{key}.so"
    if not library.exists():
        _compile(text, name, library)
    return ctypes.CDLL(str(library))


@functools.cache
def _precompiled(folder: Path) -> Path:
    """A folder with the headers that nearly all kernels have, compiled: it halves the time."""
    parts = [(HERE / n).read_text() for n in ("host.h", "ruda/ptx.cuh")]
    parts += [compiler.header(h) for h in sorted(compiler.headers_of('#include "ruda/math.cuh"'))]
    place = folder / f"headers-{hashlib.sha256(''.join(parts).encode()).hexdigest()[:24]}"
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            (made / "host.h").write_text(f'#include "{HERE}/host.h"\n#include "ruda/math.cuh"\n')
            command = ["g++", *_OPTIONS, f"-I{HERE}", f"-I{compiler.INCLUDE}", "-x", "c++-header"]
            command += [str(made / "host.h"), "-o", str(made / "host.h.gch")]
            subprocess.run(command, check=True, capture_output=True)
            # Another process may have been quicker; its folder is as good.
            with contextlib.suppress(OSError):
                made.rename(place)
    return place


def _compile(text: str, name: str, library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        source, result = Path(scratch) / f"{name[:80]}.cpp", Path(scratch) / "out.so"
        source.write_text(text)
        includes = [f"-I{_precompiled(library.parent)}", f"-I{HERE}", f"-I{compiler.INCLUDE}"]
        command = ["g++", *_OPTIONS, *includes, str(source), "-o", str(result)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # Below 0 is a signal: on a busy machine the compiler may be killed for want of memory.
        ended = f"{name} does not compile as C++ (status {done.returncode}):\n{done.stderr[:4000]}"
        assert done.returncode == 0, ended
        os.replace(result, library)
