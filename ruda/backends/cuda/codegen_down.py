"""CUDA C of folds down columns: steps on elements, sums over rows, steps on what was folded.

A block has some packs of columns side by side and several rows at a time. Where several blocks
share the rows, each leaves its part in memory, and the last of them to finish adds the parts up in
their order: one launch, and results that do not depend on who was last.
"""

from __future__ import annotations

from ruda.backends.cuda.codegen_row_reads import fetched, starts_of
from ruda.backends.cuda.row_programs import Rows
from ruda.backends.cuda.types import computed, stored

THREADS = 256

_KERNEL = """#include "ruda/earlier.cuh"
#include "ruda/rows.cuh"

typedef {compute} T;
static const int VEC = {vec}, FOLDS = {folds};
struct Geometry {{ i64 rows, n, osize[{outer}], isize[{inner}]{fields}; }};
{functions}

// Adds up what the threads of a column have; those of the first row of threads get it.
{joins}

// [rows, n] of elements; blocks of `across` packs times {threads} / across rows, blocks in y share
// the rows. partial: [folds, gridDim.y, n]; count: a zero for each block in x, and again after it.
extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, const Geometry at, const i64 across) {{
    __shared__ T shown[{threads} * VEC];
    __shared__ u32 ticket;
    const int n = (int)at.n, down = {threads} / (int)across;
    const int cx = threadIdx.x & ((int)across - 1), cy = threadIdx.x / (int)across;
    const int i = (blockIdx.x * (int)across + cx) * VEC;
    const bool present = i < n;
    wait_for_earlier();
{constants}
{declared}
    if (present) {{
#pragma unroll 4
        for (i64 row = (i64)blockIdx.y * down + cy; row < at.rows; row += (i64)gridDim.y * down) {{
{body}
        }}
    }}
{joined}
    if (gridDim.y > 1) {{
        if (present && cy == 0) {{
{parts}
        }}
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) ticket = atomicAdd(count + blockIdx.x, 1u);
        __syncthreads();
        if (ticket + 1 != gridDim.y) return;
        __threadfence();
{declared_again}
        if (present)
            for (int part = cy; part < (int)gridDim.y; part += down) {{
{taken}
            }}
{joined}
        if (threadIdx.x == 0) count[blockIdx.x] = 0;
    }}
    if (!present || cy != 0) return;
{finish}
}}
"""

_JOIN = """__device__ __forceinline__ void
join_{how}(T (&v)[VEC], T* shown, int across, int down) {{
    for (int half = down / 2; half > 0; half >>= 1) {{
        __syncthreads();
#pragma unroll
        for (int k = 0; k < VEC; ++k) shown[k * {threads} + threadIdx.x] = v[k];
        __syncthreads();
        if ((int)threadIdx.x < half * across)
#pragma unroll
            for (int k = 0; k < VEC; ++k)
                v[k] = {how}::of(v[k], shown[k * {threads} + threadIdx.x + half * across]);
    }}
}}"""


def source(kernel: Rows, finish: str) -> str:
    """The CUDA C of one kernel; the first pass of its program has the folds and the writes."""
    program = kernel.program
    named = [i.name for i in kernel.inputs if i.role not in ("one", "value")]
    named += [o.name for o in kernel.outs]
    fields = "".join(f", {s}_outer[{kernel.outer}], {s}_inner[{kernel.inner}]" for s in named)
    constants = []
    for i in (*kernel.of("one"), *kernel.of("value")):
        star = "*" * (i.role == "one")
        constants.append(f"    const {i.value} {i.name} = to<{i.value}>({star}{i.name}_data);")
    return _KERNEL.format(
        **_folds(kernel),
        compute=computed(kernel.compute),
        vec=kernel.vec,
        outer=kernel.outer,
        inner=kernel.inner,
        fields=fields,
        functions=program.functions,
        threads=THREADS,
        name=kernel.name,
        parameters=", ".join(_parameters(kernel)),
        constants="\n".join(constants),
        body=_body(kernel),
        finish="\n".join([*_columns(kernel), finish]),
    )


def _folds(kernel: Rows) -> dict[str, object]:
    """What is said of each fold: its variable, how threads and blocks join theirs."""
    folds = kernel.program.passes[0].folds
    part = "partial[({0} * (i64)gridDim.y + {1}) * n + i + k]"
    starts = [f"    EACH {name}[k] = {start};" for name, _, start in folds]
    kinds = dict.fromkeys(how for _, how, _ in folds)
    lines: dict[str, list[str]] = {
        "joins": [_JOIN.format(how=how, threads=THREADS) for how in kinds],
        "declared": [*(f"    T {name}[VEC];" for name, _, _ in folds), *starts],
        "declared_again": starts,
        "joined": [f"    join_{how}({n}, shown, (int)across, down);" for n, how, _ in folds],
        "parts": [
            f"            EACH {part.format(j, 'blockIdx.y')} = {n}[k];"
            for j, (n, _, _) in enumerate(folds)
        ],
        "taken": [
            f"                EACH {n}[k] = {how}::of({n}[k], {part.format(j, 'part')});"
            for j, (n, how, _) in enumerate(folds)
        ],
    }
    return {"folds": len(folds)} | {name: "\n".join(text) for name, text in lines.items()}


def _columns(kernel: Rows) -> list[str]:
    """Packs of the operands of steps on folded values, which are the same in all rows."""
    lines = []
    for i in kernel.of("column"):
        lines.append(f"    const i64 {i.name}_at = 0;")
        pack = f"Pack<{stored(i.dtype)}, VEC>"
        lines.append(f"    const {pack} {i.name} = {fetched(kernel, i)};")
    return lines


def _parameters(kernel: Rows) -> list[str]:
    out = [f"{stored(o.dtype)}* __restrict__ {o.name}_data" for o in kernel.outs]
    pairs = zip(kernel.program.row_outs, kernel.row_types, strict=True)
    out += [f"{stored(kind)}* __restrict__ {name}_data" for name, kind in pairs]
    # Written by one block and read by another: not restricted.
    out += ["T* partial", "u32* count"]
    for i in kernel.inputs:
        star = "" if i.role == "value" else "* __restrict__"
        out.append(f"const {stored(i.dtype)}{star} {i.name}_data")
    return out


def _body(kernel: Rows) -> str:
    """What is done to a pack of a row."""
    (each,), pad = kernel.program.passes, " " * 12
    rows = kernel.of("rows")
    names = [*(i.name for i in rows), *(o.name for o in kernel.outs)]
    lines = [f"{pad}const i64 {start};" for start in starts_of(kernel, names, "row")]
    for i in rows:
        pack = f"Pack<{stored(i.dtype)}, VEC>"
        lines.append(f"{pad}const {pack} {i.name} = {fetched(kernel, i)};")
    lines += [pad + line for line in each.pack.splitlines()]
    for name in each.writes:
        form = "dense" if kernel.vec > 1 else "each"
        at = f"place<{kernel.inner}>(i, at.isize, at.{name}_inner)"
        if kernel.inner == 1:
            at = "i" if form == "dense" else f"i * at.{name}_inner[0]"
        lines.append(f"{pad}put({name}_data + {name}_at + {at}, {name});")
    return "\n".join(lines)
