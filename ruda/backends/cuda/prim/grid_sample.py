"""Images sampled at the points of a grid, in one pass; gradients go through the row's body."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda import source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.planes import dense_copy
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType
from ruda.core.shapes import contiguous_strides

THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 16
_MODES = ("nearest", "bilinear", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def text(dtype: DType, mode: str, rank: int) -> tuple[str, str]:
    """Name and source of a kernel."""
    name = f"grid_sample_{mode}{rank}_{code_of(dtype)}"
    types = {"STORED": stored(dtype), "REAL": computed(dtype)}
    return name, source.instance(__file__, NAME=name, MODE=_MODES.index(mode), RANK=rank, **types)


def _runs(client: Any, blocks: int, batches: int, channels: int) -> tuple[int, int]:
    """Rows of blocks, and the channels of each: enough of them to fill the device."""
    most = client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    runs = min(channels, max(1, -(-most // (blocks * batches))))
    length = -(-channels // runs)
    return batches * -(-channels // length), length


def bind(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``x`` as it lies, unless an axis runs backwards; the grid from a dense copy if it must be."""
    x, grid = plan.specs
    out = plan.out
    mode, padding, corners = plan.attrs
    rank, sizes = x.ndim - 2, x.shape[2:]
    batches, channels = x.shape[:2]
    points = math.prod(out.shape[2:])
    if out.size == 0:
        return lambda *_: allocate(client.pool, out)
    turned = any(s < 0 for s in x.strides[2:])
    if max(points, channels, *sizes) >= 2**31:
        return None
    strides = x.strides if not turned else contiguous_strides(x.shape)
    blocks = -(-points // THREADS)
    rows, run_length = _runs(client, blocks, batches, channels)
    if rows > 65535:
        return None
    last = (_PADDINGS.index(padding), corners, points, channels, run_length)
    padded = (*strides[2:], *(0,) * (3 - rank), *strides[:2], *sizes, *(1,) * (3 - rank))
    geometry = struct.pack("<5q5i3I", *padded, *last)
    name, whole = text(x.dtype, mode, rank)
    launch = Launcher(client, whole, name, (blocks, rows), THREADS, (1, 1, 1), [geometry])
    image = dense_copy(client, x) if turned else lambda h: h
    settle = dense_copy(client, grid)

    def run(h: Any, where: Any) -> Any:
        result, pixels, points = allocate(client.pool, out), image(h), settle(where)
        launch(result.address, pixels.address, points.address)
        return result

    return run


KERNELS = {"grid_sample": bind}
