"""Where everything lies that a graph makes: blocks logged once, then given fixed places.

A step that runs twice asks for the same blocks in the same order. The first run is logged (a
``Log``): for how long each block is in use, from which follows a place for each in one piece of
memory, such that no two blocks meet that are in use at the same time. The capture is served from
that piece (``Planned``), as long as it asks for what was asked for before.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left, insort
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.cuda.memory import Arena, size_class

_STEP = 512
# How many blocks of the first run may be missing in a row from the second one.
_AHEAD = 32
# How many blocks come and go until an operator that runs beside others is over, as a rule.
_LAG = 64


class Log:
    """The blocks that one thread took and gave back, in order."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.clock = 0
        self.sizes: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int | None] = []
        # Until when a block is taken at least, whenever it comes back.
        self.least: list[int] = []
        # Whether an operator that runs beside others took it: such ones run one after the other.
        self.aside: list[bool] = []
        self._open: dict[int, int] = {}

    def took(self, address: int, nbytes: int) -> None:
        """A block is in use from now on."""
        self._open[address] = len(self.sizes)
        self.sizes.append(nbytes)
        self.starts.append(self.clock)
        self.ends.append(None)
        self.least.append(0)
        self.aside.append(False)
        self.clock += 1

    def gave(self, address: int) -> None:
        """It is not any more."""
        place = self._open.pop(address, None)
        if place is not None:
            self.ends[place] = self.clock
            self.clock += 1

    def lags(self, address: int) -> None:
        """An operator that runs beside others uses the block: it may still, for some time."""
        place = self._open.get(address)
        if place is not None:
            self.least[place] = self.clock + _LAG

    def all_lag(self, first: int) -> None:
        """As ``lags``, of the blocks from number ``first`` on: such an operator took them."""
        for place in range(first, len(self.sizes)):
            self.least[place], self.aside[place] = self.clock + _LAG, True

    def peak(self, shift: int) -> int:
        """The most bytes in use at a time, in blocks of the pool's own classes."""
        change = np.zeros(self.clock + 1, np.int64)
        for size, start, end in zip(self.sizes, self.starts, self.ends, strict=True):
            whole = size_class(size, shift)
            change[start] += whole
            if end is not None:
                change[end] -= whole
        return int(change.cumsum().max(initial=0))


class Layout(NamedTuple):
    """The blocks of a run in order: bytes, and offset in a piece of ``total`` bytes."""

    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    total: int


def layout(log: Log) -> Layout:
    """Places for the blocks of ``log`` that came back: large ones first, each as low as it can.

    A block that nobody gave back belongs to somebody who made it once, such as a table.
    """
    kept = [i for i, end in enumerate(log.ends) if end is not None]
    sizes = np.array([_whole(log.sizes[i]) for i in kept], np.int64)
    starts = np.array([log.starts[i] for i in kept], np.int64)
    back = np.array([log.ends[i] for i in kept], np.int64)
    ends = np.maximum(back, np.array([log.least[i] for i in kept], np.int64))
    aside = np.array([log.aside[i] for i in kept], bool)
    order = np.lexsort((starts, -sizes))
    sizes, starts, back, ends, aside = (a[order] for a in (sizes, starts, back, ends, aside))
    places = np.zeros(len(kept), np.int64)
    for i in range(len(kept)):
        until, since = ends[i], ends[:i]
        if aside[i]:
            # Among themselves those that run beside others need no time to be over.
            until, since = np.where(aside[:i], back[i], until), np.where(aside[:i], back[:i], since)
        meets = (starts[:i] < until) & (since > starts[i])
        places[i] = _lowest(places[:i][meets], sizes[:i][meets], sizes[i])
    total = int((places + sizes).max(initial=0))
    offsets = np.zeros(len(kept), np.int64)
    offsets[order] = places
    return Layout(tuple(log.sizes[i] for i in kept), tuple(offsets.tolist()), total)


def _whole(size: int) -> int:
    return max(-(-size // _STEP), 1) * _STEP


def _lowest(offsets: Any, sizes: Any, size: int) -> int:
    """Where ``size`` bytes fit between blocks at ``offsets``."""
    if not len(offsets):
        return 0
    order = offsets.argsort()
    free_from = np.zeros(len(order) + 1, np.int64)
    np.maximum.accumulate((offsets + sizes)[order], out=free_from[1:])
    fits = offsets[order] - free_from[:-1] >= size
    first = int(fits.argmax())
    # The last one is behind all of them.
    return int(free_from[first if fits[first] else -1])


class Planned(Arena):
    """The memory of a graph: one piece, parted as a layout says; what is not in that is extra."""

    def __init__(self, piece: Any, plan: Layout) -> None:
        super().__init__()
        # Kept: the piece goes back to the common pool with the last block in it.
        self.piece = piece
        self.plan = plan
        self.extra = 0
        self._at = 0
        self._live: list[tuple[int, int]] = []
        # Blocks that came back, as far as nobody has all of their memory again, with their marks:
        # another one may begin where one of them did.
        self._past: list[tuple[int, int, Any]] = []

    def part(self, nbytes: int) -> int:
        """The address of the next block if it is one of ``nbytes`` and its place is free; or 0."""
        sizes, at = self.plan.sizes, self._at
        for i in range(at, min(at + _AHEAD, len(sizes))):
            if sizes[i] != nbytes:
                continue
            start = self.piece.address + self.plan.offsets[i]
            if self._is_free(start, start + _whole(nbytes)):
                self._at = i + 1
                insort(self._live, (start, start + _whole(nbytes)))
                return int(start)
            break
        self.extra += 1
        return 0

    def _is_free(self, start: int, end: int) -> bool:
        place = bisect_left(self._live, (start, 0))
        before = place > 0 and self._live[place - 1][1] > start
        return not before and not (place < len(self._live) and self._live[place][0] < end)

    def back(self, address: int, mark: Any = None) -> bool:
        """Whether ``address`` was such a block, which is free now."""
        place = bisect_left(self._live, (address, 0))
        if place == len(self._live) or self._live[place][0] != address:
            return False
        self._past.append((*self._live.pop(place), mark))
        return True

    def beneath(self, address: int) -> list[Any]:
        """The marks of the blocks that had memory of the block at ``address`` before it."""
        start, end = self._live[bisect_left(self._live, (address, 0))]
        meeting = [p for p in self._past if p[0] < end and start < p[1]]
        self._past = [p for p in self._past if not (start <= p[0] and p[1] <= end)]
        return [mark for *_, mark in meeting if mark is not None]

    def owns(self, address: int) -> bool:
        """Whether ``address`` lies in the piece."""
        return 0 <= address - self.piece.address < max(self.plan.total, 1)


class Nowhere(Arena):
    """Memory for a run that is only logged: addresses that nothing lies at."""

    START = 1 << 46
    # Of what stands for tensors: each its own gigabytes.
    tensors = itertools.count((1 << 46) + (1 << 45), 1 << 36)

    def __init__(self) -> None:
        super().__init__()
        self._next = self.START

    def part(self, nbytes: int) -> int:
        """The next address."""
        address, self._next = self._next, self._next + _whole(nbytes)
        return address

    def back(self, address: int, mark: Any = None) -> bool:
        """Whether ``address`` is one of these, or of what stands for memory in a rehearsal."""
        return address >= self.START

    owns = back
