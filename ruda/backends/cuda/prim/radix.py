"""A stable sort of 32-bit keys with their numbers: in one launch when short, else three a digit."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.pointing import THREADS
from ruda.backends.cuda.source import instance
from ruda.core.dtypes import uint32
from ruda.core.spec import spec_of

_DIGIT = 9
_TILE = 2048
_MOST_TILES = 1024
# Up to here one block is done before the launches of many blocks would be.
_SHORT = 4096
_PHASES = ("digits_count", "digits_before", "digits_move", "digits_all")

Sort = Callable[[Any], tuple[Any, Any]]


def bind(client: Any, n: int, largest: int) -> Sort:
    """From the handle of ``n`` keys up to ``largest`` to those of the sorted keys and their order.

    The keys given may be overwritten.
    """
    bits = max(largest.bit_length(), 1)
    passes = -(-bits // _DIGIT)
    each = -(-bits // passes)
    spec = spec_of(client, (n,), uint32)
    if n <= _SHORT:
        return _short(client, spec, passes, each)
    chunk = _TILE * -(-n // (_TILE * _MOST_TILES))
    tiles = -(-n // chunk)
    steps = []
    for i in range(passes):
        facts = struct.pack("<5I", n, chunk, tiles, i * each, each)
        steps.append(
            (
                _launcher(client, 0, tiles, 2, facts),
                _launcher(client, 1, 1 << each, 2, facts),
                _launcher(client, 2, tiles, 6, facts),
            )
        )
    counts = spec_of(client, (tiles << each,), uint32)
    totals = spec_of(client, (1 << each,), uint32)

    def run(keys: Any) -> tuple[Any, Any]:
        pool, order = client.pool, None
        count, total = allocate(pool, counts), allocate(pool, totals)
        spare = [allocate(pool, spec), allocate(pool, spec)]
        fresh: Any = (allocate(pool, spec), spare.pop())
        for tally, before, move in steps:
            tally(count.address, keys.address)
            before(count.address, total.address)
            given = (keys.address, 0 if order is None else order.address)
            move(fresh[0].address, fresh[1].address, *given, count.address, total.address)
            old = (keys, spare.pop() if order is None else order)
            (keys, order), fresh = fresh, old
        return keys, order

    return run


def _launcher(client: Any, phase: int, grid: int, pointers: int, facts: bytes) -> Launcher:
    name = _PHASES[phase]
    source = instance(__file__, NAME=name, PHASE=phase)
    return Launcher(client, source, name, grid, THREADS, (1,) * pointers, [facts])


def _short(client: Any, spec: Any, passes: int, each: int) -> Sort:
    launch = _launcher(client, 3, 1, 4, struct.pack("<5I", spec.size, 0, passes, 0, each))

    def run(keys: Any) -> tuple[Any, Any]:
        order, other, others = (allocate(client.pool, spec) for _ in range(3))
        launch(keys.address, order.address, other.address, others.address)
        return (other, others) if passes % 2 else (keys, order)

    return run
