"""The norm of many tensors, or whether all are finite: two launches, however many there are."""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.tables import Replayed, hold, parts_of, room, send
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType, compute_of

CHUNK = 1 << 15


def text(dtype: DType, row: str = "joint_norm") -> tuple[str, str, str]:
    """The names of both kernels of a row and their source."""
    names = tuple(f"{row}_{code_of(dtype)}_{part}" for part in ("parts", "whole"))
    finite = row == "joint_finite"
    settings = {"X": stored(dtype), "T": computed(dtype), "CHUNK": CHUNK, "FINITE": int(finite)}
    settings["R"] = "bool" if finite else "T"
    return *names, instance(__file__, PARTS=names[0], WHOLE=names[1], **settings)  # type: ignore[return-value]


class _Norm:
    """The launches for tensors of given sizes, and their table on the device."""

    def __init__(self, client: Any, sizes: list[int], dtype: DType, row: str) -> None:
        self.client = client
        self.chunks, blocks = parts_of(client, sizes, CHUNK)
        self.table = np.array([(0, n) for n in sizes], np.uint64)
        self.known: list[int] = []
        self.on_device = room(client, self.table.nbytes)
        self.replayed = Replayed(client)
        # Threads share a plan: table and partial sums are those of one call until all is queued.
        self.turn = threading.Lock()
        self.partial = room(client, 8 * blocks)
        parts, whole, source = text(dtype, row)
        self.first = Launcher(client, source, parts, blocks, 256, (1, 1, 1)) if blocks else None
        count = [struct.pack("<q", blocks)]
        self.second = Launcher(client, source, whole, 1, 1024, (1, 1), count)

    def __call__(self, out: int, addresses: list[int]) -> None:
        with self.turn:
            hold(self.client, self.on_device, self.partial, self.chunks)
            if self.replayed or addresses != self.known:
                self.known = addresses
                self.table[:, 0] = addresses
                send(self.client, self.on_device, self.table)
            if self.first is not None:
                self.first(self.partial.address, self.on_device.address, self.chunks.address)
            self.second(out, self.partial.address)


def bind(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Tensors of one dtype that are dense; all others by way of the norm of each."""
    specs, out = plan.specs, plan.out
    dtype = specs[0].dtype
    if any(s.weak or s.dtype is not dtype or not s.contiguous for s in specs):
        return None
    row = plan.op.name
    if row == "joint_norm" and out.dtype is not compute_of(dtype):
        return None
    # Made by the first call: a plan may be needed for its specs alone.
    norm = functools.cache(lambda: _Norm(client, [s.size for s in specs], dtype, row))

    def run(*handles: Any) -> Any:
        result = allocate(client.pool, out)
        norm()(result.address, [h.address for h in handles])
        return result

    return run


KERNELS = {"joint_norm": bind, "joint_finite": bind}
