"""The first k along an axis: found by the digits of order-preserving keys, then sorted.

Short rows are sorted whole. For few winners blocks list the keys that may win, and the last block
of a row sorts what all of its blocks have listed. Else the k-th key is found digit by digit, by
several blocks a row where rows are few; the winners are written in the order of their places and
sorted stably. Of a tie the lower place comes first. For more than ``LARGEST_BLOCK`` winners all is
sorted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.lines import last, placed
from ruda.backends.cuda.prim.sort import LARGEST_BLOCK, Order, sorter
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType, int64, uint8
from ruda.core.spec import spec_of

# Elements of a pack, and packs that a thread has under way.
THREADS, _EACH, _DEEP, _LARGEST_PARTS = 256, 4, 4, 256
# Winners and elements of a row, up to which blocks make lists; packs that a thread of such a block
# has at once, of so many bytes; blocks of a multiprocessor.
_FEW, _LISTED = 96, 1 << 20
_LIST_DEEP, _LIST_BYTES, _LIST_BLOCKS = 4, 128, 4

Run = Callable[[int, int, int], None]


class Top(NamedTuple):
    """The first ``k`` of ``rows`` of ``n`` elements."""

    dtype: DType
    rows: int
    n: int
    k: int
    largest: bool

    @property
    def digit(self) -> int:
        """Bits of a digit."""
        return 8 if self.dtype.itemsize <= 2 else 11

    @property
    def deep(self) -> int:
        """Packs that a thread looks at at once where blocks make lists."""
        return max(1, min(_LIST_DEEP, _LIST_BYTES // (_EACH * self.dtype.itemsize)))

    def launcher(self, client: Any, mode: int, grid: int, slots: int, *fixed: int) -> Launcher:
        """The kernel of ``mode``, with ``fixed`` for its last parameters."""
        name = f"topk_{code_of(self.dtype)}" + "_least" * (not self.largest) + f"_m{mode}"
        text = instance(
            __file__,
            NAME=name,
            X=stored(self.dtype),
            LARGEST=int(self.largest),
            BINS=1 << self.digit if mode != 4 else 2048,
            THREADS=THREADS,
            DEEP=self.deep if mode == 4 else _DEEP,
            MODE=mode,
        )
        packed = [struct.pack("<q", value) for value in fixed]
        return Launcher(client, text, name, grid, THREADS, (1,) * slots, packed)


def topk(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The row ``topk``."""
    k, axis, largest = plan.attrs
    (x,), outs = plan.specs, plan.out
    if not outs[0].size:
        return lambda h: tuple(allocate(client.pool, out) for out in outs)
    fetch, rows, n = last(client, x, axis)
    if n >= 2**31:
        return None
    run = _chosen(client, Top(x.dtype, rows, n, k, largest))
    values, places = (placed(client, out, axis) for out in outs)

    def select(h: Any) -> Any:
        address, _alive = fetch(h)
        best, where = values.make(), places.make()
        run(address, best.address, where.address)
        return values.finish(best), places.finish(where)

    return select


def _chosen(client: Any, top: Top) -> Run:
    if top.n <= LARGEST_BLOCK:
        order = Order(top.dtype, top.rows, top.n, top.largest, True, True, top.k)
        run = sorter(client, order)
        return lambda x, values, places: run(x, values, places, 0)
    if top.k <= _FEW and top.n <= _LISTED:
        return _listed(client, top)
    return _selected(client, top) if top.k <= LARGEST_BLOCK else _cut(client, top)


def _listed(client: Any, top: Top) -> Run:
    """Lists of what may win, in one launch."""
    sweep = THREADS * _EACH * top.deep
    wanted = -(-client.driver.multiprocessors * _LIST_BLOCKS // top.rows)
    parts = max(1, min(wanted, -(-top.n // sweep)))
    chunk = -(-top.n // parts // sweep) * sweep
    parts = -(-top.n // chunk)
    lists = top.rows * parts * (parts > 1)
    slots = lists * THREADS
    ends = [0, slots * top.dtype.itemsize, slots * 4, lists * 4, top.rows * 4 * (parts > 1)]
    ends = [sum(-(-size // 8) * 8 for size in ends[: i + 1]) for i in range(len(ends))]
    work = spec_of(client, (ends[-1],), uint8)
    launch = top.launcher(client, 4, top.rows * parts, 8, top.n, chunk, parts, top.k)
    vectors = top.n % _EACH == 0

    def run(x: int, values: int, places: int) -> None:
        room = allocate(client.pool, work)
        at = [room.address + end for end in ends]
        if parts > 1:
            client.fill_zero(at[3], 4 * top.rows)
        launch(values, places, *at[:4], x, int(vectors and x & 15 == 0))

    return run


def _cut(client: Any, top: Top) -> Run:
    """Sort all, then take the first k."""
    order = Order(top.dtype, top.rows, top.n, top.largest, False, True, top.n)
    run = sorter(client, order)
    space = spec_of(client, (top.rows * top.n,), int64)
    grid = min(-(-top.rows * top.k // THREADS), client.driver.multiprocessors * 16)
    take = top.launcher(client, 3, grid, 4, top.rows, top.n, top.k)

    def cut(x: int, values: int, places: int) -> None:
        sorted_places = allocate(client.pool, space)
        run(x, 0, sorted_places.address, 0)
        take(values, places, x, sorted_places.address)

    return cut


def _parts(client: Any, top: Top) -> tuple[int, int]:
    """Blocks of a row, and how many elements each has."""
    wanted = -(-client.driver.multiprocessors * 4 // top.rows)
    parts = max(1, min(wanted, -(-top.n // 4096), _LARGEST_PARTS))
    step = THREADS * _EACH * _DEEP
    chunk = -(-top.n // parts // step) * step
    return -(-top.n // chunk), chunk


def _digits(top: Top) -> list[tuple[int, int]]:
    """Lowest bit and first bit above of each digit, from the highest; the last may be narrower."""
    bits = 8 * top.dtype.itemsize
    ends = range(bits, 0, -top.digit)
    return [(max(end - top.digit, 0), end) for end in ends]


def _selected(client: Any, top: Top) -> Run:
    rows, k = top.rows, top.k
    parts, chunk = _parts(client, top)
    digits = _digits(top)
    shared = (top.n, chunk, parts, k)
    finds = [
        top.launcher(client, 1, rows * parts, 5, *shared, shift, above) for shift, above in digits
    ]
    gather = top.launcher(client, 2, rows * parts, 6, *shared)
    order = sorter(client, Order(top.dtype, rows, k, top.largest, True, True, k))
    several = parts > 1
    counts = rows * 4 * several << top.digit
    shelf, arrived = 8 * (1 + rows * parts), 4 * rows * several
    zeroed = shelf + len(digits) * (counts + arrived)
    work = spec_of(client, (-(-zeroed // 16) * 16 + 16 * rows,), uint8)
    winners = spec_of(client, (rows, k), top.dtype), spec_of(client, (rows, k), int64)
    vectors = top.n % _EACH == 0

    def run(x: int, values: int, places: int) -> None:
        room = allocate(client.pool, work)
        best, where = (allocate(client.pool, spec) for spec in winners)
        client.fill_zero(room.address, zeroed)
        packed = int(vectors and x & 15 == 0)
        known = room.address + work.size - 16 * rows
        at = room.address + shelf
        for find in finds:
            find(known, at, at + counts, x, packed)
            at += counts + arrived
        gather(best.address, where.address, known, room.address, x, packed)
        order(best.address, values, places, where.address)

    return run


KERNELS = {"topk": topk}
