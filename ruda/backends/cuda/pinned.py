"""Copies between host and device through page-locked memory.

What is sent is first moved into a page-locked slot, so the caller's array may change at once and
nothing waits for the device; slots come back when the event behind their copy has happened.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_CHUNK = 8 << 20
_SMALLEST = 4 << 10
# How much may be under way before sending waits for the oldest copy.
_MOST = 64 << 20
_AHEAD = 3


class Slot:
    """A piece of page-locked memory; goes back to its stock with the last reference to it."""

    __slots__ = ("address", "size", "staging")

    def __init__(self, staging: Staging, address: int, size: int) -> None:
        self.staging = staging
        self.address = address
        self.size = size

    def __del__(self) -> None:
        self.staging.free[self.size].append(self.address)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        place = (self.address, False)
        return {"shape": (self.size,), "typestr": "|u1", "data": place, "version": 3}


class Staging:
    """The page-locked memory of one client."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        # That of other GPUs, which see each other's page-locked memory.
        self.others: Sequence[Staging] = ()
        self.free: defaultdict[int, list[int]] = defaultdict(list)
        self.pieces: dict[int, int] = {}
        self.events: list[int] = []
        self.flying: deque[tuple[int, int, Any]] = deque()
        self.under_way = 0

    def slot(self, nbytes: int) -> Slot:
        """At least ``nbytes`` of page-locked memory."""
        self._land()
        size = 1 << max((nbytes - 1).bit_length(), _SMALLEST.bit_length() - 1)
        try:
            address = self.free[size].pop()
        except IndexError:
            address = self.driver.allocate_host(size)[0]
            self.pieces[address] = size
        return Slot(self, address, size)

    def array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An ndarray in page-locked memory, with whatever values are there."""
        count = int(np.prod(shape, dtype=np.int64))
        raw = np.asarray(self.slot(max(count * dtype.itemsize, 1)))
        return raw[: count * dtype.itemsize].view(dtype).reshape(shape)

    def holds(self, address: int, nbytes: int) -> bool:
        """Whether this memory of the host is page-locked, by the client of any GPU."""
        pieces = [*self.pieces.items()]
        for other in self.others:
            pieces += other.pieces.items()
        return any(a <= address and address + nbytes <= a + size for a, size in pieces)

    def send(self, target: int, array: Any, stream: int, lax: bool = False) -> None:
        """Queue a copy of a row-major ``array`` to the device.

        ``array`` may be changed once this returns, unless it is page-locked and ``lax``.
        """
        source, nbytes = array.ctypes.data, array.nbytes
        if self.holds(source, nbytes):
            self.driver.to_device(target, source, nbytes, stream)
            event = self._follow(stream, nbytes, array)
            if not lax:
                self.driver.wait_event(event)
            return
        for start in range(0, nbytes, _CHUNK):
            size = min(_CHUNK, nbytes - start)
            slot = self.slot(size)
            ctypes.memmove(slot.address, source + start, size)
            self.driver.to_device(target + start, slot.address, size, stream)
            self._follow(stream, size, slot)

    def send_for_good(self, target: int, array: Any, stream: int) -> Slot:
        """As ``send``, for a copy that is made again and again, from a slot that is kept."""
        slot = self.slot(array.nbytes)
        ctypes.memmove(slot.address, array.ctypes.data, array.nbytes)
        self.driver.to_device(target, slot.address, array.nbytes, stream)
        return slot

    def fetch(
        self, source: int, target: Any, stream: int, ahead: int = _AHEAD
    ) -> Callable[[], None]:
        """Queue copies of the device's memory to the ndarray ``target``; the result ends them.

        With ``ahead`` 0 all of them are queued at once, else so many before the first is awaited.
        """
        data, nbytes = target.ctypes.data, target.nbytes
        direct = self.holds(data, nbytes)
        waiting: deque[tuple[int, Any, int, int]] = deque()

        def settle_one() -> None:
            event, slot, start, size = waiting.popleft()
            try:
                self.driver.wait_event(event)
            finally:
                self.events.append(event)
            if slot is not None:
                ctypes.memmove(data + start, slot.address, size)

        for start in range(0, nbytes, _CHUNK):
            size = min(_CHUNK, nbytes - start)
            slot = None if direct else self.slot(size)
            place = data + start if slot is None else slot.address
            self.driver.to_host(place, source + start, size, stream)
            waiting.append((self._event(stream), slot, start, size))
            if ahead and len(waiting) > ahead:
                settle_one()

        def finish() -> None:
            while waiting:
                settle_one()

        return finish

    def _event(self, stream: int) -> int:
        event = self.events.pop() if self.events else self.driver.new_event()
        self.driver.record(event, stream)
        return event

    def _follow(self, stream: int, nbytes: int, thing: Any) -> int:
        """Keep ``thing`` until what is queued in ``stream`` now is done."""
        event = self._event(stream)
        self.under_way += nbytes
        self.flying.append((event, nbytes, thing))
        return event

    def keep(self, stream: int, thing: Any) -> None:
        """Keep ``thing`` alive until what is queued in ``stream`` now is done."""
        self._land()
        self._follow(stream, 0, thing)

    def _land(self) -> None:
        """Let go of what has arrived; wait for the oldest copies where too much is under way."""
        while self.flying:
            event, nbytes, _ = self.flying[0]
            if self.under_way > _MOST:
                self.driver.wait_event(event)
            elif not self.driver.event_done(event):
                return
            self.flying.popleft()
            self.under_way -= nbytes
            self.events.append(event)

    def release(self) -> int:
        """Give free page-locked memory back to the driver; returns the bytes."""
        while self.flying:
            event, nbytes, _ = self.flying.popleft()
            self.driver.wait_event(event)
            self.under_way -= nbytes
            self.events.append(event)
        freed = 0
        for size, stock in self.free.items():
            while stock:
                address = stock.pop()
                del self.pieces[address]
                self.driver.release_host(address)
                freed += size
        return freed
