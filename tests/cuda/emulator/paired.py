"""Two emulated GPUs of one process, which mind whose memory, streams and kernels are whose.

A thread has a current device. What a real driver refuses where that is the wrong one fails here,
as does a kernel that is given memory of the other GPU.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from ruda.backends.cuda import multi_device
from ruda.backends.cuda.client import CudaClient
from ruda.core.devices import Device
from tests.cuda.emulator.deferred import DeferredDriver, Token
from tests.cuda.emulator.driver import EmulatedFailure, NoMemoryLeft

# Where the numbers of a GPU's kernels begin.
_KERNELS = 1 << 20
# The last of the numbers that every library knows a stream by.
_PER_THREAD = 2


class Host:
    """What the GPUs of one process have in common."""

    def __init__(self) -> None:
        self.current = threading.local()
        self.numbers = itertools.count(101)
        self.owners: dict[int, int] = {}
        self.queues: defaultdict[int, deque[Any]] = defaultdict(deque)
        self.last: dict[int, Token] = {}
        self.drivers: list[PairedDriver] = []
        # Threads queue side by side; what is queued runs one after the other.
        self.turn = threading.RLock()


class PairedDriver(DeferredDriver):
    """One of the GPUs of a ``Host``."""

    # Whether each reads the memory of the other.
    peers = False
    crowded = False

    def __init__(self, host: Host, index: int) -> None:
        super().__init__()
        self.host, self.index = host, index
        self.queues, self.last = host.queues, host.last
        self.reached: set[int] = set()
        self.copies: list[tuple[int, int]] = []
        host.drivers.append(self)

    @property
    def here(self) -> int:
        """The device of the calling thread."""
        return getattr(self.host.current, "index", 0)

    def activate(self) -> None:
        self.host.current.index = self.index

    @contextlib.contextmanager
    def visited(self) -> Iterator[None]:
        before = self.here
        self.activate()
        try:
            yield
        finally:
            self.host.current.index = before

    def owner(self, address: int) -> int:
        return next(d.index for d in self.host.drivers if d.holds(address))

    def peer(self, other: int) -> bool:
        return self.peers and other != self.index

    def reach(self, other: int) -> None:
        self.reached.add(other)

    def require(self, what: str) -> None:
        """Fail unless this is the device of the calling thread."""
        if self.here != self.index:
            raise EmulatedFailure(f"{what} of cuda:{self.index} while cuda:{self.here} is current")

    def _own(self, what: str, number: int) -> None:
        owner = self.host.owners.get(number, self.index)
        if owner != self.index:
            raise EmulatedFailure(f"{what} of cuda:{owner} for cuda:{self.index}")

    def _new(self) -> int:
        number = next(self.host.numbers)
        self.host.owners[number] = self.index
        return number

    def new_event(self, timing: bool = False, shared: bool = False) -> int:
        return self._new()

    def new_stream(self, priority: int | None = None) -> Any:
        made = super().new_stream(priority)
        made.ptr = self._new()
        return made

    def kernel(self, source: str, name: str, shared: int = 0) -> int:
        self.activate()
        with self.host.turn:
            return super().kernel(source, name, shared) + _KERNELS * self.index

    def launch(self, kernel: int, *rest: int) -> None:
        self.require("a kernel")
        if kernel // _KERNELS != self.index:
            raise EmulatedFailure(f"a kernel of cuda:{kernel // _KERNELS} for cuda:{self.index}")
        self._own("a stream", rest[-3])
        super().launch(kernel % _KERNELS, *rest)

    def _copied(self, kernel: int, arguments: int) -> tuple[Any, list[Any]]:
        table, values = super()._copied(kernel, arguments)
        for value in values:
            for start in range(0, len(value) - 7, 8):
                self._reach(int.from_bytes(value.raw[start : start + 8], "little"))
        return table, values

    def _reach(self, address: int) -> None:
        """Fail for an address in the memory of another GPU."""
        for other in self.host.drivers:
            if other is not self and other.holds(address):
                what = f"a kernel of cuda:{self.index} is given memory of cuda:{other.index}"
                raise EmulatedFailure(what)

    def holds(self, address: int) -> bool:
        """Whether ``address`` lies in this GPU's memory."""
        return any(a <= address < a + n for a, (_, n) in list(self._memory.items()))

    def _check_place(self, address: int, nbytes: int) -> None:
        if nbytes and not self.holds(address):
            raise EmulatedFailure(f"{address:#x} is no memory of cuda:{self.index}")

    def allocate(self, nbytes: int) -> int:
        self.activate()
        return super().allocate(nbytes)

    def allocate_host(self, nbytes: int) -> tuple[int, int]:
        return super().allocate_host(nbytes)

    def memory(self) -> tuple[int, int]:
        return super().memory()

    def is_pinned(self, address: int) -> bool:
        drivers = self.host.drivers
        return any(super(PairedDriver, each).is_pinned(address) for each in drivers)

    def _known(self, stream: int) -> int:
        """``stream``, or the one of the current device that every library knows by that number."""
        if stream > _PER_THREAD:
            return stream
        self.require("a default stream")
        return stream + 10 * self.index

    def record(self, event: int, stream: int) -> None:
        stream = self._known(stream)
        self._own("an event", event)
        self._own("a stream", stream)
        super().record(event, stream)

    def stream_wait(self, stream: int, event: int) -> None:
        stream = self._known(stream)
        self._own("a stream", stream)
        token = self.last.get(event)
        if token is not None and token.captured and self.host.owners[event] != self.index:
            raise EmulatedFailure("a capture reaches another GPU")
        super().stream_wait(stream, event)

    def elapsed(self, start: int, end: int) -> float:
        self._own("an event", start)
        self._own("an event", end)
        return super().elapsed(start, end)

    def to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._check_place(target, nbytes)
        super().to_device(target, source, nbytes, stream)

    def to_host(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._check_place(source, nbytes)
        super().to_host(target, source, nbytes, stream)

    def on_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._check_place(target, nbytes)
        self._check_place(source, nbytes)
        DeferredDriver.to_host(self, target, source, nbytes, stream)

    def from_peer(self, target: int, source: int, nbytes: int, stream: int, other: int) -> None:
        self._check_place(target, nbytes)
        self.host.drivers[other]._check_place(source, nbytes)
        if stream in self.captured:
            raise EmulatedFailure("a copy between GPUs in a capture")
        self.copies.append((other, nbytes))
        DeferredDriver.to_host(self, target, source, nbytes, stream)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        self.activate()
        self._own("a stream", stream)
        self._check_place(address, nbytes)
        super().fill(address, byte, nbytes, stream)

    def begin_capture(self, stream: int) -> None:
        self._own("a stream", stream)
        super().begin_capture(stream)

    def _run(self, stream: int, until: Token | None = None) -> None:
        with self.host.turn:
            super()._run(stream, until)

    def end_capture(self, stream: int) -> Any:
        for event, token in self.last.items():
            token.stale |= token.captured and self.host.owners[event] == self.index
        self.activate()
        made, self.graph, self.captured = self.graph, None, set()
        return made

    def launch_graph(self, graph: Any, stream: int) -> None:
        if self.crowded:
            self.activate()
        self.require("a graph")
        self._own("a stream", stream)
        super().launch_graph(graph, stream)

    def wait_all(self) -> None:
        if self.graph is not None:
            raise EmulatedFailure("waiting for the device in a capture")
        for stream in sorted(self.queues, reverse=True):
            if self.host.owners.get(stream) == self.index:
                self._run(stream)
        for address in list(self._memory):
            self.check(address)


def paired_clients(count: int = 2) -> Sequence[CudaClient]:
    """The clients of several GPUs, which know of each other."""
    host = Host()
    made = [
        CudaClient(Device("cuda", i), PairedDriver(host, i), NoMemoryLeft) for i in range(count)
    ]
    multi_device.tell(made)
    return made
