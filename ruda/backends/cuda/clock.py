"""How long pieces of work take on the device, whatever the host takes to queue them."""

from __future__ import annotations

from typing import Any

from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import DType, uint8
from ruda.core.spec import spec_of

_BYTES = 256 << 20
# Multiplications and additions of a multiprocessor in a cycle, of halves with float32 sums and of
# float64, by data sheet: 989 and 67 TFLOP/s of an H100, 312 and 19.5 of an A100.
_OPERATIONS = {"sm_80": (2048, 128), "sm_90a": (4096, 256)}


class Clock:
    """Events around each piece. The device is kept busy meanwhile, so that it never waits.

    It is busy with copies of a large piece of memory, which also say how fast memory is.
    """

    def __init__(self, client: Any, pieces: int) -> None:
        self.client, self.driver = client, client.driver
        self.size = min(_BYTES, client.driver.memory()[0] // 8)
        spec = spec_of(client, (self.size,), uint8)
        self.ends = allocate(client.pool, spec), allocate(client.pool, spec)
        # Queueing a piece takes the host a fraction of this, a copy the device at least half.
        self.copies = max(4, pieces)
        self.spans: list[tuple[Any, int, int]] = []
        self.ahead = self._mark()
        for _ in range(self.copies):
            source, target = self.ends
            self.driver.on_device(target.address, source.address, self.size, client.now.stream)
        self.start = self._mark()

    def _mark(self) -> int:
        event = int(self.driver.new_event(timing=True))
        self.driver.record(event, self.client.now.stream)
        return event

    def operations(self, dtype: DType) -> float | None:
        """What the device can do at most in a second in products of ``dtype``; None: not known.

        Products of float32 are done by several units, as their precision is asked for.
        """
        known, hertz = _OPERATIONS.get(self.driver.arch), getattr(self.driver, "hertz", None)
        if known is None or hertz is None or not (dtype.is_half or dtype.name == "float64"):
            return None
        return float(known[not dtype.is_half] * self.driver.multiprocessors * hertz)

    def begin(self, key: Any) -> None:
        """A piece of work begins."""
        self.spans.append((key, self._mark(), 0))

    def end(self) -> None:
        """It has been queued."""
        key, start, _ = self.spans[-1]
        self.spans[-1] = (key, start, self._mark())

    def finish(self) -> tuple[dict[Any, float], float]:
        """Seconds of each piece, and the bytes that a copy moves in a second."""
        self.client.synchronize()
        times: dict[Any, float] = {}
        for key, start, end in self.spans:
            times[key] = times.get(key, 0.0) + self.driver.elapsed(start, end) * 1e-3
        taken = self.driver.elapsed(self.ahead, self.start) * 1e-3
        for event in (self.ahead, self.start, *(e for _, a, b in self.spans for e in (a, b))):
            self.driver.release_event(event)
        return times, 2 * self.size * self.copies / max(taken, 1e-9)
