"""Rows that replace a region of a tensor: a copy or zeros, then a strided write into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.memory import allocate
from ruda.core.spec import spec_of


def assign_view(client: Any, plan: Any) -> Callable[..., Any]:
    """``base`` with what a geometry in its memory shows replaced by ``value``."""
    base, value, _ = plan.specs
    shape, strides = plan.attrs
    size = plan.out.dtype.itemsize
    copy = client.writer(plan.out, base)
    write = client.writer(spec_of(client, shape, plan.out.dtype, strides), value)

    def run(hb: Any, hv: Any, offset: int) -> Any:
        out = allocate(client.pool, plan.out)
        copy(out.address, hb)
        write(out.address + offset * size, hv)
        return out

    return run


def unslice(client: Any, plan: Any) -> Callable[..., Any]:
    """Zeros of ``shape`` with ``g`` where ``slice`` would look."""
    out, g = plan.out, plan.specs[0]
    _, lengths, steps, dropped = plan.attrs
    rank, size = len(lengths), out.dtype.itemsize
    kept = [
        s * step
        for i, (s, step) in enumerate(zip(out.strides, steps, strict=False))
        if i not in dropped
    ]
    region = spec_of(client, g.shape, out.dtype, (*kept, *out.strides[rank:]))
    write = client.writer(region, g)
    strides = out.strides[:rank]

    def run(hg: Any, starts: Any) -> Any:
        result = allocate(client.pool, out)
        client.fill_zero(result.address, out.nbytes)
        place = sum(at * s for at, s in zip(starts, strides, strict=True))
        write(result.address + place * size, hg)
        return result

    return run


KERNELS = {"assign_view": assign_view, "unslice": unslice}
