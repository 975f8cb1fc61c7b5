"""What a pool does beyond handing out blocks, once somebody has asked for it.

Several streams, memory of its own for a graph or a ``MemPool``, red zones around every block,
and records of who asked for what. A pool gets its ``Guards`` with the first of these, for good.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from ruda.backends.cuda.donation import take
from ruda.backends.cuda.memory import Arena, Part, Pool, size_class
from ruda.backends.cuda.redzone import ZONE, RedZones
from ruda.backends.cuda.stream_order import Order
from ruda.backends.cuda.user_code import running_modules, user_line


class _Local(threading.local):
    """The arena that a thread takes its memory from; None for the common one.

    ``log`` notes what it takes and gives back, where somebody wants to know. ``given`` are
    blocks that the next results may have, by bytes.
    """

    arena: Arena | None = None
    log: Any = None
    given: Any = None


class Guards:
    """Takes over ``take`` and ``give`` of ``pool``."""

    def __init__(self, pool: Pool, order: Order) -> None:
        self.pool = pool
        self.order = order
        # Reentrant: collecting garbage in the middle of ``take`` may give blocks back.
        self.turn = threading.RLock()
        self.ordered = False
        self.records = False
        self.zones: RedZones | None = None
        self.local = _Local()
        self.arenas: list[Arena] = []
        self.homes: dict[int, Arena] = {}
        self.origins: dict[int, tuple[str, str]] = {}

    @property
    def capturing(self) -> bool:
        """Whether a graph is being recorded, when nothing may wait for the device."""
        return self.order.capture is not None

    def take(self, nbytes: int) -> tuple[int, int]:
        """As ``Pool.take``."""
        pool, arena = self.pool, self.local.arena or self.pool.arena
        if arena is pool.arena and self._idle() and pool.free[pool.classes[nbytes]]:
            return self._at_once(pool.classes[nbytes], nbytes)
        if self.local.given and self.zones is None:
            found = take(self.local.given, nbytes)
            if found is not None:
                if self.ordered or self.capturing:
                    self.order.took(found[0])
                return found
        # What a graph fills would be looked at before the graph has run.
        zones = self.zones if arena is pool.arena else None
        margin = 0 if zones is None else ZONE
        size = size_class(nbytes + 2 * margin, pool.shift)
        with self.turn:
            address, size = self._pop(arena, size, nbytes)
        if self.ordered or self.capturing:
            if not size:
                self.order.follows(arena.beneath(address))
            self.order.took(address + margin)
        if arena is not pool.arena:
            self.homes[address + margin] = arena
        if self.local.log is not None:
            self.local.log.took(address + margin, nbytes)
        if self.records:
            self.origins[address + margin] = user_line(), running_modules()
        if zones is not None:
            zones.surround(address, size, nbytes)
        pool.used += size
        pool.peak = max(pool.peak, pool.used)
        return address + margin, size

    def _at_once(self, size: int, nbytes: int) -> tuple[int, int]:
        """A block of the common arena, where nobody wants to know of it."""
        pool = self.pool
        # pop is one step under the GIL, as in the pool itself.
        try:
            address = pool.free[size].pop()
        except IndexError:
            with self.turn:
                address, size = pool.grow(pool.arena, size, nbytes)
        used = pool.used = pool.used + size
        if used > pool.peak:
            pool.peak = used
        return address, size

    def _idle(self) -> bool:
        """Whether there is nothing to be done but to hand out a block."""
        if self.ordered or self.records or self.order.capture is not None:
            return False
        return self.zones is None and self.local.log is None and not self.local.given

    def _pop(self, arena: Arena, size: int, nbytes: int) -> tuple[int, int]:
        """A free block, rather one that nobody elsewhere may still be using."""
        planned = arena.part(nbytes)
        if planned:
            # It counts as in use with the whole piece that it lies in.
            return planned, Part(arena)
        stock = arena.free[size]
        if self.ordered and self.zones is None:
            stream = self.order.current()
            for i in range(len(stock) - 1, max(len(stock) - 9, -1), -1):
                mark = self.order.marks.get(stock[i])
                if mark is None or self.order.seen_all(mark, stream):
                    return stock.pop(i), size
        with contextlib.suppress(IndexError):
            return stock.pop(), size
        return self.pool.grow(arena, size, nbytes)

    def give(self, address: int, size: int) -> None:
        """As ``Pool.give``."""
        self.origins.pop(address, None)
        if self.ordered:
            self.order.gave(address)
        if self.local.log is not None:
            self.local.log.gave(address)
        if isinstance(size, Part):
            self._part_back(address, size.arena)
            return
        arena = self.homes.pop(address, None)
        if self.capturing and arena is None:
            # The graph reads it at every replay, whoever made it.
            self.homes[address] = self.pool.arena
            self.order.capture.hold(address, size)
            return
        self.pool.used -= size
        if self.zones is not None and self.zones.owns(address):
            address = self.zones.check_and_forget(address, look=not self.capturing)
        with self.turn:
            (self.pool.arena if arena is None else arena).free[size].append(address)

    def _part_back(self, address: int, arena: Arena) -> None:
        if self.homes.get(address) is arena:
            del self.homes[address]
        arena.back(address, self.order.marks.get(address))

    def forget(self, address: int, size: int) -> None:
        """A segment goes back to the driver: its addresses may mean something else tomorrow."""
        for known in (self.order.marks, self.homes, self.origins):
            for at in [a for a in known if address <= a < address + size]:
                del known[at]

    def open(self, arena: Arena | None = None) -> Arena:
        """A new arena, or this one."""
        arena = Arena() if arena is None else arena
        self.arenas.append(arena)
        return arena

    def close(self, arena: Arena) -> None:
        """Let the common arena have the free blocks and, as they come back, the others."""
        if arena not in self.arenas:
            return
        self.arenas.remove(arena)
        common = self.pool.arena
        common.segments.update(arena.segments)
        for size, stock in arena.free.items():
            common.free[size].extend(stock)
        mine = [a for a, home in self.homes.items() if home is arena and not arena.owns(a)]
        for address in mine:
            self.homes[address] = common
