"""Rows whose length depends on values: places of what is true, distinct values, repeated places.

Each counts on the device, waits once for the number, and writes outputs of exactly that size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.lines import dense
from ruda.backends.cuda.prim.sort import Order, sorter
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType, complex64, float32, float64, int64, uint8
from ruda.core.errors import ArgumentError, StrategyError
from ruda.core.spec import Spec, spec_of

THREADS, TILE, _MOST_AXES = 256, 16384, 16
_KINDS = {"mask": 0, "steps": 1, "counts": 2}


class Compaction:
    """The three launches over ``n`` elements of ``dtype``; see ``compact.cu`` for the kinds."""

    def __init__(self, client: Any, kind: str, dtype: DType, n: int, shape: Any = ()) -> None:
        self.client, self.kind, self.dtype, self.n, self.shape = client, kind, dtype, n, shape
        self.tiles = -(-n // TILE)
        self.sums = spec_of(client, (self.tiles + 2,), int64)
        self.ends = spec_of(client, (2,), int64)
        long = struct.pack("<q", n)
        self._count = self._launcher(1, self.tiles, 2, [long])
        self._sum = _kernel(client, "compact_sums", 1, 1, [struct.pack("<q", self.tiles)], MODE=2)

    def _launcher(self, mode: int, grid: int, slots: int, fixed: list[bytes]) -> Launcher:
        name = f"compact_{self.kind}_{code_of(self.dtype)}_m{mode}"
        settings = {"X": stored(self.dtype), "KIND": _KINDS[self.kind], "MODE": mode}
        return _kernel(self.client, name, grid, slots, fixed, **settings)

    def count(self, x: int) -> tuple[Any, int, int]:
        """The sums before the tiles, the whole, and the least count below 0; waits."""
        room = allocate(self.client.pool, self.sums)
        low = room.address + 8 * (self.tiles + 1)
        self.client.fill_zero(low, 8)
        self._count(room.address, x)
        self._sum(room.address)
        read = self.client.view(room, self.ends, self.tiles)
        total, least = self.client.read(self.ends, read).tolist()
        return room, total, least

    def write(self, total: int, *addresses: int) -> None:
        """Write what is kept, ``total`` of it; the addresses are those of the kernel."""
        sizes = (*self.shape, *(1,) * (_MOST_AXES - len(self.shape)))
        numbers = (self.n, total, *sizes, len(self.shape))
        fixed = [struct.pack(f"<{len(numbers)}q", *numbers)]
        self._launcher(3, self.tiles, 8, fixed)(*addresses)


def _kernel(
    client: Any, name: str, grid: int, slots: int, fixed: list[bytes], **settings: object
) -> Launcher:
    text = instance(__file__, NAME=name, **settings)
    return Launcher(client, text, name, grid, THREADS, (1,) * slots, fixed)


def _spread(
    client: Any, name: str, count: int, slots: int, fixed: tuple[int, ...], **settings: object
) -> Launcher:
    """A kernel with a thread to each of ``count`` elements."""
    grid = min(-(-count // THREADS), client.driver.multiprocessors * 16)
    packed = [struct.pack("<q", value) for value in fixed]
    return _kernel(client, name, grid, slots, packed, **settings)


def _fresh(client: Any, shape: Any, dtype: DType) -> tuple[Spec, Any]:
    spec = spec_of(client, shape, dtype)
    return spec, allocate(client.pool, spec)


def true_places(client: Any, plan: Any) -> Callable[..., Any]:
    """The row ``true_places``: ``[rank, count]``."""
    (mask,) = plan.specs
    rank = max(mask.ndim, 1)
    if mask.ndim > _MOST_AXES:
        raise StrategyError("nonzero", f"more than {_MOST_AXES} axes", mask, hint="reshape")
    if not mask.size:
        return lambda h: _fresh(client, (rank, 0), int64)
    fetch = dense(client, mask)
    kept = Compaction(client, "mask", mask.dtype, mask.size, mask.shape or (1,))

    def run(h: Any) -> Any:
        x, _alive = fetch(h)
        sums, total, _ = kept.count(x)
        spec, out = _fresh(client, (rank, total), int64)
        if total:
            kept.write(total, 0, out.address, 0, 0, sums.address, x, 0, 0)
        return spec, out

    return run


def repeated_places(client: Any, plan: Any) -> Callable[..., Any]:
    """The row ``repeated_places``."""
    (counts,) = plan.specs
    if not counts.size:
        return lambda h: _fresh(client, (0,), int64)
    fetch = dense(client, counts)
    n = counts.size
    kept = Compaction(client, "counts", counts.dtype, n)
    running = spec_of(client, (n,), int64)

    def run(h: Any) -> Any:
        x, _alive = fetch(h)
        sums, total, least = kept.count(x)
        if least < 0:
            raise ArgumentError("repeat", "a count is negative", least, "at least 0")
        spec, out = _fresh(client, (total,), int64)
        if total:
            ends = allocate(client.pool, running)
            kept.write(total, 0, ends.address, 0, 0, sums.address, x, 0, 0)
            find = _spread(client, "repeated_places", total, 2, (total, n), MODE=5)
            find(out.address, ends.address)
        return spec, out

    return run


Sorted = Callable[[int], tuple[Any, Any]]


def _sorted(client: Any, dtype: DType, n: int) -> Sorted:
    """From an address to the sorted elements and, int64, where they were."""
    values, places = spec_of(client, (n,), dtype), spec_of(client, (n,), int64)
    if dtype.kind == "complex":
        return _sorted_complex(client, values, places)
    order = sorter(client, Order(dtype, 1, n, False, True, True, n))

    def run(x: int) -> tuple[Any, Any]:
        out, where = allocate(client.pool, values), allocate(client.pool, places)
        order(x, out.address, where.address, 0)
        return out, where

    return run


def _sorted_complex(client: Any, values: Spec, places: Spec) -> Sorted:
    """By imaginary parts, then stably by real parts, then by which parts are NaN."""
    n, dtype, pool = values.size, values.dtype, client.pool
    real = float32 if dtype is complex64 else float64
    steps = []
    for part, kind in ((1, real), (0, real), (2, uint8)):
        settings = {"X": stored(dtype), "OUT": stored(kind), "PART": part, "MODE": 6}
        name = f"complex_part{part}_{code_of(dtype)}"
        take = _spread(client, name, n, 3, (n,), **settings)
        order = sorter(client, Order(kind, 1, n, False, False, True, n))
        steps.append((take, order, spec_of(client, (n,), kind)))
    follow = _gathered(client, places)
    pick = _gathered(client, values)

    def run(x: int) -> tuple[Any, Any]:
        where = None
        for take, order, line in steps:
            keys, next_places = allocate(pool, line), allocate(pool, places)
            take(keys.address, x, 0 if where is None else where.address)
            order(keys.address, 0, next_places.address, 0)
            where = next_places if where is None else follow(where.address, next_places.address)
        return pick(x, where.address), where  # type: ignore[union-attr]

    return run


def _gathered(client: Any, spec: Spec) -> Callable[[int, int], Any]:
    """A function of two addresses to a fresh ``a[b[i]]`` of ``spec``."""
    name = f"picked_{code_of(spec.dtype)}"
    take = _spread(client, name, spec.size, 3, (spec.size,), X=stored(spec.dtype), MODE=7)

    def run(a: int, b: int) -> Any:
        out = allocate(client.pool, spec)
        take(out.address, a, b)
        return out

    return run


def unique_all(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The row ``unique_all``: values, first places, inverse, counts."""
    (x,) = plan.specs
    if x.size >= 2**32:
        return None
    if not x.size:
        return lambda h: _none(client, x)
    n, fetch = x.size, dense(client, x)
    arrange = _sorted(client, x.dtype, n)
    kept = Compaction(client, "steps", x.dtype, n)
    every = spec_of(client, (n,), int64)

    def run(h: Any) -> Any:
        address, _alive = fetch(h)
        line, places = arrange(address)
        sums, total, _ = kept.count(line.address)
        results = [_fresh(client, (total,), d) for d in (x.dtype, int64)]
        results += [_fresh(client, s, int64) for s in (x.shape, (total,))]
        values, first, inverse, counts = (handle.address for _, handle in results)
        starts = allocate(client.pool, every)
        order = places.address
        out = (values, first, inverse, starts.address)
        kept.write(total, *out, sums.address, line.address, order, address)
        count = _spread(client, "unique_counts", total, 2, (total, n), MODE=4)
        count(counts, starts.address)
        return tuple(zip(*results, strict=True))

    return run


def _none(client: Any, x: Spec) -> Any:
    """The results of ``unique_all`` for no elements."""
    dtypes = (x.dtype, int64, int64, int64)
    shapes = ((0,), (0,), x.shape, (0,))
    results = [_fresh(client, s, d) for s, d in zip(shapes, dtypes, strict=True)]
    return tuple(zip(*results, strict=True))


def unique_values(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The row ``unique_values``."""
    (x,) = plan.specs
    if x.size >= 2**32:
        return None
    if not x.size:
        return lambda h: _fresh(client, (0,), x.dtype)
    n, fetch = x.size, dense(client, x)
    arrange = _line(client, x.dtype, n)
    kept = Compaction(client, "steps", x.dtype, n)

    def run(h: Any) -> Any:
        address, _alive = fetch(h)
        line = arrange(address)
        sums, total, _ = kept.count(line.address)
        spec, out = _fresh(client, (total,), x.dtype)
        kept.write(total, out.address, 0, 0, 0, sums.address, line.address, 0, 0)
        return spec, out

    return run


def _line(client: Any, dtype: DType, n: int) -> Callable[[int], Any]:
    """From an address to the sorted elements alone."""
    if dtype.kind == "complex":
        arrange = _sorted(client, dtype, n)
        return lambda x: arrange(x)[0]
    spec = spec_of(client, (n,), dtype)
    order = sorter(client, Order(dtype, 1, n, False, True, False, n))

    def run(x: int) -> Any:
        out = allocate(client.pool, spec)
        order(x, out.address, 0, 0)
        return out

    return run


KERNELS = {
    "true_places": true_places,
    "repeated_places": repeated_places,
    "unique_all": unique_all,
    "unique_values": unique_values,
}
