"""Combining rows that have equal keys, in the order of the rows: two launches after a stable sort.

Rows are taken in chunks of one length, however many of them one key has; what a long segment leaves
in each of its chunks is added up in an order that depends on the geometry alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.pointing import THREADS, integers, packed
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType, compute_of
from ruda.core.errors import StrategyError
from ruda.core.shapes import Shape
from ruda.core.spec import spec_of

COMBINE = {
    "add": "((a) + (b))",
    "multiply": "((a) * (b))",
    "min": "ruda_min(a, b)",
    "max": "ruda_max(a, b)",
}
_WIDEST_GRID = 65535


class Rows(NamedTuple):
    """Rows of values and where they go.

    Columns have ``sizes`` and strides in the values and in the output; row i of the values starts
    at ``i * row``. A key, taken apart by ``lengths``, gives a place by ``steps``; keys from
    ``limit`` on are left out. ``given`` is the dtype of the values, None for a number by value.
    """

    op: str
    mode: str
    n: int
    sizes: Shape
    value: Shape
    out: Shape
    row: int
    lengths: Shape
    steps: Shape
    limit: int
    given: DType | None
    dtype: DType
    based: bool
    wide: bool


class Segments:
    """The launches for ``rows``; called with addresses and the handles that a sort gave."""

    def __init__(self, client: Any, rows: Rows) -> None:
        self._client, self._rows = client, rows
        self._columns = math.prod(rows.sizes)
        self._pack = _pack_of(rows)
        self._chunk = _chunk_of(client, rows.n * -(-self._columns // self._pack))
        self._chunks = -(-rows.n // self._chunk)
        self._parts = spec_of(client, (self._chunks, 2, self._columns), compute_of(rows.dtype))
        self._first(self._pack)
        if self._chunks > 1:
            self._second(self._pack)

    def __call__(self, out: int, base: int, value: Any, keys: Any, order: Any) -> None:
        """Write to ``out``, combined with ``base`` if rows are based, what ``value`` holds."""
        given = self._rows.given is None
        joint = out | base | (0 if given else value)
        pack = self._pack if joint % 16 == 0 else 1
        first = self._first(pack)
        parts = allocate(self._client.pool, self._parts)
        values = value if given else (value,)
        first(out, base, parts.address, *values, keys.address, order.address)
        if self._chunks > 1:
            self._second(pack)(out, base, parts.address, keys.address)

    @functools.cache  # noqa: B019  (as long-lived as the plan)
    def _first(self, pack: int) -> Launcher:
        return self._launcher(0, pack)

    @functools.cache  # noqa: B019
    def _second(self, pack: int) -> Launcher:
        # Parts are of the type that is computed in, which may be wider than what is stored.
        return self._launcher(1, max(1, min(pack, 16 // compute_of(self._rows.dtype).itemsize)))

    def _launcher(self, phase: int, pack: int) -> Launcher:
        rows, client = self._rows, self._client
        given = rows.given or rows.dtype
        by_value = rows.given is None
        name = "_".join(
            (
                f"rows_{rows.mode}_{'ends' if phase else 'sums'}",
                f"{code_of(given)}{'v' * by_value}_{code_of(rows.dtype)}",
                f"r{len(rows.sizes)}k{len(rows.lengths)}x{pack}",
                *(["based"] if rows.based else []),
                *(["wide"] if rows.wide else []),
            )
        )
        source = instance(
            __file__,
            NAME=name,
            PHASE=phase,
            T=stored(rows.dtype),
            C=computed(rows.dtype),
            V=computed(rows.dtype) if by_value else stored(given),
            VEC=pack,
            BYVALUE=int(by_value),
            BASE=int(rows.based),
            RANK=len(rows.sizes),
            AXES=len(rows.lengths),
            **{"COMBINE(a, b)": COMBINE[rows.mode]},
            **integers(rows.wide),
        )
        columns = self._columns // pack
        grid, lanes = self._grid(phase, columns)
        sizes = (*rows.sizes[:-1], rows.sizes[-1] // pack)
        value = (*rows.value[:-1], rows.value[-1] * pack)
        out = (*rows.out[:-1], rows.out[-1] * pack)
        facts = (rows.n, self._chunk, columns, rows.row, rows.limit, sizes, value, out)
        # The number of lanes takes the low half of the last place of a wide struct.
        geometry = packed(rows.wide, *facts, rows.lengths, rows.steps, lanes)
        if phase:
            return Launcher(client, source, name, grid, THREADS, (1,) * 4, [geometry])
        width = 2 if by_value and compute_of(rows.dtype).itemsize == 16 else 1
        return Launcher(client, source, name, grid, THREADS, (1, 1, 1, width, 1, 1), [geometry])

    def _grid(self, phase: int, columns: int) -> tuple[tuple[int, int], int]:
        most = THREADS if phase == 0 or columns > 1 << 20 else 64
        lanes = min(most, 1 << (columns - 1).bit_length())
        across = -(-columns // lanes)
        if across > _WIDEST_GRID:
            what = "rows have too many elements for this kernel"
            raise StrategyError(self._rows.op, what, columns, _WIDEST_GRID * lanes)
        if phase:
            return (self._chunks - 1, across), lanes
        return (-(-self._chunks // (THREADS // lanes)), across), lanes


def _pack_of(rows: Rows) -> int:
    """Elements that are read at once: up to 16 bytes where all strides allow it."""
    if rows.given is not rows.dtype or rows.value[-1] != 1 or rows.out[-1] != 1:
        return 1
    # Eight sums of single bytes, unpacked, already do not stay in registers.
    pack = 4 if rows.dtype.itemsize == 1 else max(16 // rows.dtype.itemsize, 1)
    others = (rows.sizes[-1], *rows.value[:-1], *rows.out[:-1], rows.row, *rows.steps)
    return pack if all(n % pack == 0 for n in others) else 1


def _chunk_of(client: Any, work: int) -> int:
    """Rows of a chunk: long ones once there are threads enough, because each costs a part."""
    threads = int(client.driver.multiprocessors) * 2048
    # The power of two that is nearest to the rows a thread gets when the device is full once.
    return min(64, max(16, 1 << (work * 3 // (threads * 2)).bit_length() >> 1))


def untouched(client: Any, rows: int, nbytes: int, based: bool) -> Callable[[int, int, int], None]:
    """What fills rows of ``nbytes`` that are not marked: launcher of (out, base, touched)."""
    units = nbytes // 16
    n = rows * units
    wide = n > 2**31 - 2**22
    name = f"untouched{'_based' * based}{'_wide' * wide}"
    beside = str(Path(__file__).with_name("rest"))
    source = instance(beside, NAME=name, BASE=int(based), U=integers(wide)["U"])
    fixed = [packed(wide, n), packed(wide, units)]
    grid = min(-(-n // 1024), int(client.driver.multiprocessors) * 16)
    return Launcher(client, source, name, grid, THREADS, (1, 1, 1), fixed)
