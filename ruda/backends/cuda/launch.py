"""Launching kernels: modules loaded once, argument blocks built once per plan.

An argument block is a row of 8-byte slots and a table of their addresses, which is what the driver
wants. A launch stores pointers into the slots and calls the driver; a block is used by one thread
at a time, taken from and returned to the kernel's own stock.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from cupy.cuda import driver, runtime

from ruda.backends.cuda import cache
from ruda.core.dtypes import DType

_modules: dict[tuple[int, str, str], Any] = {}


def function(source: str, name: str, arch: str, device: int) -> int:
    """The driver's handle of the kernel ``name`` of ``source``, loaded once per device."""
    key = (device, name, source)
    found = _modules.get(key)
    if found is None:
        module = driver.moduleLoadData(cache.cubin(source, name, arch))
        found = _modules[key] = (module, driver.moduleGetFunction(module, name))
    return found[1]  # type: ignore[no-any-return]


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
    """A kernel with everything about its launch that a plan knows beforehand."""

    __slots__ = ("_blocks", "_fixed", "_function", "_grid", "_stream", "_threads", "_widths")

    def __init__(
        self,
        kernel: int,
        grid: int | tuple[int, int],
        threads: int,
        widths: Sequence[int],
        fixed: Sequence[bytes],
        stream: int,
    ) -> None:
        self._function, self._threads = kernel, threads
        self._grid = grid if isinstance(grid, tuple) else (grid, 1)
        self._widths, self._fixed, self._stream = tuple(widths), tuple(fixed), stream
        self._blocks: list[Arguments] = []

    def __call__(self, *values: int) -> None:
        """Queue the kernel with ``values`` in the slots: addresses, or scalars as raw bits."""
        try:
            block = self._blocks.pop()
        except IndexError:
            block = Arguments(self._widths, self._fixed)
        block.slots[:] = values
        x, y = self._grid
        driver.launchKernel(
            self._function, x, y, 1, self._threads, 1, 1, 0, self._stream, block.address, 0
        )
        self._blocks.append(block)


_CODES = {"bool": "?", "float32": "f", "float64": "d", "complex64": "ff", "complex128": "dd"}


def raw_bits(dtype: DType) -> Callable[[Any], tuple[int, ...]]:
    """From a Python scalar to the slots that hold it as ``dtype``, by value."""
    if dtype.is_integer:
        return lambda value: (int(value) & 0xFFFFFFFFFFFFFFFF,)
    pack = struct.Struct("<" + _CODES[dtype.name]).pack
    if dtype.kind != "complex":
        return lambda value: (int.from_bytes(pack(value), "little"),)

    def parts(value: Any) -> tuple[int, ...]:
        data = pack(value.real, value.imag)
        return tuple(int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8))

    return parts


def count_multiprocessors(device: int) -> int:
    """How many multiprocessors ``device`` has."""
    return int(runtime.deviceGetAttribute(16, device))
