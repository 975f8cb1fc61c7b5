"""The lock that keeps other threads waiting while one of them records a graph.

What another one queued meanwhile would be a part of that graph, and would not run.
"""

from __future__ import annotations

import threading
import time

from ruda.backends.cuda.user_code import user_line
from ruda.core.errors import CaptureError

# Seconds for a block of ``cuda.graph``, which may wait for this very thread, and for operators that
# were begun before the lock was taken.
_PATIENCE, _PAUSE = 60.0, 0.002


class CaptureLock:
    """That of one device. Others wait where they begin an operator, a copy or a replay."""

    def __init__(self) -> None:
        self._free = threading.Condition(threading.Lock())
        self.owner: int | None = None

    def wait(self) -> None:
        """Return once no other thread records a graph; ``CaptureError`` if that takes too long."""
        if self.owner is not None and self.owner != threading.get_ident():
            with self._free:
                self._await()

    def take(self) -> None:
        """Keep other threads waiting from their next operator on."""
        with self._free:
            self._await()
            self.owner = threading.get_ident()

    def pause(self) -> None:
        """Let other threads queue what they had begun when they looked for the last time."""
        if threading.active_count() > 1:
            time.sleep(_PAUSE)

    def give(self) -> None:
        """Let others go on."""
        with self._free:
            self.owner = None
            self._free.notify_all()

    def _await(self) -> None:
        own = threading.get_ident()
        if not self._free.wait_for(lambda: self.owner in (None, own), _PATIENCE):
            what = f"another thread records a graph for more than {_PATIENCE:.0f} s"
            hint = "not waiting for other threads in a block of cuda.graph"
            raise CaptureError("graph", f"{what}, at {user_line()}", hint=hint)
