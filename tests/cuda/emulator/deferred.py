"""An emulated driver that does nothing before it must, and then in the least welcome order.

Each stream is a queue. Waiting for one runs that queue alone, and of others only what an event asks
for; so work that nobody ordered really runs too late, or reads what is not there yet. A capture
takes down what is queued, as a list that can be queued again and again.
"""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict, deque
from typing import Any

from ruda.backends.cuda.client import CudaClient
from ruda.core.devices import Device
from tests.cuda.emulator.driver import EmulatedDriver, EmulatedFailure, NoMemoryLeft, built


class Token:
    """One record of an event."""

    def __init__(self, stream: int, captured: bool) -> None:
        self.stream, self.captured, self.happened = stream, captured, False
        # Of a capture that is over: nobody can wait for it any more.
        self.stale = False


class DeferredDriver(EmulatedDriver):
    """Queues instead of doing; ``log`` says in which order things happened.

    A ``dry`` one never runs a kernel, for tests that are about memory alone.
    """

    dry = False

    def __init__(self) -> None:
        super().__init__()
        self.queues: defaultdict[int, deque[Any]] = defaultdict(deque)
        self.last: dict[int, Token] = {}
        self.log: list[str] = []
        self.ordered: set[int] = set()
        # Fibers are of one thread at a time.
        self.turn = threading.RLock()

    def kernel(self, source: str, name: str, shared: int = 0) -> int:
        assert shared <= self.shared_memory
        key = (name, source)
        if key not in self._numbers:
            library, found = built(source, name, sized=True), (ctypes.c_ulong * 512)()
            self._kernels.append((name, library.ruda_grid))
            self._numbers[key] = number = len(self._kernels) - 1
            self._layouts[number] = list(found[: library.ruda_sizes(found)])
        return self._numbers[key]

    def launch(self, kernel: int, *rest: int) -> None:
        *sizes, _shared, stream, arguments, _ = rest
        block = self._copied(kernel, arguments)
        name, run = self._kernels[kernel]

        def act() -> None:
            self.log.append(name)
            if self.dry:
                return
            run(ctypes.c_void_p(ctypes.addressof(block[0])), *sizes)

        self._queue(stream, act)

    def _queue(self, stream: int, act: Any) -> None:
        if self.graph is not None and stream in self.captured:
            self.graph.append(act)
        else:
            self.queues[stream].append(act)

    def to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        if self.is_pinned(source):
            self._queue(stream, lambda: ctypes.memmove(target, source, nbytes) and None)
            return
        if stream in self.captured:
            raise EmulatedFailure("a copy from pageable memory in a capture")
        values = ctypes.string_at(source, nbytes)
        self._queue(stream, lambda: ctypes.memmove(target, values, nbytes) and None)

    def to_host(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._queue(stream, lambda: ctypes.memmove(target, source, nbytes) and None)

    on_device = to_host

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        self._queue(stream, lambda: ctypes.memset(address, byte, nbytes) and None)

    def record(self, event: int, stream: int) -> None:
        super().record(event, stream)
        token = self.last[event] = Token(stream, stream in self.captured)
        if not token.captured:
            self.queues[stream].append(token)

    def stream_wait(self, stream: int, event: int) -> None:
        token = self.last.get(event)
        if token is None:
            return
        if token.stale:
            raise EmulatedFailure("waiting for an event of a capture that is over")
        if token.captured:
            self.captured.add(stream)
        elif stream in self.captured:
            raise EmulatedFailure("a capture depends on work outside of it")
        else:
            self.queues[stream].append(("wait", token))

    def _run(self, stream: int, until: Token | None = None) -> None:
        with self.turn:
            self._run_in_turn(stream, until)

    def _run_in_turn(self, stream: int, until: Token | None) -> None:
        queue = self.queues[stream]
        while queue and not (until is not None and until.happened):
            item = queue.popleft()
            if isinstance(item, Token):
                item.happened = True
            elif isinstance(item, tuple):
                if not item[1].happened:
                    self._run(item[1].stream, item[1])
            else:
                item()

    def end_capture(self, stream: int) -> Any:
        for token in self.last.values():
            token.stale = token.captured
        return super().end_capture(stream)

    def _check_open(self, stream: int) -> None:
        # What is not captured may be waited for: captures are relaxed.
        if stream in self.captured:
            raise EmulatedFailure("waiting for a stream in a capture")

    def stream_done(self, stream: int) -> bool:
        self._check_open(stream)
        return not self.queues[stream]

    def _asked(self, event: int) -> Token | None:
        token = self.last.get(event)
        if token is not None and token.captured:
            raise EmulatedFailure("an event of a capture is asked for")
        return token

    def event_done(self, event: int) -> bool:
        token = self._asked(event)
        return token is None or token.happened

    def wait_event(self, event: int) -> None:
        token = self._asked(event)
        if token is not None and not token.happened:
            self._run(token.stream, token)
        super().wait(0)

    def wait(self, stream: int) -> None:
        self._check_open(stream)
        self._run(stream)
        super().wait(stream)

    def wait_all(self) -> None:
        if self.graph is not None:
            raise EmulatedFailure("waiting for the device in a capture")
        for stream in sorted(self.queues, reverse=True):
            self._run(stream)
        super().wait(0)

    def release(self, address: int) -> None:
        assert address not in self.ordered, "memory of the ordered pool is given back in order"
        self.wait_all()
        super().release(address)

    def allocate_ordered(self, nbytes: int, stream: int) -> int:
        address = self.allocate(nbytes)
        self.ordered.add(address)
        return address

    def release_ordered(self, address: int, stream: int) -> None:
        self.ordered.remove(address)
        self._queue(stream, lambda: EmulatedDriver.release(self, address))


def deferred_client() -> CudaClient:
    """A CUDA client on the deferred driver, with a pool that keeps memory as a real one does."""
    return CudaClient(Device("cuda", 0), DeferredDriver(), NoMemoryLeft)
