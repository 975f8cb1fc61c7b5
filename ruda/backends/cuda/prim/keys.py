"""The number of the slot that each entry of index tensors points at, as 32-bit keys."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ruda.backends.cuda.geometry import collapsed
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.prim.pointing import THREADS, blocks, integers, packed
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType, int32
from ruda.core.shapes import Shape


class Entries(NamedTuple):
    """Entries of index tensors and the slots they may point at.

    ``shape`` and ``spot`` say where the entries lie, ``line`` what their coordinates add to a key,
    ``slots`` what a place on each axis of ``lengths`` adds. Keys stay below ``limit``, which
    entries equal to ``dropped`` get.
    """

    shape: Shape
    spot: Shape
    line: Shape
    lengths: Shape
    slots: Shape
    apart: int
    limit: int
    dropped: int | None = None
    wraps: bool = True
    dtype: DType = int32

    @property
    def size(self) -> int:
        """How many entries there are."""
        return math.prod(self.shape)


def bind(client: Any, entries: Entries, touches: bool, wide: bool) -> Launcher:
    """The launcher of (keys, touched, index, start, faults)."""
    sizes, (spot, line) = collapsed(entries.shape, [entries.spot, entries.line])
    count, drops = len(entries.lengths), entries.dropped is not None
    flags = "".join(
        name
        for name, on in [
            ("_rows", not entries.wraps),
            ("_drop", drops),
            ("_touch", touches),
            ("_wide", wide),
        ]
        if on
    )
    name = f"keys_{code_of(entries.dtype)}_r{len(sizes)}k{count}{flags}"
    source = instance(
        __file__,
        NAME=name,
        INDEX=stored(entries.dtype),
        RANK=len(sizes),
        COUNT=count,
        WRAPS=str(entries.wraps).lower(),
        DROPS=int(drops),
        TOUCHES=int(touches),
        **integers(wide),
    )
    geometry = packed(
        wide,
        entries.size,
        sizes,
        spot,
        line,
        (*entries.lengths, 0),
        (*entries.slots, 0),
        entries.apart,
        entries.dropped or 0,
        entries.limit,
    )
    grid = blocks(client, entries.size, THREADS)
    return Launcher(client, source, name, grid, THREADS, (1, 1, 1, 1, 3), [geometry])
