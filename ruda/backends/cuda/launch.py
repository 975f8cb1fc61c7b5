"""Launching kernels: argument blocks built once per plan.

An argument block is a row of 8-byte slots and a table of their addresses, which is what the driver
wants. A launch stores pointers into the slots and calls the driver; a block is used by one thread
at a time, taken from and returned to the kernel's own stock.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ruda.core.dtypes import DType
from ruda.core.errors import DeviceError

_collecting: list[tuple[int, list[Any]]] = []


@contextmanager
def collected() -> Iterator[list[Any]]:
    """The launchers that the calling thread makes in the block."""
    entry: tuple[int, list[Any]] = (threading.get_ident(), [])
    _collecting.append(entry)
    try:
        yield entry[1]
    finally:
        _collecting.remove(entry)


class Arguments:
    """The argument block of one launch: slots for pointers and scalars, then fixed bytes.

    ``widths`` says how many slots each leading parameter takes: a complex128 by value takes two.
    """

    __slots__ = ("_fixed", "address", "slots")

    def __init__(self, widths: Sequence[int], fixed: Sequence[bytes] = ()) -> None:
        self.slots = (ctypes.c_uint64 * max(sum(widths), 1))()
        base = ctypes.addressof(self.slots)
        self._fixed = [ctypes.create_string_buffer(data, len(data)) for data in fixed]
        starts = [sum(widths[:i]) for i in range(len(widths))]
        places = [base + 8 * i for i in starts] + [ctypes.addressof(f) for f in self._fixed]
        table = (ctypes.c_void_p * max(len(places), 1))(*places)
        self._fixed.append(table)  # type: ignore[arg-type]
        self.address = ctypes.addressof(table)


class Launcher:
    """A kernel with everything about its launch that a plan knows beforehand.

    ``grid`` and ``threads`` are a number or up to three; ``widths`` are as in ``Arguments``;
    ``fixed`` holds the bytes of the last parameters, in order; ``shared`` is dynamic shared memory.
    """

    __slots__ = (
        "_blocks",
        "_capture_lock",
        "_driver",
        "_errors",
        "_fixed",
        "_geometry",
        "_kernel",
        "_launch",
        "_note",
        "_now",
        "_widths",
        "name",
        "source",
    )

    def __init__(
        self,
        client: Any,
        source: str,
        name: str,
        grid: int | Sequence[int],
        threads: int | Sequence[int],
        widths: Sequence[int],
        fixed: Sequence[bytes] = (),
        shared: int = 0,
    ) -> None:
        self._driver = client.driver
        self._kernel = None if self._driver.lazy else self._driver.kernel(source, name, shared)
        self._geometry = (*_three(grid), *_three(threads), shared)
        self._widths, self._fixed = tuple(widths), tuple(fixed)
        self._launch, self._now = client.driver.launch, client.now
        self._capture_lock = client.order.capture_lock
        self.name, self.source, self._errors = name, source, client.driver.errors
        self._note = client.driver.recent.append
        self._blocks: list[Arguments] = []
        for thread, made in _collecting:
            if thread == threading.get_ident():
                made.append(self)

    def _load(self) -> int:
        """The kernel, compiled now if nobody has yet."""
        shared = self._geometry[-1]
        self._kernel = found = self._driver.kernel(self.source, self.name, shared)
        # Meanwhile another thread may have begun to record a graph.
        self._capture_lock.wait()
        return found

    def __call__(self, *values: int) -> None:
        """Queue the kernel with ``values`` in the slots: addresses, or scalars as raw bits."""
        try:
            block = self._blocks.pop()
        except IndexError:
            block = Arguments(self._widths, self._fixed)
        block.slots[:] = values  # type: ignore[call-overload]
        gx, gy, gz, x, y, z, shared = self._geometry
        kernel, stream = self._kernel, self._now.stream
        if kernel is None:
            kernel = self._load()
        try:
            self._launch(kernel, gx, gy, gz, x, y, z, shared, stream, block.address, 0)
        except self._errors as error:
            raise _refused(self.name, error, (gx, gy, gz, x, y, z, shared)) from error
        self._note(self.name)
        self._blocks.append(block)


_spies: list[tuple[int, Callable[[Launcher], None], bool]] = []
_plain = Launcher.__call__


def _activated(self: Launcher, *values: int) -> None:
    self._driver.activate()
    _plain(self, *values)


# What a launch is where nobody looks.
_usual = _plain


def activate_always() -> None:
    """From now on each launch makes its GPU the current one first: there are several."""
    global _usual
    _usual = _activated
    if not _spies:
        Launcher.__call__ = _usual  # type: ignore[method-assign]


def _spied(self: Launcher, *values: int) -> None:
    launches = True
    for thread, note, alone in list(_spies):
        if thread == threading.get_ident():
            note(self)
            launches = launches and not alone
    if launches:
        _usual(self, *values)


@contextmanager
def spied(note: Callable[[Launcher], None], alone: bool = False) -> Iterator[None]:
    """Call ``note`` with each kernel that the calling thread queues in the block.

    With ``alone`` that is all that happens. Outside of such a block a launch costs what it costs:
    the method itself is exchanged.
    """
    spy = (threading.get_ident(), note, alone)
    _spies.append(spy)
    Launcher.__call__ = _spied  # type: ignore[method-assign]
    try:
        yield
    finally:
        _spies.remove(spy)
        if not _spies:
            Launcher.__call__ = _usual  # type: ignore[method-assign]


def _refused(name: str, error: Exception, geometry: tuple[int, ...]) -> DeviceError:
    """The driver's error as one of ours; a failure of earlier work may surface here as well."""
    *grid, x, y, z, shared = geometry
    got = f"grid {tuple(grid)}, {(x, y, z)} threads, {shared} bytes of shared memory"
    what = f"the driver did not take the kernel ({error})"
    return DeviceError(name, what, got, hint="RUDA_LAUNCH_BLOCKING=1 if it worked before")


def _three(size: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return (*sizes, 1, 1, 1)[:3]  # type: ignore[return-value]


_CODES = {"bool": "?", "float32": "f", "float64": "d", "complex64": "ff", "complex128": "dd"}


def raw_bits(dtype: DType) -> Callable[[Any], tuple[int, ...]]:
    """From a Python scalar to the slots that hold it as ``dtype``, by value."""
    if dtype.is_integer:
        return lambda value: (int(value) & 0xFFFFFFFFFFFFFFFF,)
    code = struct.Struct("<" + _CODES[dtype.name]).pack

    def pack(*values: float) -> bytes:
        try:
            return code(*values)
        except OverflowError:
            # Beyond float32, which is infinity there.
            return code(*(ctypes.c_float(value).value for value in values))

    if dtype.kind != "complex":
        return lambda value: (int.from_bytes(pack(value), "little"),)

    def parts(value: Any) -> tuple[int, ...]:
        data = pack(value.real, value.imag)
        return tuple(int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8))

    return parts
