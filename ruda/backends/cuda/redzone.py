"""Red zones: canaries around every block, and NaN in fresh memory.

``RUDA_MEMORY_DEBUG=redzone`` turns them on. Blocks are looked at when they come back and at every
synchronisation; what was written outside of one is then an error that says whose block it was.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ruda.backends.cuda.user_code import user_line
from ruda.core.errors import DeviceError

ZONE = 256
_CANARY, _NAN = 0xA5, 0xFF
_WHOLE = bytes([_CANARY]) * ZONE


class RedZones:
    """The zones of one client's blocks, by the address that tensors see."""

    def __init__(self, driver: Any, now: Any) -> None:
        self.driver = driver
        self.now = now
        self.blocks: dict[int, tuple[int, str]] = {}
        self.damage: list[str] = []

    def surround(self, start: int, size: int, nbytes: int) -> None:
        """Fill a block of ``size`` bytes at ``start``, of which ``nbytes`` are in use."""
        fill, stream, inside = self.driver.fill, self.now.stream, start + ZONE
        end = inside + nbytes
        fill(start, _CANARY, ZONE, stream)
        if nbytes:
            fill(inside, _NAN, nbytes, stream)
        fill(end, _CANARY, start + size - end, stream)
        self.blocks[inside] = nbytes, user_line()

    def owns(self, address: int) -> bool:
        """Whether the block was made with zones around it."""
        return address in self.blocks

    def check_and_forget(self, address: int, look: bool = True) -> int:
        """Look at a block for the last time if that is possible; returns where it starts."""
        if look:
            self._check(address)
        del self.blocks[address]
        return address - ZONE

    def _check(self, address: int) -> None:
        nbytes, line = self.blocks[address]
        for at, place in ((address - ZONE, "before"), (address + nbytes, "behind")):
            found = ctypes.create_string_buffer(ZONE)
            self.driver.to_host(ctypes.addressof(found), at, ZONE, self.now.stream)
            self.driver.wait(self.now.stream)
            if found.raw != _WHOLE:
                text = f"{place} a block of {nbytes:,} bytes from {line}"
                if text not in self.damage:
                    self.damage.append(text)

    def check(self) -> None:
        """Look at all blocks; raises ``DeviceError`` if something was written outside of one."""
        for address in list(self.blocks):
            self._check(address)
        if self.damage:
            found, self.damage = "; ".join(self.damage), []
            raise DeviceError("memory", "a kernel wrote outside of its memory", found)
