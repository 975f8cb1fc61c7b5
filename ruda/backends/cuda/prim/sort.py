"""Sorting along an axis, stable: by digits of order-preserving keys, least significant first.

Rows of up to 64 elements are ranked by a warp, up to 4096 sorted by a block in shared memory.
Longer ones take one pass over memory for each byte of the key: where the digits of a tile go
follows from the counts that the tiles before it show (A. Adinets and D. Merrill, "Onesweep", 2022).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.lines import last, placed
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType, uint8
from ruda.core.spec import spec_of

THREADS, DIGITS = 256, 256
LARGEST_BLOCK = 4096
# Keys of one thread in a pass over memory, by the bytes of a key.
ITEMS = {1: 24, 2: 24, 4: 24, 8: 12}

Run = Callable[[int, int, int, int], None]


class Order(NamedTuple):
    """What is sorted: ``rows`` of ``n`` elements, of which the first ``kept`` are written."""

    dtype: DType
    rows: int
    n: int
    descending: bool
    values: bool
    places: bool
    kept: int

    def kernel(self, mode: int, items: int, **more: object) -> tuple[str, str]:
        """Name and text of the kernel of ``mode``."""
        wide = self.n >= 2**30
        flags = "_desc" * self.descending + "_v" * self.values + "_p" * self.places
        extra = "".join(f"_{k.lower()}" for k, v in more.items() if v) + "_wide" * wide
        name = f"sort_{code_of(self.dtype)}{flags}_m{mode}_{items}{extra}"
        text = instance(
            __file__,
            NAME=name,
            X=stored(self.dtype),
            MODE=mode,
            THREADS=THREADS,
            ITEMS=items,
            DESCENDING=int(self.descending),
            PAIRS=int(self.places),
            VALUES=int(self.values),
            PLACES=int(self.places),
            STATUS="u64" if wide else "u32",
            **{k: int(bool(v)) for k, v in more.items()},
        )
        return name, text


def sorter(client: Any, order: Order) -> Run:
    """A function of four addresses: elements, sorted values, their int64 places, given places.

    Of outputs not asked for, and of given places (what is written for place i; rows up to
    ``LARGEST_BLOCK`` only) the address is 0.
    """
    if order.n <= 64:
        return _by_warp(client, order)
    if order.n <= LARGEST_BLOCK:
        return _by_block(client, order)
    return _by_passes(client, order)


def _by_warp(client: Any, order: Order) -> Run:
    warps = THREADS // 32
    grid = min(-(-order.rows // warps), client.driver.multiprocessors * 64)
    return _rows(client, order, order.kernel(1, 1), grid, 0)


def _by_block(client: Any, order: Order) -> Run:
    items = next(i for i in (2, 4, 16) if order.n <= THREADS * i)
    shared = _counts() + THREADS * items * (order.dtype.itemsize + 2)
    return _rows(client, order, order.kernel(2, items), order.rows, shared)


def _rows(client: Any, order: Order, kernel: tuple[str, str], grid: int, shared: int) -> Run:
    fixed = [struct.pack("<q", order.rows), struct.pack("<i", order.n)]
    fixed.append(struct.pack("<i", order.kept))
    name, text = kernel
    launch = Launcher(client, text, name, grid, THREADS, (1, 1, 1, 1), fixed, shared)
    return lambda x, values, places, given: launch(values, places, x, given)


def _counts() -> int:
    """Shared bytes of the counts of all warps, and room for sums."""
    return 4 * DIGITS * (THREADS // 32) + 4 * 64


class _Pass(NamedTuple):
    launch: Launcher
    # Whether it writes the outputs' memory, and not the scratch memory beside it.
    outward: bool


def _by_passes(client: Any, order: Order) -> Run:
    size, rows, n = order.dtype.itemsize, order.rows, order.n
    tiles = -(-n // (THREADS * ITEMS[size]))
    word = 8 if n >= 2**30 else 4
    starts = spec_of(client, (rows * size * DIGITS * word,), uint8)
    status = spec_of(client, (8 + rows * tiles * DIGITS * word,), uint8)
    count, sum_up = _histogram(client, order)
    passes = [_pass(client, order, p, tiles) for p in range(size)]
    scratch = spec_of(client, (rows * n * size,), uint8)
    pointers = spec_of(client, (rows * n * 4 * order.places,), uint8)
    pool = client.pool

    def run(x: int, values: int, places: int, given: int) -> None:
        first, shown = allocate(pool, starts), allocate(pool, status)
        aside = [allocate(pool, s) for s in (scratch, pointers)]
        beside = values, places
        if not order.values and size > 2:
            extra = allocate(pool, scratch)
            beside = extra.address, places
        client.fill_zero(first.address, starts.nbytes)
        count(first.address, x)
        sum_up(first.address)
        source, pointer = x, 0
        for step in passes:
            client.fill_zero(shown.address, status.nbytes)
            to, at = beside if step.outward else (aside[0].address, aside[1].address)
            step.launch(to, at, source, pointer, first.address, shown.address)
            source, pointer = to, at

    return run


def _histogram(client: Any, order: Order) -> tuple[Launcher, Launcher]:
    """Counts of all digits of all rows, and the places where digits start."""
    rows, n = order.rows, order.n
    parts = max(1, min(-(-n // (THREADS * 16)), client.driver.multiprocessors * 8 // rows))
    name, text = order.kernel(3, 1)
    fixed = [struct.pack("<q", n), struct.pack("<i", parts)]
    count = Launcher(client, text, name, rows * parts, THREADS, (1, 1), fixed)
    name, text = order.kernel(4, 1)
    return count, Launcher(client, text, name, rows * order.dtype.itemsize, DIGITS, (1,))


def _pass(client: Any, order: Order, number: int, tiles: int) -> _Pass:
    size = order.dtype.itemsize
    items, final = ITEMS[size], size - 1
    name, text = order.kernel(5, items, FIRST=number == 0, LAST=number == final)
    shared = 8 * DIGITS + _counts() + THREADS * items * (size + 4 * order.places)
    fixed = [struct.pack("<q", order.n), struct.pack("<q", tiles), struct.pack("<i", 8 * number)]
    grid = order.rows * tiles
    launch = Launcher(client, text, name, grid, THREADS, (1,) * 6, fixed, shared)
    return _Pass(launch, (final - number) % 2 == 0)


def sort(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The row ``sort``."""
    axis, descending = plan.attrs
    return _bind(client, plan, axis, descending, places=False)


def argsort(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The row ``argsort``, always stable."""
    axis, descending, _ = plan.attrs
    return _bind(client, plan, axis, descending, places=True)


def _bind(client: Any, plan: Any, axis: int, descending: bool, places: bool) -> Any:
    (x,), out = plan.specs, plan.out
    if not out.size:
        return lambda h: allocate(client.pool, out)
    fetch, rows, n = last(client, x, axis)
    if n >= 2**32:
        return None
    run = sorter(client, Order(x.dtype, rows, n, descending, not places, places, n))
    target = placed(client, out, axis)

    def ordered(h: Any) -> Any:
        address, _alive = fetch(h)
        result = target.make()
        run(address, 0 if places else result.address, result.address if places else 0, 0)
        return target.finish(result)

    return ordered


KERNELS = {"sort": sort, "argsort": argsort}
