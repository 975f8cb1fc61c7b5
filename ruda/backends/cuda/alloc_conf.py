"""``RUDA_ALLOC_CONF``: how a GPU's memory is handed out, as ``key:value`` pairs with commas.

``backend``: ``pool`` (the default), ``async`` (the driver's own pool, ordered by streams) or
``direct`` (every block from the driver and of the very size asked for, for tools that watch it).
``split``: how much larger a free block may be than what it serves, 0.25 for a quarter.
``rounding``: size classes per power of two, 8 unless given. ``gc_threshold``: from this share of
the limit on, cached blocks go back before more is taken. An unknown key is an error.
"""

from __future__ import annotations

from typing import Any

from ruda.backends.cuda.memory import Pool, size_class
from ruda.core import config
from ruda.core.errors import ArgumentError

_BACKENDS = ("pool", "async", "direct")


class _Number:
    """A setting that is a number between two others."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def __call__(self, text: str) -> float:
        value = float(text)
        if not self.low <= value <= self.high:
            raise ValueError
        return value

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


class _Word:
    """A setting that is one of a few words."""

    def __call__(self, text: str) -> str:
        if text not in _BACKENDS:
            raise ValueError
        return text

    def __str__(self) -> str:
        return ", ".join(_BACKENDS)


_KEYS: dict[str, Any] = {
    "backend": _Word(),
    "split": _Number(0, 1),
    "rounding": _Number(1, 64),
    "gc_threshold": _Number(0, 1),
}


def parse(text: str) -> dict[str, Any]:
    """The settings in ``text``; raises ``ArgumentError`` for what is not a setting."""
    out: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, _, value = part.partition(":")
        if key not in _KEYS:
            raise ArgumentError("RUDA_ALLOC_CONF", "unknown key", key, ", ".join(_KEYS))
        try:
            out[key] = _KEYS[key](value)
        except ValueError:
            expected = str(_KEYS[key])
            raise ArgumentError("RUDA_ALLOC_CONF", f"not a {key}", value, expected) from None
    return out


def pool_of(driver: Any, out_of_memory: type[Exception], now: Any) -> Pool:
    """The pool that the environment asks for."""
    chosen = parse(config.value("RUDA_ALLOC_CONF") or config.value("RUDA_CUDA_ALLOC"))
    backend = chosen.get("backend", "pool")
    if backend == "pool":
        pool = Pool(driver, out_of_memory)
    else:
        pool = DirectPool(driver, out_of_memory)
        pool.ask = now if backend == "async" else None
    pool.split = chosen.get("split", pool.split)
    pool.gc_threshold = chosen.get("gc_threshold")
    pool.shift = int(chosen.get("rounding", 8)).bit_length()
    return pool


class DirectPool(Pool):
    """Keeps nothing: each block comes from the driver and goes back to it.

    ``ask`` is None, or what holds the calling thread's stream for the driver's ordered pool.
    """

    ask: Any = None

    def __init__(self, driver: Any, out_of_memory: type[Exception]) -> None:
        super().__init__(driver, out_of_memory)
        # Blocks of the driver's ordered pool.
        self.ordered: set[int] = set()

    @property
    def _capturing(self) -> bool:
        return self.special is not None and self.special.capturing

    def take(self, nbytes: int) -> tuple[int, int]:
        """As ``Pool.take``."""
        exact = self.ask is None
        size = max(nbytes, 1) if exact else size_class(nbytes, self.shift)
        address = self._segment(self.arena, size, 0, nbytes)
        self.used += size
        self.peak = max(self.peak, self.used)
        if self.special is not None:
            self.special.order.took(address)
        return address, size

    def give(self, address: int, size: int) -> None:
        """As ``Pool.give``."""
        if self._capturing:
            # The graph may touch it at every replay.
            self.special.order.capture.hold(address, size)
            return
        self.used -= size
        if self.special is not None:
            order = self.special.order
            order.settle(order.mark_of(address), order.current())
        self._drop(self.arena, address)

    def _ask(self, size: int) -> int | None:
        # What a graph allocates in order is a part of it, and gone between replays.
        if self.ask is None or self._capturing:
            return super()._ask(size)
        if self.limit is not None and self.reserved + size > self.limit:
            return None
        try:
            address = int(self.driver.allocate_ordered(size, self.ask.stream))
        except self.out_of_memory:
            return None
        self.ordered.add(address)
        return address

    def _drop(self, arena: Any, address: int) -> int:
        if address not in self.ordered:
            return super()._drop(arena, address)
        self.ordered.discard(address)
        size = int(arena.segments.pop(address)[0])
        self.sources.pop(address)
        self.driver.release_ordered(address, self.ask.stream)
        self.counts["segments_freed"] += 1
        self.reserved -= size
        return size
