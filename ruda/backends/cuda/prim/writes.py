"""Rows that write where tensors of integers point: put, add, multiply, extremes, and adjoints.

Nothing depends on timing. Few places on a line are compared with each other in one launch. Of many,
the last to name a slot claims it (put), or a stable sort by slot brings the values for one slot
together and they are combined in their order, in float32 for half types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import raw_bits
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import table_gradient
from ruda.backends.cuda.prim.pointing import along, by_index, dense, in_memory, refuse_empty, rows
from ruda.backends.cuda.prim.scatter import claimed, few
from ruda.backends.cuda.prim.scattering import Work, dims_of
from ruda.backends.cuda.prim.sums import combined, fills_rest
from ruda.core.dtypes import compute_of
from ruda.core.spec import Spec

# So many places of a line are looked at by each of its threads.
_FEW = 64


def _writer(work: Work, settle_index: Any) -> tuple[Callable[..., None], bool]:
    """What writes values to (output, base, value, index), and whether it fills all of the output.

    Where it does not, the output holds the base before and both addresses are the same.
    """
    work, settle_value = _settled(work)
    if 0 in work.pointing.shape or not work.out.size:
        return (lambda *_: None), False
    sorts = work.pointing.places > _FEW
    form = (claimed if work.mode is None else combined) if sorts else few
    write = form(work)
    bits = raw_bits(compute_of(work.out.dtype)) if work.value.weak else None

    def run(address: int, base: int, hv: Any, hi: Any) -> None:
        # What is settled is held until all launches that read it are queued.
        value, index = hv if bits is not None else settle_value(hv), settle_index(hi)
        write(address, base, (value.address,) if bits is None else bits(value), index)

    return run, form is combined and fills_rest(work)


def _settled(work: Work) -> tuple[Work, Callable[[Any], Any]]:
    """``work`` with values that its kernels can walk, and what makes them so."""
    value, shape = work.value, work.pointing.shape
    dims = dims_of(work)
    scattered = sum(k != 0 for k in dims.number) > 1
    # The places of elements are numbered in one row: their values have to lie in one.
    if not work.whole and work.mode is not None and work.pointing.places > _FEW:
        scattered = any(dims.value)
    if value.weak or not scattered:
        return work, lambda h: h
    value, settle = dense(work.client, value, shape)
    return work._replace(value=value), settle


def writer(way: Any, mode: str | None) -> Callable[[Any, Any], Callable[..., Any]]:
    """What binds the row that combines by ``mode``, or puts; "extreme" reads it of the plan."""

    def bind(client: Any, plan: Any) -> Callable[..., Any]:
        base, value, index = plan.specs
        axes, *rest = plan.attrs
        name, out = plan.op.name, plan.out
        index, settle = _index(client, way, index)
        pointing = way(name, out.shape, out.strides, index, axes)
        empty = refuse_empty(pointing)
        if empty is not None:
            return empty
        how = rest[0] if mode == "extreme" else mode
        work = Work(client, name, how, out, value, pointing, way is by_index, based=True)
        write, fills = _writer(work, settle)
        copy = client.writer(out, base)
        fills = fills and base.contiguous and base.dtype is out.dtype

        def run(hb: Any, hv: Any, hi: Any) -> Any:
            result = allocate(client.pool, out)
            if fills and hb.address % 16 == 0:
                write(result.address, hb.address, hv, hi)
                return result
            copy(result.address, hb)
            write(result.address, result.address, hv, hi)
            return result

        if base.contiguous and base.dtype is out.dtype and not base.weak:
            run.in_place = write  # type: ignore[attr-defined]
        return run

    return bind


def _index(client: Any, way: Any, index: Spec) -> tuple[Spec, Any]:
    """The index as kernels take it: dense, unless each line has its own."""
    return in_memory(client, index) if way is along else dense(client, index, index.shape)


def adjoint(way: Any) -> Callable[[Any, Any], Callable[..., Any]]:
    """What binds the row that adds up in zeros where another one reads."""

    def bind(client: Any, plan: Any) -> Callable[..., Any]:
        axes = plan.attrs[1]
        return _added(client, plan, way, axes, None)

    return bind


def _table(client: Any, plan: Any) -> Callable[..., Any]:
    out, padding = plan.out, plan.attrs[1]
    pointing = rows(plan.op.name, out.shape, out.strides, plan.specs[1], (0,))
    found = table_gradient.bind(client, plan, pointing)
    dropped = padding if padding >= 0 else None
    return _added(client, plan, rows, (0,), dropped) if found is None else found


def _added(client: Any, plan: Any, way: Any, axes: Any, dropped: int | None) -> Callable[..., Any]:
    value, index = plan.specs
    name, out = plan.op.name, plan.out
    index, settle = _index(client, way, index)
    pointing = way(name, out.shape, out.strides, index, axes)
    empty = refuse_empty(pointing)
    if empty is not None:
        return empty
    whole = way is not along
    # Few places are added to the zeros that are there.
    based = pointing.places <= _FEW
    work = Work(client, name, "add", out, value, pointing, whole, based, dropped)
    write, fills = _writer(work, settle)

    def run(hv: Any, hi: Any) -> Any:
        result = allocate(client.pool, out)
        if fills:
            write(result.address, 0, hv, hi)
            return result
        if out.size:
            client.fill_zero(result.address, out.nbytes)
        write(result.address, result.address, hv, hi)
        return result

    return run


KERNELS = {
    "index_adjoint": adjoint(by_index),
    "index_put": writer(by_index, None),
    "index_add": writer(by_index, "add"),
    "index_multiply": writer(by_index, "multiply"),
    "index_extreme": writer(by_index, "extreme"),
    "take_along_axis_adjoint": adjoint(along),
    "scatter_put": writer(along, None),
    "scatter_add": writer(along, "add"),
    "scatter_multiply": writer(along, "multiply"),
    "scatter_extreme": writer(along, "extreme"),
    "embedding_backward": _table,
}
