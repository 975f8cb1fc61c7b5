"""Reductions over any axes, in one or two launches: sums, products, extremes, logic.

The reduced axes are made innermost by strides, not by a copy. A block reduces one output, with many
blocks to an output when there are few of them: then a second launch folds the partial results in
fixed order, so results do not depend on timing.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType, bool_, compute_of, int64
from ruda.core.errors import StrategyError
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of

THREADS = 256


class Fold(NamedTuple):
    """How a reduction folds: the neutral value, one step, and the end, in C of type ``T``."""

    start: str
    step: str
    end: str = "a"


FOLDS = {
    "sum": Fold("to<T>(0)", "a + b"),
    "prod": Fold("to<T>(1)", "a * b"),
    "max": Fold("lowest<T>()", "ruda_max(a, b)"),
    "min": Fold("highest<T>()", "ruda_min(a, b)"),
    "any": Fold("false", "a || b"),
    "all": Fold("true", "a && b"),
    "count_nonzero": Fold("to<T>(0)", "a + b"),
    "mean": Fold("to<T>(0)", "a + b", "mean_of(a, at.count)"),
}

_TEMPLATE = """#include "ruda/math.cuh"
#include "ruda/limits.cuh"

typedef {compute} T;
struct Geometry {{ i64 inner, count, osize[8], ostride[8], isize[8], istride[8]; }};

__device__ __forceinline__ T fold(T a, T b) {{ return {step}; }}
__device__ __forceinline__ i64 place(i64 i, const i64* size, const i64* stride) {{
    i64 at = 0;
#pragma unroll
    for (int d = {rank} - 1; d >= 0; --d) {{
        const i64 whole = i / size[d];
        at += (i - whole * size[d]) * stride[d];
        i = whole;
    }}
    return at;
}}

// x: outer x inner elements through strides; out: [gridDim.x, gridDim.y]. Block (o, p) folds part p
// of the inner elements of output o, {threads} threads, one value of T a thread in shared memory.
extern "C" __global__ void __launch_bounds__({threads})
{name}({stored_out}* __restrict__ out, const {stored_in}* __restrict__ x, const Geometry at) {{
    __shared__ T lanes[{threads}];
    const i64 base = place(blockIdx.x, at.osize, at.ostride);
    const i64 step = (i64)gridDim.y * {threads};
    T a = {start};
    for (i64 i = (i64)blockIdx.y * {threads} + threadIdx.x; i < at.inner; i += step) {{
        const {stored_in} v = x[base + place(i, at.isize, at.istride)];
        a = fold(a, {load});
    }}
    lanes[threadIdx.x] = a;
    __syncthreads();
#pragma unroll
    for (int far = {threads} / 2; far > 0; far >>= 1) {{
        if (threadIdx.x < far)
            lanes[threadIdx.x] = fold(lanes[threadIdx.x], lanes[threadIdx.x + far]);
        __syncthreads();
    }}
    if (threadIdx.x == 0) {{
        a = lanes[0];
        out[(i64)blockIdx.x * gridDim.y + blockIdx.y] = to<{stored_out}>({end});
    }}
}}
"""


def source(
    op: str, given: DType, compute: DType, out: DType, rank: int, phase: str
) -> tuple[str, str]:
    """Name and CUDA C of one launch: ``phase`` is "whole", "parts" (first) or "fold" (second)."""
    plan = FOLDS[op]
    name = f"{op}_{code_of(given)}_{code_of(out)}_r{rank}_{phase}"
    load = "to<T>(v)"
    if phase != "fold" and op == "count_nonzero":
        load = "T(to<bool>(v))"
    text = _TEMPLATE.format(
        compute=computed(compute),
        step=plan.step,
        start=plan.start,
        end="a" if phase == "parts" else plan.end,
        load=load,
        rank=rank,
        threads=THREADS,
        name=name,
        stored_in=stored(given),
        stored_out=stored(out),
    )
    return name, text


def bind(client: Any, plan: Any, axes: Shape) -> Callable[[Any], Any]:
    """The function from the operand's handle to the reduced output."""
    op, (x,) = plan.op.name, plan.specs
    if op not in FOLDS:
        raise StrategyError(op, "has no CUDA kernel yet", x)
    out = plan.out
    outer = [
        (n, s) for i, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)) if i not in axes
    ]
    inner = [(n, s) for i, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)) if i in axes]
    count = math.prod(n for n, _ in inner)
    wanted = plan.op.dtype_of_operands(plan)[0] or out.dtype
    logical = {"any": bool_, "all": bool_, "count_nonzero": int64}
    compute = compute_of(logical.get(op, wanted))
    parts = _parts(client, out.size, count)
    geometry = _packed(_joined(outer), _joined(inner), count)
    rank = max(len(_joined(outer)), len(_joined(inner)), 1)
    if parts == 1:
        first = _launcher(
            client, source(op, x.dtype, compute, out.dtype, rank, "whole"), (out.size, 1), geometry
        )
        return _once(client, first, out)
    first = _launcher(
        client, source(op, x.dtype, compute, compute, rank, "parts"), (out.size, parts), geometry
    )
    dense = _packed([(out.size, parts)], [(parts, 1)], count)
    second = _launcher(
        client, source(op, compute, compute, out.dtype, 1, "fold"), (out.size, 1), dense
    )
    between = spec_of(client, (out.size, parts), compute)
    return _twice(client, first, second, out, between)


def _parts(client: Any, outputs: int, count: int) -> int:
    """Blocks per output: enough to fill the device, each with work for its threads."""
    if outputs == 0:
        return 1
    wanted = -(-client.driver.multiprocessors * 8 // outputs)
    return max(1, min(wanted, -(-count // (THREADS * 8)), 1024))


def _joined(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring axes joined where they step evenly."""
    out: list[tuple[int, int]] = []
    for size, stride in axes:
        if size == 1:
            continue
        if out and out[-1][1] == stride * size:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return out


def _packed(outer: Any, inner: Any, count: int) -> bytes:
    """The struct Geometry; both lists count from the outermost, as ``place`` unwinds them."""
    rank = max(len(outer), len(inner), 1)
    if rank > 8:
        raise StrategyError("reduce", "more than 8 separate dimensions", rank, hint="contiguous()")
    numbers = [math.prod(n for n, _ in inner), count]
    for axes in (outer, inner):
        filled = [(1, 0)] * (rank - len(axes)) + list(axes)
        numbers += [n for n, _ in filled] + [1] * (8 - rank)
        numbers += [s for _, s in filled] + [0] * (8 - rank)
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _launcher(
    client: Any, kernel: tuple[str, str], grid: tuple[int, int], geometry: bytes
) -> Launcher:
    name, text = kernel
    return Launcher(client, text, name, grid, THREADS, (1, 1), [geometry])


def _once(client: Any, first: Launcher, out: Spec) -> Callable[[Any], Any]:
    def run(h: Any) -> Any:
        result = allocate(client.pool, out)
        if out.size:
            first(result.address, h.address)
        return result

    return run


def _twice(
    client: Any, first: Launcher, second: Launcher, out: Spec, between: Spec
) -> Callable[[Any], Any]:
    def run(h: Any) -> Any:
        partial = allocate(client.pool, between)
        result = allocate(client.pool, out)
        first(partial.address, h.address)
        second(result.address, partial.address)
        return result

    return run
