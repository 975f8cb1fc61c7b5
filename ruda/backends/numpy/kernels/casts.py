"""Casts between float32 and bfloat16, on the bits; rounding is to nearest, ties to even."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import empty
from ruda.backends.numpy.kernels.compiler import kernel
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL, tiles


@kernel("void(u4[::1], u2[::1])")
def narrow(x, out):
    for i in range(out.size):
        b = x[i]
        even = np.uint32(np.uint32(b >> np.uint32(16)) & np.uint32(1))
        rounded = np.uint32(np.uint32(b + np.uint32(0x7FFF)) + even)
        # A NaN must stay one: its sign, and the quiet pattern that ml_dtypes writes.
        quiet = np.uint32(np.uint32(b & np.uint32(0x80000000)) | np.uint32(0x7FC00000))
        is_nan = np.uint32(b & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        kept = quiet if is_nan else rounded
        out[i] = np.uint16(np.uint32(kept >> np.uint32(16)))


@kernel("void(u2[::1], u4[::1])")
def widen(x, out):
    for i in range(out.size):
        out[i] = np.uint32(np.uint32(x[i]) << np.uint32(16))


def bind(plan: Any) -> Callable[..., Any] | None:
    """``astype`` of a row-major tensor from one of the two dtypes to the other."""
    source, target = plan.specs[0].dtype, plan.attrs[0]
    pair = source.name, target.name
    if not plan.specs[0].contiguous or pair not in _PAIRS:
        return None
    chosen, read, write = _PAIRS[pair]
    function, parts = chosen.ready(), tiles(plan.out.size)
    shape, dtype = plan.out.shape, plan.out.dtype.numpy

    def run(h: Any) -> Any:
        out = empty(shape, dtype)
        x, y = h.array.reshape(-1).view(read), out.reshape(-1).view(write)
        POOL.run(lambda i: function(x[parts[i]], y[parts[i]]), len(parts))
        return handle_of(out)

    return run


_PAIRS = {
    ("float32", "bfloat16"): (narrow, np.uint32, np.uint16),
    ("bfloat16", "float32"): (widen, np.uint16, np.uint32),
}
