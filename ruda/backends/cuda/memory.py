"""Device memory: blocks from a pool of size classes, handles over them, views of handles.

A block goes back to its pool when the last handle over it is gone, by reference count alone. All
work of a client runs in one stream, so a block may be handed out again at once: whoever used it
before is ahead in the queue.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ruda.core.errors import OutOfMemoryError
from ruda.core.spec import Spec

_SLAB = 2 << 20
_SMALL = 1 << 20


class Pool:
    """Free blocks by size class; memory comes from the driver and stays until ``release``."""

    def __init__(self, driver: Any, out_of_memory: type[Exception]) -> None:
        self.driver = driver
        self.out_of_memory = out_of_memory
        self.free: defaultdict[int, list[int]] = defaultdict(list)
        self.reserved = 0
        self.used = 0
        self.peak = 0

    def take(self, nbytes: int) -> tuple[int, int]:
        """Address and size class of a block of at least ``nbytes``."""
        size = size_class(nbytes)
        stock = self.free[size]
        # pop is one step under the GIL: two threads never get the same block.
        try:
            address = stock.pop()
        except IndexError:
            address = self._grow(size, nbytes)
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
        return address, size

    def give(self, address: int, size: int) -> None:
        """Take a block back."""
        self.used -= size
        self.free[size].append(address)

    def _grow(self, size: int, nbytes: int) -> int:
        if size > _SMALL:
            return self._from_driver(size, nbytes)
        slab = self._from_driver(_SLAB, nbytes)
        self.free[size].extend(slab + at for at in range(size, _SLAB - size + 1, size))
        return slab

    def _from_driver(self, size: int, nbytes: int) -> int:
        try:
            address = self.driver.allocate(size)
        except self.out_of_memory:
            self.release()
            try:
                address = self.driver.allocate(size)
            except self.out_of_memory:
                free, total = self.driver.memory()
                got = (
                    f"{nbytes:,} bytes asked for, {free:,} of {total:,} free, {self.used:,} in use"
                )
                hint = "a smaller batch, checkpoint, or dropping tensors"
                raise OutOfMemoryError(
                    "alloc", "the device is out of memory", got, hint=hint
                ) from None
        self.reserved += size
        return int(address)

    def release(self) -> None:
        """Give free large blocks back to the driver; slabs of small ones stay."""
        self.driver.wait_all()
        for size in [s for s in self.free if s > _SMALL]:
            for address in self.free.pop(size):
                self.driver.release(address)
                self.reserved -= size


def size_class(nbytes: int) -> int:
    """``nbytes`` rounded up: to a power of two up to 1 MiB, then in eighths of an octave."""
    if nbytes <= 512:
        return 512
    top = 1 << (nbytes - 1).bit_length()
    if nbytes <= _SMALL:
        return top
    step = max(top >> 4, _SLAB)
    return -(-nbytes // step) * step


class Block:
    """Memory of the device; gives itself back to the pool."""

    __slots__ = ("address", "pool", "size")

    address: int
    pool: Pool
    size: int

    def __del__(self) -> None:
        self.pool.give(self.address, self.size)


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


def allocate(pool: Pool, spec: Spec) -> Handle:
    """A fresh base handle over memory for ``spec``."""
    block = Block()
    block.pool = pool
    block.address, block.size = pool.take(spec.nbytes)
    handle = Handle()
    handle.address = block.address
    handle.block = block
    handle.spec = spec
    handle.version = 0
    handle.views = None
    return handle
