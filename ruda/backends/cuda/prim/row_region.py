"""Row kernels with what stands before and behind them: elementwise steps on the elements of rows.

A norm, a softmax or a loss takes operands that are computed while they are read, and goes on with
its results before they are written. Each step rounds to the dtype that its own result would have
had in memory, so the whole gives what its operators give one by one. Which can be joined is said
here, what text they become in ``row_whole.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import raw_bits
from ruda.backends.cuda.prim import channel_region
from ruda.backends.cuda.prim.reading import reading_of
from ruda.backends.cuda.prim.region import fuses, step_of
from ruda.backends.cuda.prim.row_whole import Whole, by_rows, fetches, is_core
from ruda.backends.cuda.prim.rows import launches
from ruda.core.dtypes import DType, float64
from ruda.core.shapes import Shape


class Facts(NamedTuple):
    """Of a row operator: the shape of its rows, and which operands and results have their shape.

    ``casts`` are operands that may come from a cast and from nothing else.
    """

    shape: Shape
    reads: tuple[int, ...]
    casts: tuple[int, ...]
    writes: tuple[int, ...]


def facts(plan: Any) -> Any:
    """What can be joined to ``plan``; None for what is no row kernel."""
    if channel_region.is_core(plan):
        return channel_region.facts(plan)
    parts = getattr(plan.run, "parts", None)
    if parts is None or not parts.work.rows:
        return None
    work = parts.work
    pairs = zip(parts.places, work.inputs, strict=True)
    sides = [(i, side.name) for i, side in pairs if side.role == "rows"]
    reads = tuple(i for i, name in sides if plan.specs[i].shape == work.shape)
    casts = tuple(i for i, name in sides if fetches(parts.stream, name))
    rest = tuple(i for i in reads if i not in casts)
    return Facts(work.shape, rest, casts, tuple(range(len(work.outs))))


def takes(plan: Any, step: Any) -> bool:
    """Whether the kernel of ``plan`` can do ``step``: its arithmetic holds all values exactly."""
    if channel_region.is_core(plan):
        return channel_region.takes(plan, step)
    if reading_of(step) is not None:
        return _reads_rows(plan, step)
    if not fuses(step):
        return False
    compute = plan.run.parts.work.compute
    kinds = [s.dtype for s in step.specs if not s.weak]
    kinds += step_of(step, ()).computed
    return all(_is_exact(dtype, compute) for dtype in (*kinds, step.out.dtype))


def _reads_rows(plan: Any, step: Any) -> bool:
    """Whether ``step`` reads whole rows where one integer a row says, and may tell of faults."""
    parts = plan.run.parts
    if parts.sums or parts.work.form is not None or not by_rows(step, parts.work.axes):
        return False
    # Rows of float64 leave no registers for where they begin.
    small = parts.work.compute.itemsize <= 4
    return small and _is_exact(step.specs[0].dtype, parts.work.compute)


def _is_exact(dtype: DType, compute: DType) -> bool:
    if dtype.name == "bool":
        return True
    return dtype.is_floating and dtype.itemsize <= compute.itemsize


def _over_channels(region: Any) -> bool:
    return any(channel_region.is_core(step.plan) for step in region.steps)


def has_rows(region: Any) -> bool:
    """Whether a region is one of rows."""
    return _over_channels(region) or any(is_core(step.plan) for step in region.steps)


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of a region's inputs to those of its results."""
    if _over_channels(region):
        return channel_region.bind(client, region)
    whole = Whole(region)
    parts = whole.parts_of_all()
    rows = whole.kept_rows()
    plan = whole.plan
    own = plan.out if plan.out.__class__ is tuple else (plan.out,)
    specs = {whole.count + k: spec for k, spec in zip(region.kept, region.out, strict=True)}
    out = (*(specs[v] for v in rows), *own[whole.rows :])
    run = launches(parts, out)
    order = {v: j for j, v in enumerate(rows)}
    order |= {whole.first + whole.rows + j: len(rows) + j for j in range(len(out) - len(rows))}
    chosen = [order[whole.count + k] for k in region.kept]
    reads = [_bits if side.role == "value" else _address for side in parts.work.inputs]

    def launch(*handles: Any) -> tuple[Any, ...]:
        made = run([read(handles[i]) for read, i in zip(reads, parts.places, strict=True)])
        return tuple([made[j] for j in chosen])

    return launch


def _address(handle: Any) -> int:
    return handle.address


def _bits(value: Any) -> int:
    return raw_bits(float64)(float(value))[0]
