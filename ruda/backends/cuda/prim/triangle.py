"""One side of a diagonal of matrices, in one launch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.geometry import collapsed
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.gather import UNITS
from ruda.backends.cuda.prim.pointing import THREADS, blocks, integers, is_wide, packed
from ruda.backends.cuda.source import instance


def _bind(client: Any, plan: Any) -> Callable[[Any], Any]:
    (x,), out, k = plan.specs, plan.out, plan.attrs[0]
    if not out.size:
        return lambda _: allocate(client.pool, out)
    vector = max(16 // x.dtype.itemsize, 1)
    if not (x.contiguous and out.shape[-1] % vector == 0):
        vector = 1
    launchers = {vector: _launcher(client, plan, k, vector)}

    def run(h: Any) -> Any:
        result = allocate(client.pool, out)
        pack = vector if (result.address | h.address) % 16 == 0 else 1
        if pack not in launchers:
            launchers[pack] = _launcher(client, plan, k, pack)
        launchers[pack](result.address, h.address)
        return result

    return run


def _launcher(client: Any, plan: Any, k: int, vector: int) -> Launcher:
    (x,), size = plan.specs, plan.out.dtype.itemsize
    *batch, rows, columns = x.shape
    sizes, (strides,) = collapsed(tuple(batch), [x.strides[:-2]])
    wide = is_wide(x, plan.out)
    name = f"{plan.op.name}_{size}bx{vector}_r{len(sizes)}{'_wide' * wide}"
    source = instance(
        __file__,
        NAME=name,
        UNIT=UNITS[size],
        VEC=vector,
        LOWER=int(plan.op.name == "tril"),
        RANK=len(sizes),
        **integers(wide),
    )
    width = columns // vector
    n = math.prod(batch) * rows * width
    # Beyond the last diagonal all diagonals are alike, and smaller numbers hold them.
    k = max(-rows, min(k, columns))
    geometry = packed(wide, n, rows, width, k, x.strides[-2], x.strides[-1], sizes, strides)
    return Launcher(client, source, name, blocks(client, n, THREADS), THREADS, (1, 1), [geometry])


KERNELS = {"tril": _bind, "triu": _bind}
