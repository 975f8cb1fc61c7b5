"""Copies of large tensors whose elements lie in another order: in parts on the pool, into memory
that was in use before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.numpy.buffers import LEAST, empty
from ruda.backends.numpy.kernels import enabled
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL
from ruda.core.spec import Spec

# Bytes of a part, some 0.2 ms of one core, and the most parts.
_PART, _MOST = LEAST // 2, 4


def bind_reshape(plan: Any) -> Callable[..., Any] | None:
    """The elements of a tensor in row-major order, where no view can show them."""
    x, out = plan.specs[0], plan.out
    if plan.shares or x.weak or out.nbytes < LEAST:
        return None
    shape, dtype, copy = out.shape, out.dtype.numpy, _copying(x)

    def run(h: Any) -> Any:
        array = empty(shape, dtype)
        copy(h.array, array.reshape(x.shape))
        return handle_of(array)

    return run


def bind_concat(plan: Any) -> Callable[..., Any] | None:
    """Tensors of one dtype, each copied to its place."""
    out, (axis,) = plan.out, plan.attrs
    if out.nbytes < LEAST or any(s.weak or s.dtype is not out.dtype for s in plan.specs):
        return None
    shape, dtype, copies, start = out.shape, out.dtype.numpy, [], 0
    for spec in plan.specs:
        stop = start + spec.shape[axis]
        copies.append(((slice(None),) * axis + (slice(start, stop),), _copying(spec)))
        start = stop

    def run(*handles: Any) -> Any:
        array = empty(shape, dtype)
        for h, (place, copy) in zip(handles, copies, strict=True):
            copy(h.array, array[place])
        return handle_of(array)

    return run


def _copying(spec: Spec) -> Callable[[Any, Any], None]:
    """What copies an array of ``spec`` into another of its shape, cut along the first axis."""
    rows = spec.shape[0]
    count = min(spec.nbytes // _PART, _MOST, rows) if enabled() else 1
    if count < 2:
        return _copy
    edges = [rows * i // count for i in range(count + 1)]

    def copy(x: Any, out: Any) -> None:
        def part(i: int) -> None:
            here = slice(edges[i], edges[i + 1])
            out[here] = x[here]

        POOL.run(part, count)

    return copy


def _copy(x: Any, out: Any) -> None:
    out[...] = x
