"""Rows that write through a geometry in memory: adding where windows overlap, and diagonals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import raw_bits
from ruda.backends.cuda.memory import ViewHandle, allocate
from ruda.backends.cuda.prim import keys
from ruda.backends.cuda.prim import map as maps
from ruda.backends.cuda.prim.pointing import dense, is_wide
from ruda.backends.cuda.prim.segments import Rows, Segments
from ruda.backends.cuda.prim.sort import numbering
from ruda.core.dtypes import compute_of, uint32
from ruda.core.errors import StrategyError
from ruda.core.shapes import repeats_memory
from ruda.core.spec import spec_of
from ruda.ops.strides import diagonal_geometry
from ruda.tensor.dispatch import OPS


def _add_view(client: Any, plan: Any) -> Callable[..., Any]:
    base, out, (shape, strides) = plan.specs[0], plan.out, plan.attrs
    copy = client.writer(out, base)
    size = math.prod(shape)
    overlap = repeats_memory(shape, strides)
    add = _summed(client, plan) if size and overlap else _apart(client, plan) if size else None

    def run(hb: Any, hv: Any, offset: int) -> Any:
        result = allocate(client.pool, out)
        if out.size:
            copy(result.address, hb)
        if add is not None:
            add(result, hv, offset)
        return result

    return run


def _apart(client: Any, plan: Any) -> Callable[[Any, Any, int], None]:
    """Each element is met once: one map that reads and writes it."""
    out, value, (shape, strides) = plan.out, plan.specs[1], plan.attrs
    region = spec_of(client, shape, out.dtype, strides)
    expr, dtypes = OPS["add"].expr or "x + y", (out.dtype, out.dtype)
    add = maps.bind_into(client, region, "add", expr, ("x", "y"), (region, value), dtypes)

    def run(result: Any, hv: Any, offset: int) -> None:
        address = result.address + offset * out.dtype.itemsize
        add(address, ViewHandle(address, region, result), hv)

    return run


def _summed(client: Any, plan: Any) -> Callable[[Any, Any, int], None]:
    """Elements that several places of the geometry show: their values in the order of places."""
    out, value, (shape, strides) = plan.out, plan.specs[1], plan.attrs
    n, limit = math.prod(shape), out.size
    if limit >= 2**32 - 1 or n >= 2**31:
        raise StrategyError("add_view", "more elements than 32 bits number", limit, 2**32 - 2)
    bits = raw_bits(compute_of(out.dtype)) if value.weak else None
    settle: Any = None
    if not value.weak:
        value, settle = dense(client, value, shape)
    wide = is_wide(out, value) or limit > 2**31 - 2**22 or n > 2**31 - 2**22
    none = (0,) * len(shape)
    entries = keys.Entries(shape, none, strides, (), (), 0, limit)
    number = keys.bind(client, entries, False, wide)
    sort = numbering(client, n, limit - 1)
    elements = Rows(
        op="add_view",
        mode="add",
        n=n,
        sizes=(1,),
        value=(0,),
        out=(0,),
        row=0 if value.weak else 1,
        lengths=(limit,),
        steps=(1,),
        limit=limit,
        given=None if value.weak else value.dtype,
        dtype=out.dtype,
        based=True,
        wide=wide,
    )
    add = Segments(client, elements)
    spec = spec_of(client, (n,), uint32)

    def run(result: Any, hv: Any, offset: int) -> None:
        found = allocate(client.pool, spec)
        number(found.address, 0, 0, offset, 0, 0, 0)
        held = hv if settle is None else settle(hv)
        values = bits(hv) if bits is not None else held.address
        add(result.address, result.address, values, *sort(found))

    return run


def _diagonal(client: Any, plan: Any) -> Callable[[Any], Any]:
    """Zeros with a diagonal of them written."""
    (g,), out, (_, *place) = plan.specs, plan.out, plan.attrs
    start, shape, strides = diagonal_geometry(out.shape, out.strides, *place)
    write = client.writer(spec_of(client, shape, out.dtype, strides), g)

    def run(h: Any) -> Any:
        result = allocate(client.pool, out)
        if out.size:
            client.fill_zero(result.address, out.nbytes)
            write(result.address + start * out.dtype.itemsize, h)
        return result

    return run


KERNELS = {"add_view": _add_view, "diagonal_embed": _diagonal}
