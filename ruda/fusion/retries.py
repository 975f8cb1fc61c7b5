"""When a step that could not be captured tries again.

What was in the way may be gone at a later call: memory that others held, or a call of another
library that the driver does not take while it captures. A step tries again a few times, with more
calls from one time to the next, since each costs the work of a first call.
"""

from __future__ import annotations

from typing import Any

from ruda.core.errors import OutOfMemoryError
from ruda.fusion.memory import memory_of

# Calls before the next time, by how often it was tried again already.
_DISTANCES = (8, 64, 512)
# The share of what a step needs that has to be free beyond it: free memory may lie in pieces.
_SPARE = 8


class Retries:
    """Counts calls after a capture that failed."""

    def __init__(self) -> None:
        self._times = 0
        self._left: int | None = None
        self._short = False

    def failed(self, error: Exception, passing: tuple[type[Exception], ...]) -> None:
        """A capture failed; ``passing`` are errors that need not come again, or whose causes."""
        self._short = isinstance(error, OutOfMemoryError)
        may_pass = self._short or isinstance(error.__cause__, passing)
        again = may_pass and self._times < len(_DISTANCES)
        self._left = _DISTANCES[self._times] if again else None

    def due(self, program: Any) -> bool:
        """Whether ``program`` is to be captured in this call, which counts."""
        if self._left is None:
            return False
        self._left -= 1
        if self._left > 0:
            return False
        self._times += 1
        if self._short and not _has_room(program):
            self._left = _DISTANCES[self._times] if self._times < len(_DISTANCES) else None
            return False
        self._left = None
        return True

    def words(self) -> str:
        """What is to come, for people; empty where there is nothing to say."""
        tried = f", tried again {self._times} time(s)" if self._times else ""
        return (
            tried if self._left is None else f"{tried}, to be tried again in {self._left} call(s)"
        )


def _has_room(program: Any) -> bool:
    """Whether a run with a graph's memory beside it would surely find what it needs."""
    client = program.client
    needed = memory_of(program).peak - client.pool.used
    return bool(needed + needed // _SPARE <= client.available())
