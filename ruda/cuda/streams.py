"""Streams and events.

Work of one stream runs in order, work of several at the same time. What one stream makes may be
used in another without further ado: ruda lets the second wait for the first where memory is shared,
and hands freed memory to another stream only behind its last use. An external stream is known to
ruda only while it is current, so memory that others use in it is declared with ``record_stream``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ruda.core.errors import ArgumentError, DeviceError, DTypeError
from ruda.cuda.devices import gpu
from ruda.tensor.tensor import RudaTensor


class Stream:
    """A queue of a GPU's work; ``priority`` -1 goes before 0 where both have work.

    >>> if ruda.cuda.is_available():
    ...     side = ruda.cuda.Stream()
    ...     with ruda.cuda.stream(side):
    ...         x = ruda.ones(3, device="cuda")
    ...     (x + 1).sum().item()
    """

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self._client = gpu(device)
        self._client.keep_order()
        self._priority: int | None = priority
        self._state = self._client.order.open(priority)

    @classmethod
    def _of(cls, client: Any, state: Any) -> Stream:
        out = object.__new__(cls)
        out._client, out._state, out._priority = client, state, None
        return out

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # A stream is never destroyed, since marks of memory may name it: it is used again.
        if not ending() and getattr(self, "_priority", None) is not None:
            self._client.order.close(self._state, self._priority)

    @property
    def ptr(self) -> int:
        """The stream's handle, for other libraries."""
        return int(self._state.ptr)

    cuda_stream = ptr

    @property
    def device(self) -> Any:
        """The GPU whose work is queued here."""
        return self._client.device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._state is self._state

    def __hash__(self) -> int:
        return hash(self._state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.device}, {self.ptr:#x})"

    def synchronize(self) -> None:
        """Wait for all that is queued here."""
        self._client.wait(self.ptr)

    def query(self) -> bool:
        """Whether all that was queued here is done."""
        self._client.check_open("a stream is asked whether it is done")
        with self._client.failures():
            return bool(self._client.driver.stream_done(self.ptr))

    def wait_stream(self, other: Stream) -> None:
        """Let what is queued here from now on wait for all that is queued in ``other`` now."""
        if other._client is not self._client:
            other.record_event().wait(self)
            return
        self._client.order.after_all(self._state, other._state)

    def wait_event(self, event: Event) -> None:
        """Let what is queued here from now on wait for ``event``."""
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """``event``, or a new one, behind all that is queued here now."""
        event = Event(enable_timing=False, device=self.device) if event is None else event
        event.record(self)
        return event


class ExternalStream(Stream):
    """A stream of another library by its handle; it must live as long as this object."""

    def __init__(self, ptr: int, device: Any = None) -> None:
        self._client = gpu(device)
        self._client.keep_order()
        self._priority = None
        self._state = self._client.order.add(ptr)
        self._state.external = True

    def record_stream(self, x: RudaTensor) -> None:
        """Say that work queued here by others uses ``x``: its memory is not handed out before."""
        if x.__class__ is not RudaTensor:
            raise DTypeError("record_stream", "not a tensor", type(x).__name__)
        order = self._client.order
        order.reads(x.handle, self._state)
        order.end_epoch(self._state)


class Event:
    """A point in a stream, to wait for or to measure time between.

    >>> if ruda.cuda.is_available():
    ...     start, end = ruda.cuda.Event(), ruda.cuda.Event()
    ...     start.record(); end.record(); end.synchronize()
    ...     start.elapsed_time(end) >= 0
    """

    def __init__(self, enable_timing: bool = True, device: Any = None) -> None:
        self._client = gpu(device)
        self._timing = enable_timing
        self._recorded = False
        self._event = self._client.driver.new_event(timing=enable_timing)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending() and hasattr(self, "_event"):
            self._client.driver.release_event(self._event)

    def record(self, stream: Stream | None = None) -> None:
        """Happen after all that is queued in ``stream`` (None: the current one) now."""
        if stream is not None and stream._client is not self._client:
            what, hint = "an event of another GPU", "Event(device=stream.device)"
            got = f"an event of {self._client.device} in a stream of {stream.device}"
            raise DeviceError("record", what, got, hint=hint)
        ptr = self._client.now.stream if stream is None else stream.ptr
        with self._client.failures("event"):
            self._client.driver.record(self._event, ptr)
        self._recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let what is queued in ``stream`` (None: the current one) from now on wait for this."""
        if not self._recorded:
            return
        client = self._client if stream is None else stream._client
        ptr = client.now.stream if stream is None else stream.ptr
        with client.failures("event"):
            client.driver.stream_wait(ptr, self._event)

    def query(self) -> bool:
        """Whether it has happened; an event that was never recorded has."""
        self._client.check_open("an event is asked whether it has happened")
        with self._client.failures():
            return not self._recorded or bool(self._client.driver.event_done(self._event))

    def synchronize(self) -> None:
        """Wait for it."""
        self._client.check_open("an event is waited for")
        if self._recorded:
            with self._client.failures():
                self._client.driver.wait_event(self._event)
            self._client.settle()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to ``end``; both recorded, and both over."""
        for event in (self, end):
            if not event._timing or not event._recorded:
                what = "has no time" if event._recorded else "was never recorded"
                hint = "Event(enable_timing=True) and record()"
                raise ArgumentError("elapsed_time", f"an event {what}", hint=hint)
        if end._client is not self._client:
            got = f"{self._client.device} and {end._client.device}"
            raise DeviceError("elapsed_time", "events of two GPUs have no common clock", got)
        self.synchronize()
        end.synchronize()
        return float(self._client.driver.elapsed(self._event, end._event))


@contextmanager
def stream(where: Stream | None) -> Iterator[None]:
    """Queue the calling thread's work in ``where`` in the block; None changes nothing."""
    if where is None:
        yield
        return
    if not isinstance(where, Stream):
        raise DeviceError("stream", "not a stream", type(where).__name__, "ruda.cuda.Stream()")
    client, state = where._client, where._state
    with client.on(state):
        try:
            yield
        finally:
            if state.external and client.order.capture is None:
                # Its owner may destroy it, so later waits must find an event that exists.
                client.order.end_epoch(state)


def current_stream(device: Any = None) -> Stream:
    """The stream that the calling thread's work is queued in."""
    client = gpu(device)
    return Stream._of(client, client.order.current())


def default_stream(device: Any = None) -> Stream:
    """The stream that work is queued in where nobody says otherwise."""
    client = gpu(device)
    return Stream._of(client, client.order.main)
