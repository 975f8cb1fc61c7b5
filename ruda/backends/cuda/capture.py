"""One capture: what is queued is recorded as a graph, with the memory that it lives on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ruda.backends.cuda.stream_order import Order, StreamState
from ruda.backends.cuda.user_code import user_line
from ruda.core.errors import CaptureError


class Capture:
    """The graph that is being recorded in ``stream``, and everything that it will touch.

    ``blocks`` are kept alive as long as the graph is; ``held`` came back to the pool meanwhile and
    must not be handed out again; ``slots`` hold the values that constants are copied from.
    """

    def __init__(
        self, order: Order, stream: StreamState, homes: Mapping[int, Any], arena: Any
    ) -> None:
        self.order = order
        self.homes, self.arena = homes, arena
        self.thread = threading.get_ident()
        self.stream = stream
        self.joined = {stream}
        self.blocks: dict[int, Any] = {}
        self.places: set[int] = set()
        self.held: list[tuple[int, int]] = []
        self.slots: list[Any] = []
        # The arena that the thread took its memory from before.
        self.outer: Any = None

    def keep(self, block: Any) -> None:
        """The graph touches ``block``; one of its own memory may come and go within it."""
        self.places.add(block.address)
        if self.homes.get(block.address) is not self.arena:
            self.blocks[id(block)] = block

    def hold(self, address: int, size: int) -> None:
        """A block came back that the graph may touch."""
        self.held.append((address, size))

    def joins(self, stream: StreamState, other: StreamState) -> None:
        """``stream`` is about to wait for ``other``: both are of the graph, or neither is."""
        if other in self.joined:
            self.joined.add(stream)
        elif stream in self.joined:
            what = f"the graph depends on work outside of it, at {user_line()}"
            raise CaptureError("graph", what, hint="making that tensor before the capture")

    def enters(self, stream: StreamState) -> None:
        """The thread of the capture queues in ``stream`` from now on: that is of the graph too."""
        if stream not in self.joined and threading.get_ident() == self.thread:
            self.order.after_all(stream, self.stream)

    def refuse(self, what: str, hint: str | None = None) -> None:
        """Raise because of something that a graph cannot hold."""
        raise CaptureError(
            "graph", f"{what} while a graph is captured, at {user_line()}", hint=hint
        )

    def gather(self) -> None:
        """Let the stream of the capture wait for those that joined it on the way."""
        for other in self.joined - {self.stream}:
            self.order.after_all(self.stream, other)
