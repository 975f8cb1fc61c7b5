"""Which run of a compiled step a fault was in, as far as waiting tells.

A graph is the same at every replay, so its kernels cannot know which one they are of; nothing is
queued for their sake. The host counts, and knows what it has waited for without hearing of a fault:
that leaves one run where each result is read, and else those that were under way.
"""

from __future__ import annotations

from typing import NamedTuple


class Mark(NamedTuple):
    """What was queued when a wait began: in ``stream``, or in all of them for None."""

    stream: int | None
    total: int


class Waits:
    """How many runs with faults to tell were queued on one device, and which of them are over."""

    def __init__(self) -> None:
        self.total = 0
        self._everywhere = 0
        self._over: dict[int | None, int] = {}

    def mark(self, stream: int | None) -> Mark:
        """To be taken before ``stream`` is waited for; None for all streams."""
        return Mark(stream, self.total)

    def passed(self, mark: Mark) -> None:
        """That wait is over, and no fault was found."""
        if mark.stream is None:
            self._everywhere = max(self._everywhere, mark.total)
        self._over[mark.stream] = max(self._over.get(mark.stream, 0), mark.total)

    def over(self, stream: int | None) -> int:
        """Up to which run all those in ``stream`` are over; None is for unknown streams."""
        return max(self._everywhere, self._over.get(stream, 0))


class Runs:
    """The runs of one compiled step, counted from 1; those from ``first`` on may be under way.

    Around each run ``begun`` is counted up, ``begin`` and ``end`` are called, these two only where
    it is ``told``: where one of its kernels can tell of a fault.
    """

    __slots__ = ("_last", "_stream", "_waits", "begun", "first", "told")

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self.begun = self.first = self._last = 0
        self._stream: int | None = None
        self.told = False

    def tell(self) -> None:
        """In the run that has begun a kernel is queued that can tell of a fault."""
        if not self.told:
            self.told, self.first = True, self.begun

    def begin(self) -> None:
        """One more is about to be queued."""
        if self._waits.over(self._stream) >= self._last:
            self.first = self.begun

    def end(self, stream: int) -> None:
        """It was queued in ``stream``, as far as it came."""
        # Counted once it is there: who waits in another thread meanwhile has not waited for it.
        self._waits.total += 1
        self._stream = stream if self.first == self.begun or stream == self._stream else None
        self._last = self._waits.total

    def __str__(self) -> str:
        if self.first == self.begun:
            return f"in replay {self.begun}"
        return f"in one of the replays {self.first} to {self.begun}"
