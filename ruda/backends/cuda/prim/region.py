"""Regions of a compiled step: elementwise operators of one shape in one launch."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda import codegen_region as codegen
from ruda.backends.cuda.codegen import THREADS, Operand
from ruda.backends.cuda.codegen_steps import Step
from ruda.backends.cuda.geometry import Layout, layout_of, needs_wide, packed
from ruda.backends.cuda.launch import Launcher, raw_bits
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import DType, compute_of, float64, int64
from ruda.core.spec import Spec

_ELEMENTWISE = ("unary", "binary", "ternary", "cast", "copy")
_BLOCKS_PER_MULTIPROCESSOR = 16


def fuses(plan: Any) -> bool:
    """Whether ``plan`` can be a step of a region: an expression without attributes."""
    op = plan.op
    if plan.out is None or plan.out.__class__ is tuple or not plan.out.contiguous:
        return False
    if op.kind not in _ELEMENTWISE and (op.kind != "fused" or op.expr is None):
        return False
    if any("storage" in (s.dtype.kind, plan.out.dtype.kind) for s in plan.specs):
        return False
    if op.kind in ("cast", "copy"):
        return plan.specs[0].shape == plan.out.shape
    return op.expr is not None and not op.attrs and op.name != "nextafter"


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of a region's inputs to those of its results."""
    out = region.out[0]
    layout = layout_of(region.specs, out)
    wide = needs_wide((*region.specs, out), out.shape)
    kernel = _kernel(region, layout, wide)
    run = _launchers(client, kernel, layout, out.size, wide)
    reads = [raw_bits(o.computed) if o.form == "value" else _address for o in kernel.inputs]
    dense = [i for i, o in enumerate(kernel.inputs) if o.form == "dense"]

    def launch(*handles: Any) -> tuple[Any, ...]:
        made = tuple(allocate(client.pool, spec) for spec in region.out)
        values = [h.address for h in made]
        joint = 0
        for address in values:
            joint |= address
        for read, handle in zip(reads, handles, strict=True):
            values += read(handle)
        for i in dense:
            joint |= handles[i].address
        run[(joint & 15) == 0](*values)
        return made

    return launch


def _address(handle: Any) -> tuple[int, ...]:
    return (handle.address,)


def _kernel(region: Any, layout: Layout, wide: bool) -> codegen.Region:
    """The class of kernel: each weak input belongs to one step, whose dtype it is passed in."""
    steps = tuple(step_of(plan, sources) for plan, sources in region.steps)
    computed_of = {
        source: kind
        for step in steps
        for source, kind in zip(step.sources, step.computed, strict=True)
    }
    inputs = tuple(
        _operand(i, spec, form, computed_of[i], i in region.paged)
        for i, (spec, form) in enumerate(zip(region.specs, layout.forms, strict=True))
    )
    rank = 0 if layout.is_flat else len(layout.sizes)
    return codegen.Region(inputs, steps, region.kept, rank, wide)


def step_of(plan: Any, sources: tuple[int, ...]) -> Step:
    """The expression of an operator, and what its operands are computed in."""
    op = plan.op
    moves = op.kind in ("cast", "copy")
    wanted = (None,) if moves else op.dtype_of_operands(plan)
    pairs = zip(plan.specs, wanted, strict=True)
    kinds = tuple(compute_of(dtype or spec.dtype) for spec, dtype in pairs)
    expr, names = ("x", ("x",)) if moves else (op.expr, op.args)
    return Step(op.name, expr, names, sources, kinds, plan.out.dtype)


def _operand(i: int, spec: Spec, form: str, wanted: DType, paged: bool) -> Operand:
    if paged:
        return Operand(f"i{i}", int64 if spec.dtype.is_integer else float64, wanted, "single")
    return Operand(f"i{i}", spec.dtype, wanted if form == "value" else spec.dtype, form)


def _launchers(
    client: Any, kernel: codegen.Region, layout: Layout, n: int, wide: bool
) -> tuple[Launcher, Launcher]:
    """The kernel for addresses that 16 does not divide, and for those that it does."""
    text, name = codegen.source(kernel), kernel.name
    work = n if kernel.rank else -(-n // codegen.vector(kernel))
    most = client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    grid = min(-(-work // THREADS), most)
    double = (2 if o.form == "value" and o.computed.itemsize == 16 else 1 for o in kernel.inputs)
    widths = [*(1 for _ in kernel.kept), *double]
    if kernel.rank:
        only = Launcher(client, text, name, grid, THREADS, widths, [packed(layout, wide)])
        return only, only
    size = struct.pack("<Q" if wide else "<I", n)
    flags = (struct.pack("<I", flag) for flag in (0, 1))
    pair = (Launcher(client, text, name, grid, THREADS, widths, [size, flag]) for flag in flags)
    return tuple(pair)  # type: ignore[return-value]
