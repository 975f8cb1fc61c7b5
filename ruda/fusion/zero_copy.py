"""A second graph of a small step that reads its arguments where they lie.

The first graph reads slots that arguments are copied into by launches beside it. A caller who
passes memory at the same addresses again and again, such as one pair of buffers for all batches,
gets a graph without these copies. It reads what lies there at the time of the call.
"""

from __future__ import annotations

from typing import Any

from ruda.core.errors import OutOfMemoryError
from ruda.fusion.captured import Captured, Uncapturable
from ruda.fusion.pytree import Given
from ruda.fusion.sources import Argument

# Calls in a row with the same addresses before it is made, and how often it is made at most.
_REPEATS, _MOST = 4, 4
# Larger steps hide the copies behind their work, and would hold too much memory twice.
_OPERATORS, _BYTES = 400, 32 << 20
_SPARE = 1 << 30


class ZeroCopy:
    """The graph, if there is one, and where the arguments of the last calls were."""

    def __init__(self, pinned: bool) -> None:
        # An argument that is state as well may be overwritten before all of it was read.
        self.usable = not pinned
        self._made = 0
        self.captured: Captured | None = None
        self._of: Captured | None = None
        self._at: list[int] = []
        self._seen: list[int] = []
        self._times = 0

    def choose(self, program: Any, whole: Captured, given: Given) -> Captured:
        """``whole``, or the graph of the same program that reads the arguments in place."""
        client = whole.client
        if not self.usable or whole.graph is None or client.guarded or not whole.arguments:
            return whole
        at = [client.address(source.fetch(given)) for _, _, source in whole.arguments]
        if at == self._at and self._of is whole and self.captured is not None:
            return self.captured
        self._times = self._times + 1 if at == self._seen else 1
        self._seen = at
        if self._times < _REPEATS or self._made == _MOST or not _suits(whole):
            return whole
        return self._make(program, whole, given, at)

    def _make(self, program: Any, whole: Captured, given: Given, at: list[int]) -> Captured:
        self.captured = None
        try:
            self.captured = program.on_places(zero_copy=given)
        except (Uncapturable, OutOfMemoryError):
            # The step with slots is there, and is as good but for some microseconds.
            self.usable = False
            return whole
        self.captured.home = whole.graph
        self._of, self._at, self._made = whole, at, self._made + 1
        return self.captured

    def drop(self) -> None:
        """It could not become a graph."""
        self.captured, self.usable = None, False


def _suits(whole: Captured) -> bool:
    """Whether a second graph of the step is worth its memory, and small against what is left."""
    piece = getattr(whole.graph.arena, "piece", None)
    size = 0 if piece is None else piece.spec.nbytes
    if len(whole.inside) > _OPERATORS or size > _BYTES:
        return False
    sources = [source for _, _, source in whole.arguments]
    return all(isinstance(s, Argument) for s in sources) and whole.client.available() > _SPARE
