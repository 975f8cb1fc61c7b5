"""Graphs: what a block queues is recorded once, and replayed as a whole for a few microseconds.

A replay does to the same memory what the block would do: fill the inputs with ``copy_`` before it,
read the outputs after it. ``ruda.compile`` does all of this by itself and checks when a graph no
longer fits; these are the tools for doing it by hand.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from ruda.backends.cuda import graphs
from ruda.core.errors import ArgumentError
from ruda.cuda.devices import gpu
from ruda.cuda.memory import MemPool


class Graph:
    """Work that was captured with ``ruda.cuda.graph``; it keeps the memory that it touches.

    >>> if ruda.cuda.is_available():
    ...     x, g = ruda.ones(3, device="cuda"), ruda.cuda.Graph()
    ...     with ruda.cuda.graph(g):
    ...         y = x + 1
    ...     _ = x.copy_(ruda.zeros(3))
    ...     g.replay()
    ...     y.tolist()
    """

    def __init__(self, device: Any = None) -> None:
        self._client = gpu(device)
        self._captured: graphs.CapturedGraph | None = None
        self._pool: MemPool | None = None

    def pool(self) -> MemPool:
        """The memory of its intermediates, which another graph may share: see ``graph``."""
        if self._pool is None:
            raise ArgumentError("graph", "nothing was captured yet")
        return self._pool

    def replay(self) -> None:
        """Queue all of it in the current stream; raises ``ArgumentError`` before a capture."""
        if self._captured is None:
            raise ArgumentError("graph", "nothing was captured yet", hint="ruda.cuda.graph(g)")
        self.pool().check_turn(self)
        self._captured.replay()

    def reset(self) -> None:
        """Let go of the graph and, once no tensor needs it, of its memory."""
        captured, self._captured = self._captured, None
        if captured is not None:
            captured.release()
        self._pool = None


class graph:
    """Record what the block queues in the current stream as ``target``, without running it.

    Its intermediates live in memory of their own; with ``pool=other.pool()`` in that of another
    graph, which is then replayed before this one and never at the same time. Reading a value,
    waiting, and sending values from the host raise ``CaptureError`` with the line.
    """

    def __init__(self, target: Graph, pool: MemPool | None = None) -> None:
        if not isinstance(target, Graph):
            got = type(target).__name__
            raise ArgumentError("graph", "not a graph", got, "ruda.cuda.Graph()")
        self.target = target
        self.pool = pool

    def __enter__(self) -> Self:
        self.target.reset()
        client = self.target._client
        pool = MemPool(client.device) if self.pool is None else self.pool
        graphs.begin(client, pool._arena)
        self.target._pool = pool
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        client = self.target._client
        if kind is not None:
            graphs.abandon(client)
            self.target._pool = None
            return
        self.target._captured = graphs.end(client)
        self.target._pool.join(self.target)  # type: ignore[union-attr]
