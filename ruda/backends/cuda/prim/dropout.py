"""Dropout without its mask: words, comparison and product in one pass."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda import source
from ruda.backends.cuda.launch import Launcher, raw_bits
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.random import limit_of
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import FLOAT, DType, compute_of
from ruda.ops.dropout import kept_scale

THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 16


def text(dtype: DType, aligned: bool) -> tuple[str, str]:
    """Name and source for one dtype."""
    name = f"dropout_{code_of(dtype)}{'' if aligned else '_unaligned'}"
    types = {"STORED": stored(dtype), "REAL": computed(dtype)}
    return name, source.instance(__file__, NAME=name, ALIGNED=int(aligned), **types)


def bind(client: Any, plan: Any) -> Callable[..., Any] | None:
    """One pass over a dense ``x`` of a real dtype; other layouts go by way of the mask."""
    x, out = plan.specs[0], plan.out
    if not x.contiguous or x.dtype not in FLOAT or not all(s.weak for s in plan.specs[1:]):
        return None
    if out.size == 0:
        return lambda *_: allocate(client.pool, out)
    packs = -(-out.nbytes // 16)
    grid = min(-(-packs // THREADS), client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR)
    end = [struct.pack("<Q", out.size)]
    pair = [
        Launcher(client, whole, name, grid, THREADS, (1,) * 6, end)
        for name, whole in (text(x.dtype, False), text(x.dtype, True))
    ]
    bits = raw_bits(compute_of(x.dtype))

    def run(h: Any, p: Any, seed: Any, draw: Any) -> Any:
        result = allocate(client.pool, out)
        scale = bits(kept_scale(p))[0]
        launch = pair[h.address % 16 == 0]
        launch(result.address, h.address, int(seed), int(draw), limit_of(p), scale)
        return result

    return run


KERNELS = {"dropout": bind}
