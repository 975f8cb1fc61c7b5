"""Graphs: work recorded once and queued again as a whole, with memory of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.capture import Capture
from ruda.backends.cuda.memory import Arena
from ruda.core.errors import CaptureError
from ruda.tensor.dispatch import clear_plans


class Home:
    """Memory for one graph, which the common pool gets once the graph is gone."""

    def __init__(self, guards: Any, memory: Any = None) -> None:
        self.guards = guards
        self.memory = guards.open(memory)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self.guards.close(self.memory)


class CapturedGraph:
    """What a capture has recorded; the memory that it touches lives as long as it does."""

    def __init__(self, client: Any, capture: Capture, executable: Any) -> None:
        self.client = client
        self.executable = executable
        self.blocks = list(capture.blocks.values())
        self.places = capture.places
        self.held = capture.held
        self.slots = capture.slots
        self.arena = capture.arena
        self.arena.graphs += 1
        # What keeps the memory of a compiled step's intermediates, if it is one.
        self.home: Any = None

    def replay(self) -> None:
        """Queue all of it in the calling thread's stream."""
        client, order = self.client, self.client.order
        order.capture_lock.wait()
        if order.capture is not None:
            order.capture.refuse("another graph is replayed")
        if client.guarded:
            stream = order.current()
            for address in self.places:
                mark = order.mark_of(address)
                order.settle(mark, stream)
                mark.writer, mark.epoch, mark.readers = stream, stream.epoch, {}
        driver = client.driver
        try:
            driver.launch_graph(self.executable, client.now.stream)
        except driver.errors as error:
            raise client.failure("graph", error) from error

    def release(self) -> None:
        """Give the graph back, and let its memory go once its last replay is over."""
        client = self.client
        if self.executable is None:
            return
        if client.order.capture is not None:
            # Nothing may wait now; the end of the other graph is soon enough. Another object does
            # it, as nothing is finalised twice.
            late = CapturedGraph.__new__(CapturedGraph)
            late.__dict__.update(self.__dict__)
            client.order.capture.slots.append(late)
            self.executable = None
            return
        client.driver.wait_all()
        client.driver.release_graph(self.executable)
        self.executable = None
        self.arena.graphs -= 1
        for address, size in self.held:
            client.pool.give(address, size)
        self.held, self.blocks, self.slots = [], [], []

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self.release()


def begin(client: Any, arena: Arena) -> None:
    """Record what the calling thread's stream gets from now on.

    Plans are bound again with guards around them, which tell the capture what is touched, and keep
    other threads waiting until it is over.
    """
    order, guards = client.order, client.guards
    order.capture_lock.wait()
    if order.capture is not None:
        order.capture.refuse("another capture is begun")
    order.capture_lock.take()
    try:
        stream = _opened(client)
    except BaseException:
        _unguard(client)
        order.capture_lock.give()
        raise
    order.capture, order.planned = Capture(order, stream, guards.homes, arena), True
    guards.local.arena, order.capture.outer = arena, guards.local.arena


def _opened(client: Any) -> Any:
    """The stream of the calling thread, which is captured from now on."""
    order = client.order
    if not client.guarded:
        client.guarded = True
        clear_plans()
    order.capture_lock.pause()
    client.synchronize_all()
    for stream in list(order.states.values()):
        # An event from before the capture cannot be waited for inside it.
        order.start_anew(stream)
    stream = order.current()
    try:
        client.driver.begin_capture(stream.ptr)
    except client.driver.errors as error:
        raise CaptureError("graph", f"the driver could not begin a capture ({error})") from error
    return stream


def _unguard(client: Any) -> None:
    if not client.guards.ordered:
        client.guarded = False
        clear_plans()


def end(client: Any) -> CapturedGraph:
    """The graph of what was recorded; raises ``CaptureError`` when the driver refuses it."""
    capture = client.order.capture
    try:
        capture.gather()
        executable = client.driver.end_capture(capture.stream.ptr)
        _leave(client, capture)
    except client.driver.errors as error:
        _leave(client, capture)
        client.driver.abandon_capture(capture.stream.ptr)
        _give_back(client, capture)
        what = f"the driver could not make a graph of what was queued ({error})"
        raise CaptureError("graph", what) from error
    finally:
        client.order.capture_lock.give()
    return CapturedGraph(client, capture, executable)


def abandon(client: Any) -> None:
    """End a capture that failed, and forget what it has recorded."""
    capture = client.order.capture
    try:
        client.driver.abandon_capture(capture.stream.ptr)
        _leave(client, capture)
        _give_back(client, capture)
    finally:
        client.order.capture_lock.give()


def _leave(client: Any, capture: Capture) -> None:
    order, guards = client.order, client.guards
    order.capture, order.planned = None, False
    guards.local.arena = capture.outer
    # What the marks say of the capture never ran: there is nothing of it to wait for. Its events
    # were recorded in the capture, so nobody else can wait for them.
    for stream in capture.joined:
        order.start_anew(stream)
    _unguard(client)


def _give_back(client: Any, capture: Capture) -> None:
    for address, size in capture.held:
        client.pool.give(address, size)
