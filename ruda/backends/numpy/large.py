"""NumPy's own loops for large results: into memory that was in use before, in tiles on the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import LEAST, empty
from ruda.backends.numpy.kernels import enabled
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL, tiles


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
