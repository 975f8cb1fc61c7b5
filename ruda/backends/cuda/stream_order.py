"""Order between streams, kept without the user's help once there is more than one.

Each block of memory has a mark: the stream that wrote it last, those that have read it since, and
the epoch of each at that time. An epoch of a stream ends when an event is recorded in it, so a
stream that has waited for an event has seen all epochs up to that one, and most operators find by
comparing two numbers that there is nothing to wait for. While a client has one stream none of this
exists: plans are bound again, with the guard around them, when the second one is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ruda.backends.cuda.capture_lock import CaptureLock


class StreamState:
    """One stream: its epoch, the event that ended the last one, what it has seen of others."""

    __slots__ = ("epoch", "event", "external", "past", "ptr", "recorded", "seen")

    def __init__(self, ptr: int, event: int) -> None:
        self.ptr = ptr
        self.event = event
        self.epoch = 1
        self.recorded = 0
        self.seen: dict[StreamState, int] = {}
        # Epochs of a capture with an event each, so that nobody waits for more than it needs.
        self.past: list[tuple[int, int]] = []
        self.external = False


class Mark:
    """Who used a block: the last writer with its epoch, and the readers since."""

    __slots__ = ("epoch", "readers", "writer")

    def __init__(self, writer: StreamState, epoch: int) -> None:
        self.writer = writer
        self.epoch = epoch
        self.readers: dict[StreamState, int] = {}


class Order:
    """The streams of one client, and the marks of its blocks by address."""

    def __init__(self, driver: Any, now: Any, main: int) -> None:
        self.driver = driver
        self.now = now
        self.main = StreamState(main, driver.new_event())
        self.states = {main: self.main}
        self.marks: dict[int, Mark] = {}
        # Whether the process uses another GPU as well: each launch then says whose it is.
        self.crowded = False
        # A capture sees every block that its operators touch.
        self.capture: Any = None
        # Other threads wait for its end.
        self.capture_lock = CaptureLock()
        # Whether what is queued is, or is about to be, part of a graph that owns all its memory.
        self.planned = False
        # Whether it is not to run at all: libraries leave their calls out.
        self.rehearsed = False
        self.spare: dict[int, list[StreamState]] = {}
        # Streams live as long as the process: a mark may name any of them.
        self.owned: list[Any] = []

    def add(self, ptr: int) -> StreamState:
        """The state of a stream, made on first sight."""
        state = self.states.get(ptr)
        if state is None:
            made = StreamState(ptr, self.driver.new_event())
            state = self.states.setdefault(ptr, made)
        return state

    def open(self, priority: int) -> StreamState:
        """A stream that nobody uses, made now if there is none."""
        spare = self.spare.setdefault(priority, [])
        if spare:
            return spare.pop()
        made = self.driver.new_stream(priority)
        self.owned.append(made)
        return self.add(int(made.ptr))

    def close(self, state: StreamState, priority: int) -> None:
        """Nobody uses a stream any more."""
        self.spare[priority].append(state)

    def current(self) -> StreamState:
        """The state of the calling thread's stream."""
        if self.crowded:
            self.driver.activate()
        return self.states[self.now.stream]

    def after(self, stream: StreamState, other: StreamState, epoch: int) -> None:
        """Let what ``stream`` gets from now on wait for ``other`` up to ``epoch``."""
        if other is stream or stream.seen.get(other, 0) >= epoch:
            return
        if self.capture is not None:
            self.capture.joins(stream, other)
        if other.recorded < epoch:
            self.end_epoch(other)
        known = (p for p in other.past if p[0] >= epoch)
        recorded, event = next(known, (other.recorded, other.event))
        self.driver.stream_wait(stream.ptr, event)
        stream.seen[other] = recorded

    def milestone(self, stream: StreamState) -> None:
        """End the epoch of a stream that is captured, with an event of its own."""
        event, epoch = self.driver.new_event(), stream.epoch
        self.driver.record(event, stream.ptr)
        stream.epoch, stream.recorded = epoch + 1, epoch
        stream.past.append((epoch, event))

    def end_epoch(self, stream: StreamState) -> None:
        """Record an event behind all that is queued in ``stream`` now."""
        epoch, stream.epoch = stream.epoch, stream.epoch + 1
        self.driver.record(stream.event, stream.ptr)
        stream.recorded = epoch

    def after_all(self, stream: StreamState, other: StreamState) -> None:
        """Let ``stream`` wait for everything that is queued in ``other`` now."""
        self.after(stream, other, other.epoch)

    def mark_of(self, address: int) -> Mark:
        """The mark of a block; one older than the second stream was made in the main one."""
        mark = self.marks.get(address)
        return self.marks.setdefault(address, Mark(self.main, 1)) if mark is None else mark

    def producer(self, handle: Any) -> StreamState:
        """The stream that wrote the memory of ``handle`` last."""
        return self.mark_of((handle.root or handle).block.address).writer

    def reads(self, handle: Any, stream: StreamState) -> None:
        """``stream`` is about to read ``handle``."""
        block = (handle.root or handle).block
        mark = self.mark_of(block.address)
        if self.capture is not None:
            self.capture.keep(block)
        if mark.writer is stream:
            # Who overwrites the block elsewhere has to wait for this as well.
            mark.epoch = stream.epoch
            return
        self.after(stream, mark.writer, mark.epoch)
        mark.readers[stream] = stream.epoch

    def writes(self, handle: Any, stream: StreamState) -> None:
        """``stream`` is about to overwrite ``handle``."""
        block = (handle.root or handle).block
        mark = self.mark_of(block.address)
        if self.capture is not None:
            self.capture.keep(block)
        self.settle(mark, stream)
        mark.writer, mark.epoch, mark.readers = stream, stream.epoch, {}

    def wrote(self, handle: Any, stream: StreamState) -> None:
        """``stream`` has made ``handle``: a fresh output, or a view of memory marked before."""
        block = (handle.root or handle).block
        mark = self.marks.get(block.address)
        if mark is not None and mark.writer is stream:
            mark.epoch = stream.epoch
        if self.capture is not None:
            self.capture.keep(block)

    def settle(self, mark: Mark, stream: StreamState) -> None:
        """Let ``stream`` wait for everyone who used a block."""
        self.after(stream, mark.writer, mark.epoch)
        for reader, epoch in list(mark.readers.items()):
            self.after(stream, reader, epoch)

    def seen_all(self, mark: Mark, stream: StreamState) -> bool:
        """Whether ``stream`` is behind everyone who used a block already."""
        users = ((mark.writer, mark.epoch), *mark.readers.items())
        return all(s is stream or stream.seen.get(s, 0) >= epoch for s, epoch in users)

    def took(self, address: int) -> None:
        """A block is handed out: wait for those who had it before, if they are elsewhere."""
        stream = self.current()
        mark = self.marks.get(address)
        if mark is not None:
            self.settle(mark, stream)
        self.marks[address] = Mark(stream, stream.epoch)

    def follows(self, marks: Sequence[Mark]) -> None:
        """The calling thread's stream waits for everyone who used the blocks of these marks."""
        stream = self.current()
        for mark in marks:
            self.settle(mark, stream)

    def gave(self, address: int) -> None:
        """A block comes back: what the current stream did with it may be of this very epoch."""
        # Garbage is collected anywhere: the device of the thread stays the one that it is.
        mark, stream = self.mark_of(address), self.states[self.now.stream]
        if mark.writer is stream:
            mark.epoch = stream.epoch

    def guarded(self, client: Any, plan: Any, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run`` of ``plan`` behind the streams that made its operands on the device."""
        places = [i for i, s in enumerate(plan.specs) if not s.weak and s.client is client]
        one, several = getattr(plan.out, "client", None) is client, isinstance(plan.out, tuple)

        def call(*handles: Any) -> Any:
            self.capture_lock.wait()
            stream = self.current()
            epoch = stream.epoch
            for i in places:
                self.reads(handles[i], stream)
            out = run(*handles)
            if one:
                self.wrote(out, stream)
            if stream.epoch != epoch:
                # Another thread ended the epoch, perhaps before the launch: it was in the new one.
                for i in places:
                    self.reads(handles[i], stream)
                for made in out if several else ():
                    self.wrote(made, stream)
            capture = self.capture
            if capture is not None and len(capture.joined) > 1 and stream in capture.joined:
                self.milestone(stream)
            return out

        call.by_body = getattr(run, "by_body", False)  # type: ignore[attr-defined]
        call.keeps = getattr(run, "keeps", False)  # type: ignore[attr-defined]
        call.parts = getattr(run, "parts", None)  # type: ignore[attr-defined]
        call.settle = getattr(run, "settle", None)  # type: ignore[attr-defined]
        call.strategy = getattr(run, "strategy", None)  # type: ignore[attr-defined]
        return call

    def start_anew(self, stream: StreamState) -> None:
        """Nothing of ``stream`` is left to wait for, and none of its events can be waited for."""
        epoch, stream.epoch = stream.epoch, stream.epoch + 1
        for other in list(self.states.values()):
            other.seen[stream] = epoch
        stream.recorded = 0
        for _, event in stream.past:
            self.driver.release_event(event)
        stream.past.clear()


def touch(order: Order, reads: Sequence[Any], writes: Sequence[Any]) -> None:
    """Declare that what the calling thread queues next reads and writes these handles."""
    order.capture_lock.wait()
    stream = order.current()
    for handle in reads:
        order.reads(handle, stream)
    for handle in writes:
        order.writes(handle, stream)
