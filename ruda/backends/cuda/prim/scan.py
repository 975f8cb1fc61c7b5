"""Scans along an axis: one pass over memory, deterministic, whichever axis it is.

Few long rows go tile by tile in one launch, each tile folding the totals shown by those before it
(after D. Merrill and M. Garland, "Single-pass parallel prefix scan with decoupled look-back",
2016), here always in the same order, so that floats round the same way in every run; blocks stay
and have their next tile on the way while they wait. Many rows get a block or some lanes each; along
an outer axis a thread walks down a column.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.lines import Lines, along
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import compute_of, uint8
from ruda.core.spec import Spec, spec_of

THREADS = 256
# Where blocks chain tiles: threads of one, blocks of a multiprocessor, tiles in the shared memory
# of a block, and shared memory for other things.
_CHAINED, _RESIDENT, _STAGES, _BESIDE = 384, 2, 3, 4096
# Packs of a thread in a tile, and the bytes of an item for each of them, that registers hold.
_MOST_PACKS, _HELD, _HELD_OF_PAIRS = 8, 48, 32
_OPS = {
    "cumsum": "SUM",
    "cumprod": "PROD",
    "cumlogsumexp": "LOGSUM",
    "linear_recurrence": "LINEAR",
    "cummax": "MAX",
    "cummin": "MIN",
}
_SEGMENTS = 64


class _Scan:
    """What all launches of one plan share."""

    def __init__(self, client: Any, plan: Any) -> None:
        op, specs, attrs = plan.op, plan.specs, plan.attrs
        self.client, self.op = client, op.name
        self.outs: tuple[Spec, ...] = plan.out if plan.out.__class__ is tuple else (plan.out,)
        self.out = self.outs[0]
        axis, self.exclusive, self.reverse = attrs[:3]
        wanted = op.dtype_of_operands(plan)
        self.compute = compute_of(wanted[0] or self.out.dtype)
        pairs = [along(client, s, self.out.shape, self.compute, axis) for s in specs]
        self.fetches = [fetch for fetch, _ in pairs]
        self.lines: list[Lines] = [lines for _, lines in pairs]
        self.stored = [self.compute if s.weak else s.dtype for s in specs]
        self.rows, self.n, self.inner, _ = self.lines[0]
        places = len(self.outs) > 1
        self.place = "i64" if self.n >= 2**31 else "i32"
        parts = 2 if op.name == "linear_recurrence" else 1
        extra = (8 if self.place == "i64" else 4) if places else 0
        self.item = _padded(parts * self.compute.itemsize + extra, places, extra, self.compute)
        widest = max(self.out.dtype.itemsize, *(d.itemsize for d in self.stored))
        self.pack = 8 if widest <= 2 else 4
        self.threads, self.blocks = THREADS, 2
        self.repeat = max(1, min(4, 64 // (self.pack * self.item)))

    def source(self, mode: int, lanes: int = 0) -> tuple[str, str]:
        """Name and text of the kernel of ``mode``."""
        dtypes = [*self.stored, self.out.dtype]
        flags = "_ex" * self.exclusive + "_rev" * self.reverse
        wide = "_wide" * (self.place == "i64" and len(self.outs) > 1)
        kinds = "_".join(code_of(d) for d in (*dtypes, self.compute))
        name = f"{self.op}_{kinds}{flags}{wide}_m{mode}" + (f"_l{lanes}" if lanes else "")
        name += f"_r{self.repeat}" * (mode == 3)
        text = instance(
            __file__,
            NAME=name,
            OP=_OPS[self.op],
            T=computed(self.compute),
            X=stored(self.stored[0]),
            Y=stored(self.stored[-1]),
            OUT=stored(self.out.dtype),
            PLACE=self.place,
            REVERSE=int(self.reverse),
            EXCLUSIVE=int(self.exclusive),
            V=self.pack,
            R=self.repeat,
            THREADS=self.threads,
            BLOCKS=self.blocks,
            MODE=mode,
            LANES=lanes,
        )
        return name, text

    def geometry(self, tiles: int = 1, segment: int = 0) -> bytes:
        """The struct Geometry."""
        steps = [*self.lines[0].strides, *self.lines[-1].strides]
        numbers = (self.rows, self.n, self.inner, *steps, tiles, segment)
        return struct.pack(f"<{len(numbers)}q", *numbers)

    def launcher(
        self, mode: int, grid: Any, extra: int, geometry: bytes, lanes: int = 0, shared: int = 0
    ) -> Launcher:
        """A launcher with ``extra`` slots between the inputs and the geometry."""
        name, text = self.source(mode, lanes)
        slots = (1,) * (len(self.outs) + 2 + extra)
        return Launcher(self.client, text, name, grid, self.threads, slots, [geometry], shared)

    def packs(self) -> bool:
        """Whether the geometry lets a thread read and write several elements at once."""
        v = self.pack
        even = self.n % v == 0 or (self.rows == 1 and not self.reverse)
        return even and all(
            lines.strides[1] == 1 and (self.rows == 1 or lines.strides[0] % v == 0)
            for lines in self.lines
        )


def _padded(size: int, places: bool, extra: int, compute: Any) -> int:
    """Bytes of an item in C: a value and a place align to the larger of the two."""
    align = max(extra, compute.itemsize) if places else 1
    return -(-size // align) * align


def bind(client: Any, plan: Any) -> Callable[..., Any]:
    """The function from operands to the scan's output or outputs."""
    several = plan.out.__class__ is tuple
    outs = plan.out if several else (plan.out,)
    queue = _queue(client, plan) if outs[0].size else None
    pool = client.pool

    def run(*handles: Any) -> Any:
        results = tuple(allocate(pool, out) for out in outs)
        if queue is not None:
            queue([r.address for r in results], handles)
        return results if several else results[0]

    return run


def _queue(client: Any, plan: Any) -> Callable[..., None]:
    scan = _Scan(client, plan)
    if scan.inner > 1:
        return _columns(client, scan)
    tile = THREADS * scan.pack * scan.repeat
    if scan.rows < 2 * client.driver.multiprocessors and scan.n > 2 * tile:
        return _chained(client, scan)
    return _lanes(client, scan)


def _reached(scan: _Scan, handles: Any) -> tuple[list[int], list[Any]]:
    """Addresses of the two inputs, the only one twice, and what keeps them alive."""
    found = [fetch(h) for fetch, h in zip(scan.fetches, handles, strict=True)]
    return [found[0][0], found[-1][0]], [keep for _, keep in found]


def _aligned(packs: bool, addresses: list[int]) -> int:
    joint = 0 if packs else 1
    for address in addresses:
        joint |= address
    return int(joint & 15 == 0)


def _lanes(client: Any, scan: _Scan) -> Callable[..., None]:
    """A few lanes or a block to a row."""
    lanes = next((k for k in (4, 32) if scan.n <= k * scan.pack * 2), 0)
    # A warp has no shared memory to spread over: packs of eight would not fit its registers.
    scan.pack = min(scan.pack, 4) if lanes else scan.pack
    packs = scan.packs()
    rows = THREADS // lanes if lanes else 1
    grid = min(-(-scan.rows // rows), client.driver.multiprocessors * 32)
    launch = scan.launcher(1 if lanes else 2, grid, 1, scan.geometry(), lanes)

    def queue(outs: list[int], handles: Any) -> None:
        inputs, _alive = _reached(scan, handles)
        launch(*outs, *inputs, _aligned(packs, outs + inputs))

    return queue


def _chained(client: Any, scan: _Scan) -> Callable[..., None]:
    """One pass over few long rows; what tiles wait for is zeroed first."""
    each = _chain(client, scan)
    packs = scan.packs()
    tiles = -(-scan.n // (scan.threads * scan.pack * scan.repeat))
    grid = min(scan.rows * tiles, client.driver.multiprocessors * _RESIDENT)
    shared = _STAGES * scan.repeat * each
    launch = scan.launcher(3, grid, 2, scan.geometry(tiles), shared=shared)
    nbytes = 8 * (1 + scan.rows * tiles * -(-scan.item // 4))
    work = spec_of(client, (nbytes,), uint8)

    def queue(outs: list[int], handles: Any) -> None:
        inputs, _alive = _reached(scan, handles)
        room = allocate(client.pool, work)
        client.fill_zero(room.address, nbytes)
        launch(*outs, *inputs, room.address, _aligned(packs, outs + inputs))

    return queue


def _chain(client: Any, scan: _Scan) -> int:
    """Set the tiles that blocks chain, which fill shared memory; returns the bytes of their packs.

    Packs are of up to 16 bytes, but no less than the 4 that are copied at once. Where blocks
    would have few, tiles are smaller.
    """
    sizes = [d.itemsize for d in scan.stored[: 2 if scan.op == "linear_recurrence" else 1]]
    scan.threads, scan.blocks = _CHAINED, _RESIDENT
    most = 8 if len(scan.outs) == 1 else 4
    scan.pack = min(most, max(16 // max(scan.out.dtype.itemsize, *sizes), 4 // min(sizes), 1))
    if scan.op not in ("cumsum", "cumprod"):
        # A byte takes a register as a float does: more of them would not be held.
        scan.pack = min(scan.pack, 8)
    each = scan.threads * scan.pack * sum(sizes)
    room = client.driver.shared_memory // _RESIDENT - _BESIDE
    held = _HELD if scan.op in ("cumsum", "cumprod") else _HELD_OF_PAIRS
    scan.repeat = max(1, min(_MOST_PACKS, room // (_STAGES * each), held // scan.item))
    tile = scan.threads * scan.pack * scan.repeat
    if scan.rows * scan.n < 2 * _RESIDENT * client.driver.multiprocessors * tile:
        scan.repeat = min(scan.repeat, 2)
    return each


def _columns(client: Any, scan: _Scan) -> Callable[..., None]:
    """A thread to a column, or to one segment of it where columns are few."""
    columns = scan.rows * scan.inner
    wanted = -(-client.driver.multiprocessors * 2048 // columns)
    segments = max(1, min(wanted, scan.n // 32, _SEGMENTS))
    segment = -(-scan.n // segments)
    segments = -(-scan.n // segment)
    grid = (-(-columns // THREADS), segments)
    geometry = scan.geometry(1, segment)
    launch = scan.launcher(4, grid, 1, geometry)
    totals = scan.launcher(5, grid, 1, geometry) if segments > 1 else None
    work = spec_of(client, (segments * columns * scan.item,), uint8)

    def queue(outs: list[int], handles: Any) -> None:
        inputs, _alive = _reached(scan, handles)
        room = allocate(client.pool, work) if totals is not None else None
        place = 0 if room is None else room.address
        if totals is not None:
            totals(*outs, *inputs, place)
        launch(*outs, *inputs, place)

    return queue


KERNELS = dict.fromkeys(_OPS, bind)
