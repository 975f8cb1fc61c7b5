"""cuFFT's plans, through nvmath-python's bindings: kept, their scratch memory from the pool."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.cuda.bindings import binding
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import uint8
from ruda.core.errors import StrategyError
from ruda.core.shapes import Shape
from ruda.core.spec import spec_of

FORWARD, INVERSE = -1, 1
# cudaDataType_t.
KINDS = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
_KEPT = 256


class Layout(NamedTuple):
    """How the elements of a batch lie: along the last axis, and from one transform to the next.

    ``sizes`` are those of the memory along the transformed axes.
    """

    sizes: Shape
    stride: int
    distance: int


class Transform(NamedTuple):
    """A transform to plan: its lengths, both layouts, both dtypes, and how many there are."""

    lengths: Shape
    given: Layout
    result: Layout
    kinds: tuple[str, str]
    batch: int


class Plan:
    """One plan of cuFFT; one thread at a time runs it."""

    def __init__(self, client: Any, cufft: Any, shape: Transform) -> None:
        self.client, self.cufft = client, cufft
        client.driver.activate()
        self.number = cufft.create()
        # At exit the bindings are taken apart before the plans are, and the driver frees all.
        weakref.finalize(self, cufft.destroy, self.number).atexit = False
        cufft.set_auto_allocation(self.number, 0)
        lengths, inside, outside = (
            np.array(v, np.int64) for v in (shape.lengths, shape.given.sizes, shape.result.sizes)
        )
        given, result = (KINDS[k] for k in shape.kinds)
        self.work = cufft.xt_make_plan_many(
            self.number, len(shape.lengths), lengths.ctypes.data,
            inside.ctypes.data, shape.given.stride, shape.given.distance, given,
            outside.ctypes.data, shape.result.stride, shape.result.distance, result,
            shape.batch, max(given, result),
        )  # fmt: skip
        self._room = spec_of(client, (max(self.work, 1),), uint8)
        self._lock = threading.Lock()

    def run(self, source: int, target: int, direction: int) -> None:
        """Queue the transform between two addresses."""
        room = allocate(self.client.pool, self._room)
        self.client.order.current()
        with self._lock:
            self.cufft.set_stream(self.number, self.client.now.stream)
            self.cufft.set_work_area(self.number, room.address)
            self.cufft.xt_exec(self.number, source, target, direction)


@functools.cache
def library(client: Any) -> Any:
    """cuFFT's bindings; raises ``StrategyError`` where nvmath-python is not installed."""
    try:
        return binding("cufft")
    except ImportError:
        what, hint = "needs cuFFT through nvmath-python", 'pip install "ruda[cuda13]"'
        raise StrategyError("fft", what, client.device, hint=hint) from None


@functools.lru_cache(maxsize=_KEPT)
def plan_of(client: Any, shape: Transform) -> Plan:
    """The plan for a transform, made once."""
    return Plan(client, library(client), shape)


def dense(sizes: Shape) -> Layout:
    """Transforms of row-major blocks of ``sizes`` one after the other."""
    return Layout(sizes, 1, math.prod(sizes))
