"""CUDA C of row kernels: one template for softmax, norms and losses along rows.

The kernel reads the row once and keeps it in registers ("held"), or, where it is too long, reads
it again in each pass ("stream"). Its blocks walk over many rows where there are sums over rows to
keep, and where rows leave room for one block on a multiprocessor. ``codegen_row_passes`` writes
what is done in a pass, ``codegen_row_reads`` what it reads.
"""

from __future__ import annotations

from ruda.backends.cuda.codegen_row_passes import columns, indented, partial_rows, sweep
from ruda.backends.cuda.codegen_row_pipes import piped
from ruda.backends.cuda.codegen_row_reads import (
    ahead_of,
    begun,
    declared,
    first_of,
    kept,
    kept_alike,
    load,
    skew_of,
    starts_of,
)
from ruda.backends.cuda.row_programs import Rows
from ruda.backends.cuda.types import computed, stored

_KERNEL = """#include "ruda/earlier.cuh"
#include "ruda/{header}.cuh"{more}

typedef {compute} T;
static const int LANES = {lanes}, PER = {per}, VEC = {vec}, GROUPS = {groups}, HALF = {half};
struct Geometry {{ i64 rows, n, osize[{outer}], isize[{inner}]{fields}; }};
__device__ __forceinline__ T exp_of(T v) {{ return {exp}(v); }}{cluster}
{functions}
// Rows of n elements through strides, {groups} a block; {threads} threads, {mode}.
extern "C" __global__ void {dims}__launch_bounds__({bounds})
{name}({parameters}, const Geometry at) {{
    {shared};
    wait_for_earlier();
    int turn = 0;
    const int n = (int)at.n;
{constants}
{body}
}}
"""

_CLUSTER = """
static const int CLUSTER = {};
typedef Mail<T, CLUSTER, HALF> Post;
// Architectures: sm_90a, sm_100a, sm_120."""


def source(kernel: Rows) -> str:
    """The CUDA C of one kernel."""
    write = piped if kernel.piped else columns if kernel.mode == "columns" else _rows
    body = write(kernel)
    named = (i.name for i in kernel.inputs if i.role not in ("one", "value"))
    strides = (*named, *(o.name for o in kernel.outs))
    fields = "".join(f", {s}_outer[{kernel.outer}], {s}_inner[{kernel.inner}]" for s in strides)
    fields += "".join(f"; double {s}" for s in kernel.program.scalars)
    constants = [f"    const T {s} = T(at.{s});" for s in kernel.program.scalars]
    constants += _placed(kernel) if kernel.piped else []
    for i in (*kernel.of("one"), *kernel.of("value")):
        kind, star = i.value if i.raw else "T", "*" * (i.role == "one")
        constants.append(f"    const {kind} {i.name} = to<{kind}>({star}{i.name}_data);")
    half = any(i.dtype.is_half for i in kernel.of("rows"))
    return _KERNEL.format(
        compute=computed(kernel.compute),
        lanes=kernel.lanes,
        per=kernel.per,
        vec=kernel.vec,
        groups=kernel.groups,
        outer=kernel.outer,
        inner=kernel.inner,
        fields=fields,
        # The fast one is exact to about 2^-20, far below the rounding of a half type.
        exp="quick_exp" if half else "exp",
        threads=kernel.threads,
        bounds=_bounds(kernel),
        mode=kernel.mode,
        name=kernel.name,
        parameters=", ".join(_parameters(kernel)),
        half=32 * kernel.folded,
        shared=_scratch(kernel),
        header=_header(kernel),
        more=_more(kernel),
        cluster=_CLUSTER.format(kernel.cluster) if kernel.cluster > 1 else "",
        dims=f"__cluster_dims__(1, 1, {kernel.cluster}) " if kernel.cluster > 1 else "",
        constants="\n".join(constants),
        functions=kernel.program.functions,
        body=body,
    )


def _header(kernel: Rows) -> str:
    """How threads and blocks share rows."""
    if kernel.piped:
        return "shared_pipes" if kernel.cluster > 1 else "piped_rows"
    return "shared_rows" if kernel.cluster > 1 else "rows"


def _more(kernel: Rows) -> str:
    """The header of rows that begin anywhere, or of columns in shared memory in parts."""
    parts = kernel.moves or any(i.dtype.itemsize * kernel.vec > 16 for i in kernel.kept)
    names = ("skewed_rows",) * kernel.skewed + ("kept_columns",) * parts
    return "".join(f'\n#include "ruda/{name}.cuh"' for name in names)


def _scratch(kernel: Rows) -> str:
    """Where folds meet."""
    if kernel.cluster > 1:
        row = "post[threadIdx.y]" if kernel.abreast > 1 else "*post"
        return f"DYNAMIC_SHARED(Post, post);\n    Post& scratch = {row};\n    scratch.open()"
    shared = kernel.lanes > 32 and kernel.mode != "columns"
    return "__shared__ T scratch[2 * HALF]" if shared else "T* const scratch = nullptr"


def _bounds(kernel: Rows) -> str:
    """Sums and long rows take registers: a thread may have 128 of them."""
    if kernel.cluster > 1 and not kernel.program.sums:
        block = kernel.abreast * kernel.threads
        return f"{block}, {kernel.resident // block}"
    if kernel.apart or kernel.stays:
        return f"{kernel.threads}, {1024 // kernel.threads}"
    if kernel.walks or kernel.cluster > 1:
        return f"{kernel.threads}, {max(1, 512 // kernel.threads)}"
    return f"{kernel.threads}"


def _parameters(kernel: Rows) -> list[str]:
    out = [f"{stored(o.dtype)}* __restrict__ {o.name}_data" for o in kernel.outs]
    if kernel.mode != "columns":
        pairs = zip(kernel.program.row_outs, kernel.row_types, strict=True)
        out += [f"{stored(kind)}* __restrict__ {name}_data" for name, kind in pairs]
    if kernel.program.sums and kernel.mode in ("held", "columns"):
        out.append("T* __restrict__ partial")
    for i in kernel.inputs:
        star = "" if i.role == "value" else "* __restrict__"
        out.append(f"const {stored(i.dtype)}{star} {i.name}_data")
    return [*out, "const Faults faults"] if kernel.program.faults else out


def _rows(kernel: Rows) -> str:
    """The loop over rows."""
    program, held = kernel.program, kernel.mode == "held"
    ahead = kernel.walks
    sums = program.sums if held else ()
    lines = _placed(kernel)
    lines += declared(kernel, "")
    lines += declared(kernel, "_next") if ahead else []
    lines += [f"    T {s}[PER][VEC] = {{}};" for s in sums]
    if ahead:
        lines += begun(kernel) if kernel.ring else first_of(kernel)
    lines += kept(kernel) if kernel.keeps else []
    lines += [*_next_row(kernel), "        const bool active = row < at.rows;"]
    if ahead:
        lines += ahead_of(kernel)
    else:
        lines.append(load(kernel, "row", ""))
    lines += kept_alike(kernel)
    lines += _row_starts(kernel, held)
    lines.append(indented(program.before, 8))
    last = program.passes[-1] if sums else None
    for each in program.passes:
        if kernel.keeps and each is program.passes[-1]:
            fresh = "fresh" if kernel.by_kind else "first == start"
            lines += ["        fetches_arrive<0>();"] * (not kernel.moves)
            lines += [f"        if ({fresh}) __syncthreads();"] * (kernel.groups > 1)
        lines += sweep(kernel, each, gathers=each is last)
    lines += _written(kernel)
    lines += ["        if (++nth == units) nth = 0, ++kind;"] * kernel.by_kind
    lines.append("    }")
    if sums:
        lines += partial_rows(kernel)
    return "\n".join(lines)


def _next_row(kernel: Rows) -> list[str]:
    """The head of the loop over rows.

    Rows whose numbers are the same but for a multiple of a pack begin alike: they are of a kind.
    Blocks have as many units, which are a row for each group, of one kind after the other.
    """
    if not kernel.by_kind:
        return [
            "    for (i64 first = start; first < at.rows; first += step) {",
            "        const i64 row = first + group;",
        ]
    return [
        "    const int units = (int)(((at.rows + VEC - 1) / VEC + GROUPS - 1) / GROUPS);",
        "    const i64 all = (i64)units * VEC;",
        "    const int begin = (int)(all * blockIdx.x / gridDim.x);",
        "    const int end = (int)(all * (blockIdx.x + 1) / gridDim.x);",
        "    int kind = begin / units, nth = begin % units;",
        "    for (int unit = begin; unit < end; ++unit) {",
        "        const bool fresh = nth == 0 || unit == begin;",
        "        const i64 row = kind + (i64)VEC * (nth * GROUPS + group);",
    ]


def _row_starts(kernel: Rows, held: bool) -> list[str]:
    """Where a row begins in each operand, and what it has before its first pack."""
    placed = [i for i in kernel.inputs if not (i.by and held) and not i.still]
    names = [i.name for i in placed if i.role in ("rows", "column")]
    names += [o.name for o in kernel.outs]
    lines = [f"        const i64 {s};" for s in starts_of(kernel, names, "(active ? row : 0)")]
    if kernel.skewed:
        lines.append(f"        {skew_of(kernel)}")
    if any("loose" in each.then for each in kernel.program.passes):
        lines.append(f"        const int loose = {'skew.count' if kernel.skewed else '0'};")
    return lines


def _written(kernel: Rows) -> list[str]:
    """The values of a row to their places."""
    if not kernel.program.row_outs:
        return []
    pairs = zip(kernel.program.row_outs, kernel.row_types, strict=True)
    written = [f"            {n}_data[row] = to<{stored(t)}>({n});" for n, t in pairs]
    return ["        if (active && lane == 0) {", *written, "        }"]


def _placed(kernel: Rows) -> list[str]:
    """Where a thread is in the row, and the first row and the step of its block or cluster."""
    places, pieces = "lane = threadIdx.x % LANES, group = threadIdx.x / LANES", ""
    if kernel.apart:
        pieces = " / pieces"
        places = "pieces = (n - 1) / (PER * LANES * VEC) + 1, group = 0"
        places += ", lane = int(blockIdx.x % pieces) * (PER * LANES) + threadIdx.x"
    if kernel.cluster > 1:
        group = "threadIdx.y" if kernel.abreast > 1 else "0"
        places = f"lane = blockIdx.z * {kernel.threads} + threadIdx.x, group = {group}"
    lines = [f"    const int {places};"]
    if kernel.by_kind:
        return lines
    return [
        *lines,
        *(["    const int lane_at = lane * VEC;"] * (not kernel.skewed)),
        f"    const i64 start = (i64)(blockIdx.x{pieces}){' * GROUPS' * (not kernel.alike)};",
        f"    const i64 step = (i64)(gridDim.x{pieces}) * GROUPS;",
    ]
