"""Device memory: blocks from a pool of size classes, handles over them, views of handles.

A block goes back to its pool when the last handle over it is gone, by reference count alone. While
all work of a client runs in one stream a block may be handed out again at once: whoever used it
before is ahead in the queue. What goes beyond that (several streams, memory of graphs, red zones,
records of where memory was asked for) is in ``pool_guards.py`` and costs the common path one test.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from ruda.backends.cuda import snapshot
from ruda.core.errors import OutOfMemoryError
from ruda.core.spec import Spec

_SLAB = 2 << 20
_SMALL = 1 << 20
# How many sizes are remembered.
_SIZES = 1 << 16


class Part(int):
    """The size of a block in memory that was planned beforehand: 0, as its piece counts for it.

    Several arenas may part one piece, each in its own way: an address does not tell whose it is.
    """

    arena: Arena

    def __new__(cls, arena: Arena) -> Self:
        """No bytes, of ``arena``."""
        size = super().__new__(cls, 0)
        size.arena = arena
        return size


class Arena:
    """Free blocks by size class, and the segments of the driver that they are parts of."""

    def __init__(self) -> None:
        self.free: defaultdict[int, list[int]] = defaultdict(list)
        # Address of each segment to its size and, for a slab of small blocks, their size.
        self.segments: dict[int, tuple[int, int]] = {}
        # Graphs that touch its free blocks at every replay, so that none of them may go.
        self.graphs = 0

    def part(self, nbytes: int) -> int:
        """The address of a block that was planned beforehand; 0 where nothing was."""
        return 0

    def back(self, address: int, mark: Any = None) -> bool:
        """Whether ``address`` is such a block, which is free from now on."""
        return False

    def owns(self, address: int) -> bool:
        """Whether ``address`` lies in memory that was planned beforehand."""
        return False

    def beneath(self, address: int) -> Sequence[Any]:
        """The marks of the planned blocks that had memory of the one at ``address`` before it."""
        return ()

    def cached(self) -> int:
        """Bytes of all free blocks."""
        return sum(size * len(stock) for size, stock in list(self.free.items()))

    def fitting(self, size: int, waste: float) -> int:
        """The smallest class with a free block for ``size`` that is not too large; or 0.

        Small blocks lie in slabs of their own class and are never used for another.
        """
        if size <= _SMALL:
            return 0
        most = size + int(size * waste)
        return min(
            (s for s, stock in list(self.free.items()) if size < s <= most and stock), default=0
        )

    def whole_slabs(self) -> list[tuple[int, int]]:
        """The slabs of which every block is free, with the size of their blocks."""
        out = []
        for slab, (whole, piece) in self.segments.items():
            if piece and set(range(slab, slab + whole - piece + 1, piece)) <= set(self.free[piece]):
                out.append((slab, piece))
        return out


class _Classes(dict[int, int]):
    """The size class of each number of bytes that was asked for."""

    def __init__(self, shift: int) -> None:
        self.shift = shift

    def __missing__(self, nbytes: int) -> int:
        if len(self) >= _SIZES:
            self.clear()
        size = self[nbytes] = size_class(nbytes, self.shift)
        return size


class _Waste(threading.local):
    """Whether the calling thread takes no block that is larger than its class."""

    none = False


class Pool:
    """Memory of one device: ``take`` and ``give`` blocks; more comes from the driver on demand.

    ``special`` is None, or the ``Guards`` that take over both. ``plain`` says that neither they nor
    another class do, so that what is done for each tensor is written out where it is made.
    """

    def __init__(self, driver: Any, out_of_memory: type[Exception]) -> None:
        self.driver = driver
        # Where segments come from: the driver, or an allocator of the user's own.
        self.source = driver
        self.sources: dict[int, Any] = {}
        self.out_of_memory = out_of_memory
        self.arena = Arena()
        self.free = self.arena.free
        self.plain = type(self) is Pool
        self._special: Any = None
        self.limit: int | None = None
        # Of RUDA_ALLOC_CONF: waste of a free block, classes per octave, share to be tidy from.
        self.split = 0.25
        self._waste = _Waste()
        self.classes = _Classes(4)
        self.gc_threshold: float | None = None
        self.reserved = self.peak_reserved = 0
        self.used = self.peak = 0
        self.counts = {"segments_made": 0, "segments_freed": 0, "retries": 0, "out_of_memory": 0}

    @property
    def special(self) -> Any:
        """The guards, once there are any."""
        return self._special

    @special.setter
    def special(self, guards: Any) -> None:
        self.plain, self._special = False, guards

    @property
    def shift(self) -> int:
        """How finely sizes are rounded; see ``size_class``."""
        return self.classes.shift

    @shift.setter
    def shift(self, value: int) -> None:
        self.classes = _Classes(value)

    def take(self, nbytes: int) -> tuple[int, int]:
        """Address and size of a block of at least ``nbytes``."""
        if self._special is not None:
            return self._special.take(nbytes)
        size = self.classes[nbytes]
        # pop is one step under the GIL: two threads never get the same block.
        try:
            address = self.free[size].pop()
        except IndexError:
            address = 0
        if not address:
            address, size = self.grow(self.arena, size, nbytes)
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
        return address, size

    @contextlib.contextmanager
    def exact(self) -> Iterator[None]:
        """The calling thread gets blocks of their own classes, though larger ones may be free."""
        before, self._waste.none = self._waste.none, True
        try:
            yield
        finally:
            self._waste.none = before

    def take_piece(self, nbytes: int) -> tuple[int, int]:
        """As ``take``, for what is kept long: in steps of 2 MiB, and of no larger a block."""
        if nbytes <= _SMALL:
            return self.take(nbytes)
        size = piece_class(nbytes)
        try:
            address = self.free[size].pop()
        except IndexError:
            address = self._segment(self.arena, size, 0, nbytes)
        if self.special is not None:
            self.special.order.took(address)
        self.used += size
        self.peak = max(self.peak, self.used)
        return address, size

    def give(self, address: int, size: int) -> None:
        """Take a block back."""
        if self._special is not None:
            self._special.give(address, size)
            return
        self.used -= size
        self.free[size].append(address)

    def grow(self, arena: Arena, size: int, nbytes: int) -> tuple[int, int]:
        """A block for ``arena`` where its class has none left: its address and real size."""
        if size > _SMALL:
            fit = arena.fitting(size, 0.0 if self._waste.none else self.split)
            if fit:
                with contextlib.suppress(IndexError):
                    return arena.free[fit].pop(), fit
            return self._segment(arena, size, 0, nbytes), size
        slab = self._segment(arena, _SLAB, size, nbytes)
        arena.free[size].extend(slab + at for at in range(size, _SLAB - size + 1, size))
        return slab, size

    def _segment(self, arena: Arena, size: int, piece: int, nbytes: int) -> int:
        """Memory from the source; after what is cached was given back if need be."""
        if self.gc_threshold is not None and self.limit is not None:
            tidy = self.reserved + size > self.gc_threshold * self.limit
            if tidy and not (self.special is not None and self.special.capturing):
                self.release()
        address = self._ask(size)
        if address is None and (self.special is None or not self.special.capturing):
            self.counts["retries"] += 1
            self.release()
            address = self._ask(size)
        if address is None:
            self.counts["out_of_memory"] += 1
            raise self._none_left(nbytes)
        self.sources[address] = self.source
        arena.segments[address] = size, piece
        self.counts["segments_made"] += 1
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return address

    def _ask(self, size: int) -> int | None:
        if self.limit is not None and self.reserved + size > self.limit:
            return None
        try:
            return int(self.source.allocate(size))
        except self.out_of_memory:
            return None

    def _none_left(self, nbytes: int) -> OutOfMemoryError:
        free, total = self.driver.memory()
        got = f"{nbytes:,} bytes asked for on cuda:{self.driver.index}"
        got += f", {free:,} of {total:,} free, {self.used:,} in use"
        if self.limit is not None:
            got += f", a limit of {self.limit:,}"
        held = snapshot.largest(self)
        what = "the device is out of memory"
        if held:
            what += "; the largest holders are " + ", ".join(held)
        return OutOfMemoryError(
            "alloc", what, got, hint="a smaller batch, checkpoint, or dropping tensors"
        )

    def release(self) -> int:
        """Give what is free back to the driver: large blocks and whole slabs; returns the bytes.

        Memory of a graph stays: its replays touch the blocks that came and went inside it.
        """
        self.driver.wait_all()
        arenas = [self.arena] if self.special is None else [self.arena, *self.special.arenas]
        return sum(self._release(arena) for arena in arenas if not arena.graphs)

    def _release(self, arena: Arena) -> int:
        freed = 0
        for size in [s for s in arena.free if s > _SMALL]:
            for address in arena.free.pop(size):
                freed += self._drop(arena, address)
        for slab, piece in arena.whole_slabs():
            end = slab + arena.segments[slab][0]
            arena.free[piece] = [a for a in arena.free[piece] if not slab <= a < end]
            freed += self._drop(arena, slab)
        return freed

    def _drop(self, arena: Arena, address: int) -> int:
        size = arena.segments.pop(address)[0]
        if self.special is not None:
            self.special.forget(address, size)
        self.sources.pop(address).release(address)
        self.counts["segments_freed"] += 1
        self.reserved -= size
        return size

    def segment_of(self, address: int) -> tuple[int, int]:
        """Start and size of the driver's allocation that ``address`` lies in; (0, 0) for none."""
        arenas = [self.arena] if self.special is None else [self.arena, *self.special.arenas]
        for arena in arenas:
            for start, (size, _) in list(arena.segments.items()):
                if start <= address < start + size:
                    return start, size
        return 0, 0

    def statistics(self) -> dict[str, int]:
        """Bytes in use, reserved, their peaks, cached, and how often what happened."""
        return {
            "allocated": self.used,
            "peak_allocated": self.peak,
            "reserved": self.reserved,
            "peak_reserved": self.peak_reserved,
            "cached": self.arena.cached(),
            "segments": len(self.sources),
            "limit": 0 if self.limit is None else self.limit,
            **self.counts,
        }


def size_class(nbytes: int, shift: int = 4) -> int:
    """``nbytes`` rounded up: to a power of two up to 1 MiB, then in eighths of an octave.

    ``shift`` 4 stands for the eighths, 3 for quarters and so on.
    """
    if nbytes <= 512:
        return 512
    top = 1 << (nbytes - 1).bit_length()
    if nbytes <= _SMALL:
        return top
    step = max(top >> shift, _SLAB)
    return -(-nbytes // step) * step


def piece_class(nbytes: int, shift: int = 4) -> int:
    """``nbytes`` as ``take_piece`` rounds them."""
    return size_class(nbytes, shift) if nbytes <= _SMALL else -(-nbytes // _SLAB) * _SLAB


class Block:
    """Memory of the device; gives itself back to the pool."""

    __slots__ = ("address", "pool", "size")

    address: int
    pool: Pool
    size: int

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        pool = self.pool
        if pool.plain:
            pool.used -= self.size
            pool.free[self.size].append(self.address)
        elif not ending():
            # Later on the names that the guards look up are gone, and so is all memory soon.
            pool.give(self.address, self.size)


class Borrowed:
    """Memory that another library owns: what it is kept by, and what to do when it is let go."""

    __slots__ = ("address", "client", "owner", "read_only")

    def __init__(self, client: Any, address: int, owner: Any, read_only: bool) -> None:
        self.client = client
        self.address = address
        self.owner = owner
        self.read_only = read_only

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self.client.let_go(self)


class Handle:
    """The base handle of one tensor: where its memory is, its version, its views."""

    __slots__ = ("__weakref__", "address", "block", "spec", "version", "views")

    root = None
    offset = 0

    address: int
    block: Any
    spec: Spec
    version: int
    views: list[Any] | None


class ViewHandle:
    """Memory of ``root`` from ``address`` on, shown as ``spec`` says."""

    __slots__ = ("__weakref__", "address", "owner", "root", "spec")

    def __init__(self, address: int, spec: Spec, root: Handle) -> None:
        self.address = address
        self.spec = spec
        self.root = root
        self.owner: Any = None

    @property
    def version(self) -> int:
        """The version of the base: a change through any view counts for all."""
        return self.root.version

    @version.setter
    def version(self, value: int) -> None:
        self.root.version = value

    @property
    def offset(self) -> int:
        """Elements between the start of the base and the start of this view."""
        return (self.address - self.root.address) // self.spec.dtype.itemsize


class Place(NamedTuple):
    """An address alone, for who asks nothing else of a handle or a block, as writers do."""

    address: int


def handle_over(block: Any, address: int, spec: Spec) -> Handle:
    """A base handle over memory that ``block`` keeps."""
    handle = Handle()
    handle.address, handle.block, handle.spec = address, block, spec
    handle.version, handle.views = 0, None
    return handle


def allocate_piece(pool: Pool, spec: Spec) -> Handle:
    """As ``allocate``, by ``take_piece``."""
    address, size = pool.take_piece(spec.nbytes)
    block = Block()
    block.pool, block.address, block.size = pool, address, size
    return handle_over(block, address, spec)


def allocate(pool: Pool, spec: Spec) -> Handle:
    """A fresh base handle over memory for ``spec``."""
    # A block that was made before the pool has run out would have nothing to give back.
    if pool.plain:
        size = pool.classes[spec.nbytes]
        try:
            address = pool.free[size].pop()
        except IndexError:
            address = 0
        if not address:
            address, size = pool.grow(pool.arena, size, spec.nbytes)
        used = pool.used = pool.used + size
        if used > pool.peak:
            pool.peak = used
    else:
        address, size = pool.take(spec.nbytes)
    block = Block()
    block.pool = pool
    block.address = address
    block.size = size
    handle = Handle()
    handle.address = address
    handle.block = block
    handle.spec = spec
    handle.version = 0
    handle.views = None
    return handle
