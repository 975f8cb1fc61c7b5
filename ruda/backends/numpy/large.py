"""NumPy's own loops for large results: into memory that was in use before, in tiles on the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import LEAST, empty
from ruda.backends.numpy.kernels import enabled
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL, tiles
from ruda.core.dtypes import compute_of


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


_ELEMENTWISE = ("unary", "binary", "ternary")


def ufunc_of(plan: Any) -> Any:
    """The ufunc that computes an elementwise plan on its operands as they are, or None."""
    op, out = plan.op, plan.out
    if op.kind not in _ELEMENTWISE or compute_of(out.dtype) is not out.dtype:
        return None
    wanted = op.dtype_of_operands(plan)
    if not all(s.weak or s.dtype is d for s, d in zip(plan.specs, wanted, strict=True)):
        return None
    if isinstance(op.numpy, np.ufunc):
        return op.numpy
    if any(d is None or d.kind == "complex" for d in wanted):
        return None
    return getattr(op.numpy, "real_ufunc", None)
