"""The gradient of a small table of embeddings in one launch: every row looks for its places."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.pointing import THREADS, Pointing, dense
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.shapes import contiguous_strides
from ruda.core.spec import Spec

# Beyond that a sort of the places is less work than to look through them for each row.
_PLACES, _ROWS = 1 << 12, 1 << 11


def bind(client: Any, plan: Any, pointing: Pointing) -> Callable[..., Any] | None:
    """The function from dy and indices to the gradient; None where the table is not small."""
    (value, index), out = plan.specs, plan.out
    places = pointing.places
    floats = out.dtype.is_floating and value.dtype is out.dtype and not value.weak
    small = 0 < places <= _PLACES and out.ndim > 0 and out.shape[0] <= _ROWS and out.size
    if not floats or not small or index.weak or value.shape[: index.ndim] != index.shape:
        return None
    value, settle_value = dense(client, value, value.shape)
    index, settle_index = dense(client, index, index.shape)
    width, size = math.prod(out.shape[1:]), out.dtype.itemsize
    most = 16 // size if width * size % 16 == 0 else 1
    launchers: dict[int, Launcher] = {}

    def launcher(pack: int) -> Launcher:
        if pack not in launchers:
            launchers[pack] = _launcher(client, (out, index), places, plan.attrs[1], pack)
        return launchers[pack]

    launcher(most)
    faults, form = client.faults, pointing.form

    def run(hv: Any, hi: Any) -> Any:
        result = allocate(client.pool, out)
        given, where = settle_value(hv), settle_index(hi)
        queue = launcher(most if (result.address | given.address) % 16 == 0 else 1)
        queue(result.address, given.address, where.address, *faults.parameters(form))
        return result

    return run


def _launcher(
    client: Any, specs: tuple[Spec, Spec], places: int, dropped: int, pack: int
) -> Launcher:
    out, index = specs
    name = f"table_gradient_{code_of(out.dtype)}_{code_of(index.dtype)}_x{pack}"
    settings = {"S": stored(out.dtype), "C": computed(out.dtype), "INDEX": stored(index.dtype)}
    source = instance(__file__, NAME=name, VEC=pack, **settings)
    rows, width = out.shape[0], contiguous_strides(out.shape)[0]
    grid = rows, -(-width // (32 * pack))
    geometry = struct.pack("<4q", places, rows, width, dropped)
    return Launcher(client, source, name, grid, THREADS, (1, 1, 1, 3), [geometry])
