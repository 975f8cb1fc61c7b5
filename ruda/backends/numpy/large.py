"""NumPy's own loops for large results: into memory that was in use before, in tiles on the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import LEAST, empty
from ruda.backends.numpy.kernels import enabled
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import BLAS, POOL, tiles


def is_large(plan: Any) -> bool:
    """Whether the result is worth memory of its own keeping."""
    return bool(plan.out.size * plan.out.dtype.itemsize >= LEAST)


def bind_ufunc(ufunc: Any, plan: Any, scalars: tuple[Any, ...]) -> Callable[..., Any]:
    """A ufunc of row-major tensors of the result's shape, and of scalars.

    ``scalars`` has the NumPy dtype of each operand that is a scalar, None for a tensor.
    """
    shape, dtype, size = plan.out.shape, plan.out.dtype.numpy, plan.out.size
    parts = tiles(size) if enabled() else tiles(size, size)

    def run(*values: Any) -> Any:
        out = empty(shape, dtype)
        flat = [
            v.array.reshape(-1) if d is None else np.asarray(v, d)
            for v, d in zip(values, scalars, strict=True)
        ]
        y = out.reshape(-1)

        def part(i: int) -> None:
            p = parts[i]
            ufunc(*[x[p] if x.ndim else x for x in flat], out=y[p])

        POOL.run(part, len(parts))
        return handle_of(out)

    return run


# Multiplications of one tile: 0.3 ms or so of one core.
_PRODUCT = 1 << 25
_MOST_TILES = 4


def product_tiles(rows: int, inner: int, columns: int) -> tuple[int, list[slice]]:
    """The axis of a product [rows, columns] to cut, 0 or 1, and the parts of it.

    One part means that BLAS may use its own threads. The inner axis is never cut: sums keep their
    order whatever the number of threads.
    """
    count = min(rows * inner * columns // _PRODUCT, _MOST_TILES) if enabled() else 1
    axis = 0 if rows >= columns else 1
    size = rows if axis == 0 else columns
    # Whole register blocks of BLAS.
    step = -(-size // max(count, 1) // 16) * 16
    return axis, [slice(i, min(i + step, size)) for i in range(0, size, max(step, 1))]


def multiply(x: Any, y: Any, out: Any, bias: Any, axis: int, parts: list[slice]) -> None:
    """Write ``x y + bias`` into ``out``, in parts of ``product_tiles`` on the pool."""

    def part(i: int) -> None:
        p = parts[i]
        left, right, target = (x[p], y, out[p]) if axis == 0 else (x, y[:, p], out[:, p])
        np.matmul(left, right, out=target)
        if bias is not None:
            target += bias if axis == 0 else bias[p]

    if len(parts) < 2:
        np.matmul(x, y, out=out)
        if bias is not None:
            out += bias
        return
    with BLAS:
        POOL.run(part, len(parts))
