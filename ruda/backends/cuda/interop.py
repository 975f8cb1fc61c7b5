"""Memory that other libraries see or own: in whose stream it is ready, and when it is let go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.memory import Borrowed, Pool, allocate, handle_over
from ruda.backends.cuda.pinned import Staging
from ruda.backends.cuda.stream_order import Order
from ruda.core.errors import ArgumentError
from ruda.core.spec import Spec

LEGACY, PER_THREAD = 1, 2


def _after(driver: Any, stream: int, other: Any, its: int) -> None:
    """Let ``stream`` of one device wait for what is queued in a stream of another."""
    event = other.new_event()
    other.record(event, its)
    driver.stream_wait(stream, event)
    other.release_event(event)


class Interop:
    """The part of ``CudaClient`` that meets other libraries."""

    driver: Any
    now: Any
    pool: Pool
    order: Order
    staging: Staging
    guarded: bool
    faults: Any
    check_open: Callable[[str], None]

    def queue_of(self, handle: Any) -> int:
        """The stream in which the values of ``handle`` are made."""
        return self.order.producer(handle).ptr if self.guarded else int(self.now.stream)

    def lend(self, handle: Any, stream: Any) -> int:
        """Make ``handle`` ready in a consumer's stream, as DLPack numbers streams; returns it.

        None and 1 are the legacy default stream, 2 that of the thread, -1 asks for no order.
        """
        if stream is not None and (not isinstance(stream, int) or stream == 0 or stream < -1):
            expected = "None, -1, 1, 2 or the handle of a stream"
            raise ArgumentError("__dlpack__", "not a stream", stream, expected)
        consumer = LEGACY if stream is None else stream
        if consumer != -1:
            self.follow(consumer, self.queue_of(handle))
        return consumer

    def follow(self, stream: int, other: int) -> None:
        """Let ``stream`` wait for all that is queued in ``other`` now; either may be foreign."""
        if stream == other:
            return
        # The numbers that every library knows mean streams of the current device.
        with self.driver.visited():
            event = self.driver.new_event()
            self.driver.record(event, other)
            self.driver.stream_wait(stream, event)
            self.driver.release_event(event)

    def from_peer(self, plan: Any) -> Callable[..., Any]:
        """A copy from another GPU, in order with both; by way of the host where there is no other.

        The driver finds the way; see ``can_access_peer``.
        """
        source, out, nbytes = plan.specs[0], plan.out, plan.out.nbytes
        other: Any = source.client
        index = other.device.index
        self.driver.reach(index)

        def run(h: Any) -> Any:
            what = "a tensor is copied between GPUs"
            for client in (self, other):
                capture = client.order.capture
                if capture is not None and capture.thread == threading.get_ident():
                    capture.refuse(what)
            # Those of other threads are waited for, by who has none.
            for client in (self, other):
                client.check_open(what)
            if not nbytes:
                return allocate(self.pool, out)
            if not source.contiguous:
                h = other.dense_copy(source, h)
            # With one stream there everything before and behind the copy is in that one.
            stream = other.order.producer(h) if other.guarded else other.order.main
            if other.guarded:
                other.order.reads(h, stream)
            target, here = allocate(self.pool, out), self.now.stream
            _after(self.driver, here, other.driver, stream.ptr)
            self.driver.from_peer(target.address, h.address, nbytes, here, index)
            # Its memory is not to be changed or handed out before the copy has read it.
            _after(other.driver, stream.ptr, self.driver, here)
            if other.guarded:
                # Another thread may have ended the epoch in which it was read.
                other.order.reads(h, stream)
            self.faults.follow(other.faults)
            return target

        return run

    def await_stream(self, stream: int | None) -> None:
        """Let the current stream wait for a producer's; None: it says that it is ready."""
        if stream is not None:
            self.follow(self.now.stream, stream)

    def returned(self, handle: Any, stream: int) -> None:
        """A consumer lets go of ``handle``, perhaps with work on it still queued in ``stream``."""
        if stream in (LEGACY, PER_THREAD) and self.order.capture is None:
            state = self.order.add(stream)
            if self.guarded:
                with self.driver.visited():
                    self.order.reads(handle, state)
                    self.order.end_epoch(state)
            else:
                self.follow(self.order.main.ptr, stream)
        elif stream != -1 and self.order.capture is None:
            # The stream may be gone by now, so nothing but the device can be waited for.
            self.driver.wait_all()

    def borrow(self, address: int, spec: Spec, owner: Any, read_only: bool = False) -> Any:
        """A base handle over memory of another library, ready in the current stream."""
        block = Borrowed(self, address, owner, read_only)
        if self.guarded:
            self.order.took(address)
        return handle_over(block, address, spec)

    def let_go(self, block: Borrowed) -> None:
        """Keep the owner of borrowed memory until what was queued on it here is done."""
        owner, capture = block.owner, self.order.capture
        if capture is not None:
            capture.slots.append(owner)
            return
        stream = self.order.main
        mark = self.order.marks.pop(block.address, None)
        if mark is not None:
            with self.driver.visited():
                self.order.settle(mark, stream)
        self.staging.keep(stream.ptr, owner)

    def check_writable(self, handle: Any) -> None:
        """Raise ``ArgumentError`` for memory that its owner shows for reading alone."""
        block = (handle.root or handle).block
        if block.__class__ is Borrowed and block.read_only:
            what = "the memory is another library's, and read-only"
            raise ArgumentError("assign", what, hint="x.copy()")
