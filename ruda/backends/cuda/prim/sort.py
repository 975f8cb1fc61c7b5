"""Sorting along an axis, stable: by digits of order-preserving keys, least significant first.

Rows of up to 64 elements are ranked by a warp, up to 4096 sorted by a block in shared memory.
Longer ones take one pass over memory for each byte of the key: where the digits of a tile go
follows from the counts that the tiles before it show (A. Adinets and D. Merrill, "Onesweep", 2022).
Numbers below a limit, as places name slots, take a pass for each byte of the limit.
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
from ruda.core.dtypes import DType, int64, uint8, uint32
from ruda.core.spec import spec_of

THREADS, DIGITS = 256, 256
LARGEST_BLOCK = 4096


class Shape(NamedTuple):
    """Threads of a block, keys of a thread, and blocks of a multiprocessor in a pass."""

    threads: int
    items: int
    blocks: int


# By the bytes of a key: without places, and with them.
KEYS = {1: Shape(384, 18, 2), 2: Shape(384, 18, 2), 4: Shape(384, 18, 2), 8: Shape(384, 10, 2)}
PAIRS = {1: Shape(384, 12, 2), 2: Shape(384, 12, 2), 4: Shape(384, 12, 2), 8: Shape(384, 8, 2)}

Run = Callable[[int, int, int, int], None]


class Order(NamedTuple):
    """What is sorted: ``rows`` of ``n`` elements, of which the first ``kept`` are written.

    Of keys the lowest ``passes`` bytes count, or all; places are written as ``place``.
    """

    dtype: DType
    rows: int
    n: int
    descending: bool
    values: bool
    places: bool
    kept: int
    passes: int = 0
    place: DType = int64

    @property
    def digits(self) -> int:
        """Passes over the keys."""
        return self.passes or self.dtype.itemsize

    @property
    def word(self) -> int:
        """Bytes of a count of elements of a row."""
        return 8 if self.n >= 2**30 else 4

    def kernel(self, mode: int, shape: Shape, **more: object) -> tuple[str, str]:
        """Name and text of the kernel of ``mode``."""
        flags = "_desc" * self.descending + "_v" * self.values + "_p" * self.places
        extra = "".join(f"_{k.lower()}{v}" for k, v in more.items() if v)
        extra += "_wide" * (self.word == 8)
        extra += f"_of{self.digits}" * bool(self.passes) + "_u32" * (self.place is uint32)
        name = f"sort_{code_of(self.dtype)}{flags}_m{mode}_{shape.items}{extra}"
        text = instance(
            __file__,
            NAME=name,
            X=stored(self.dtype),
            MODE=mode,
            THREADS=shape.threads,
            ITEMS=shape.items,
            BLOCKS=shape.blocks,
            PASSES=self.digits,
            DESCENDING=int(self.descending),
            PAIRS=int(self.places),
            VALUES=int(self.values),
            PLACES=int(self.places),
            PLACE=stored(self.place),
            STATUS="u64" if self.word == 8 else "u32",
            **more,
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
    return _rows(client, order, order.kernel(1, Shape(THREADS, 1, 4)), grid, 0)


def _by_block(client: Any, order: Order) -> Run:
    items = next(i for i in (2, 4, 16) if order.n <= THREADS * i)
    shared = _counts(THREADS) + THREADS * items * (order.dtype.itemsize + 2)
    return _rows(client, order, order.kernel(2, Shape(THREADS, items, 2)), order.rows, shared)


def _rows(client: Any, order: Order, kernel: tuple[str, str], grid: int, shared: int) -> Run:
    fixed = [struct.pack("<q", order.rows), struct.pack("<i", order.n)]
    fixed.append(struct.pack("<i", order.kept))
    name, text = kernel
    launch = Launcher(client, text, name, grid, THREADS, (1, 1, 1, 1), fixed, shared)
    return lambda x, values, places, given: launch(values, places, x, given)


def _counts(threads: int) -> int:
    """Shared bytes of the counts of all warps, and room for sums."""
    return 4 * DIGITS * (threads // 32) + 4 * 64


class _Pass(NamedTuple):
    launch: Launcher
    # Whether it writes the outputs' memory, and not the scratch memory beside it.
    outward: bool


def _by_passes(client: Any, order: Order) -> Run:
    size, rows, n, word = order.dtype.itemsize, order.rows, order.n, order.word
    shape = (PAIRS if order.places else KEYS)[size]
    tiles = -(-n // (shape.threads * shape.items))
    starts = spec_of(client, (rows * order.digits * DIGITS * word,), uint8)
    status = spec_of(client, (8 + rows * tiles * DIGITS * word,), uint8)
    count, sum_up = _histogram(client, order)
    passes = [_pass(client, order, shape, p, tiles) for p in range(order.digits)]
    kept = rows * n * (len(passes) > 1)
    scratch = spec_of(client, (kept * size,), uint8)
    pointers = spec_of(client, (kept * 4 * order.places,), uint8)
    pool = client.pool

    def run(x: int, values: int, places: int, given: int) -> None:
        first, shown = allocate(pool, starts), allocate(pool, status)
        aside = [allocate(pool, s) for s in (scratch, pointers)]
        beside = values, places
        if not order.values and len(passes) > 2:
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
    rows, n, digits = order.rows, order.n, order.digits
    shape = Shape(2 * THREADS, 1, 1)
    shared = 4 * digits * DIGITS * (8 if digits > 4 else 16)
    wanted = -(-client.driver.multiprocessors * 3 // rows)
    parts = max(1, min(wanted, -(-n // (shape.threads * 16))))
    chunk = -(-n // parts // 64) * 64
    parts = -(-n // chunk)
    name, text = order.kernel(3, shape)
    fixed = [struct.pack("<q", value) for value in (n, chunk, parts)]
    count = Launcher(client, text, name, rows * parts, shape.threads, (1, 1), fixed, shared)
    name, text = order.kernel(4, shape)
    return count, Launcher(client, text, name, rows * digits, DIGITS, (1,))


def _pass(client: Any, order: Order, shape: Shape, number: int, tiles: int) -> _Pass:
    size, final = order.dtype.itemsize, order.digits - 1
    name, text = order.kernel(
        5, shape, FIRST=int(number == 0), LAST=int(number == final), SHIFT=8 * number
    )
    each = size + 4 * order.places
    shared = 4 * DIGITS + _counts(shape.threads) + shape.threads * shape.items * each
    count = order.rows * tiles
    grid = min(count, client.driver.multiprocessors * shape.blocks)
    fixed = [struct.pack("<q", order.n)]
    fixed += [struct.pack("<I", value) for value in (tiles, count)]
    launch = Launcher(client, text, name, grid, shape.threads, (1,) * 6, fixed, shared)
    return _Pass(launch, (final - number) % 2 == 0)


def numbering(client: Any, n: int, largest: int) -> Callable[[Any], tuple[Any, Any]]:
    """From the handle of ``n`` uint32 numbers up to ``largest`` to those sorted and their order.

    The order is stable and uint32 too; the numbers given stay as they are.
    """
    passes = -(-max(largest.bit_length(), 1) // 8)
    order = Order(uint32, 1, n, False, True, True, n, passes, uint32)
    run, spec = sorter(client, order), spec_of(client, (n,), uint32)

    def sort_numbers(numbers: Any) -> tuple[Any, Any]:
        values, places = allocate(client.pool, spec), allocate(client.pool, spec)
        run(numbers.address, values.address, places.address, 0)
        return values, places

    return sort_numbers


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
