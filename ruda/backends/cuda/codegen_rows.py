"""CUDA C of row kernels: one template for softmax, norms and losses along rows.

A program says what happens to a pack of elements in each pass over a row, and what is done with
the values folded over the row between passes. The kernel reads the row once and keeps it in
registers ("held"), or, where it is too long, reads it again in each pass ("stream"). Programs that
also add up over rows, for gradients of parameters, keep those sums in registers while blocks walk
over many rows, and write one partial row a block ("held"), or have a pass of their own ("columns").
Of rows that leave room for one block on a multiprocessor it walks over many, too.
Blocks that walk have the next rows on their way into a ring in shared memory, or the next one into
registers: each thread fetches what it will use itself, so no barrier is needed for them.

A kernel is made per class (program, dtypes, forms, ranks, width of the group), never per shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType


@dataclass(frozen=True)
class Pass:
    """One sweep over the row.

    ``pack`` is done with arrays of ``VEC`` elements under the names of ``reads``; those of
    ``writes`` are stored after it. ``folds`` are the values that it gathers, as (name, "Sum",
    "Max" or "Min", start in C); ``then`` follows, once a row, when they are folded over the group.
    """

    reads: tuple[str, ...]
    pack: str
    folds: tuple[tuple[str, str, str], ...] = ()
    then: str = ""
    writes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """What a row kernel computes.

    ``each`` is done to the packs as soon as they are read, in every pass; ``before`` once a row.
    ``sums`` are added up over rows, element by element, by ``gather`` in the last pass.
    ``row_outs`` are written once a row, from variables of their names; ``scalars`` are attributes.
    ``row_types`` are the dtypes of ``row_outs`` where they are not that of the statistics.
    ``functions`` stand in front of the kernel. With ``faults`` the kernel has a parameter of that
    name and type, to tell of an index that is out of range.
    """

    name: str
    passes: tuple[Pass, ...]
    each: str = ""
    before: str = ""
    sums: tuple[str, ...] = ()
    gather: str = ""
    row_outs: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    functions: str = ""
    faults: bool = False
    row_types: tuple[DType, ...] = ()


@dataclass(frozen=True)
class Input:
    """An operand: ``role`` is "rows" (the elements), "column" (along the row), "row" or "one".

    One of the role "value" is a double, or an int64, that is passed by value. What is ``raw`` keeps
    its own type: a pack of it is an array ``name.at``.

    ``form`` is how a pack is read: "dense" or "same" (one element for all); "each" without packs.
    Rows ``by`` an operand of the role "row" begin where its integer says: numbers ``{by}_length``
    and ``{by}_step`` are scalars of the program, which tells of faults.
    """

    name: str
    dtype: DType
    role: str
    form: str = "each"
    raw: bool = False
    by: str = ""
    wraps: bool = False

    @property
    def value(self) -> str:
        """The C type of a value of a row."""
        if self.raw:
            return computed(self.dtype)
        return "i64" if self.dtype.is_integer else "T"


@dataclass(frozen=True)
class Output:
    """An output of the shape of the rows."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class Rows:
    """A class of row kernels; ``outer`` and ``inner`` count axes after collapsing."""

    program: Program
    inputs: tuple[Input, ...]
    outs: tuple[Output, ...]
    row_dtype: DType
    compute: DType
    mode: str
    lanes: int
    per: int
    vec: int
    outer: int = 1
    inner: int = 1
    ring: int = 0
    cluster: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block: one group that is more than a warp, or many that are not."""
        return self.lanes // self.cluster if self.lanes > 32 else 128

    @property
    def walks(self) -> bool:
        """Whether blocks walk over rows that they have on their way beforehand."""
        # The threads of a cluster keep more: there is no room for the next row beside it.
        ahead = bool(self.program.sums) and self.cluster == 1
        return self.mode == "held" and (ahead or self.ring > 0)

    @property
    def groups(self) -> int:
        """Rows that a block works on at a time."""
        return max(1, self.threads // self.lanes)

    @property
    def name(self) -> str:
        """The name of the kernel: readable, and different for different classes."""
        forms = {"dense": "d", "same": "s", "each": ""}
        codes = "_".join(code_of(i.dtype) + forms[i.form] + "_by" * bool(i.by) for i in self.inputs)
        outs = "_".join(code_of(o.dtype) for o in self.outs)
        size = f"{self.mode}{self.lanes}x{self.per}x{self.vec}_r{self.outer}{self.inner}"
        size += f"_ring{self.ring}" if self.ring else ""
        size += f"_cluster{self.cluster}" if self.cluster > 1 else ""
        return f"{self.program.name}_{codes}_to_{outs or code_of(self.row_dtype)}_{size}"

    @property
    def row_types(self) -> tuple[DType, ...]:
        """The dtypes of what is written once a row."""
        return self.program.row_types or (self.row_dtype,) * len(self.program.row_outs)

    @property
    def folded(self) -> int:
        """The most values that are folded together."""
        return max((len(p.folds) for p in self.program.passes), default=1) or 1

    def of(self, role: str) -> list[Input]:
        """The operands of a role."""
        return [i for i in self.inputs if i.role == role]

    @property
    def shared(self) -> int:
        """Bytes of what the blocks of a cluster send each other, and of the ring."""
        nbytes = sum(i.dtype.itemsize for i in self.of("rows")) * self.vec
        return self.sent + self.ring * self.per * self.threads * nbytes

    @property
    def sent(self) -> int:
        """Bytes of what the blocks of a cluster send each other."""
        values = self.folded * 2 * (32 + self.cluster)
        return 16 + self.compute.itemsize * values if self.cluster > 1 else 0


_KERNEL = """#include "ruda/{header}.cuh"

typedef {compute} T;
static const int LANES = {lanes}, PER = {per}, VEC = {vec}, GROUPS = {groups}, HALF = {half};
struct Geometry {{ i64 rows, n, osize[{outer}], isize[{inner}]{fields}; }};
__device__ __forceinline__ T exp_of(T v) {{ return {exp}(v); }}{cluster}
{functions}
// Rows of n elements through strides, {groups} a block; {threads} threads, {mode}.
extern "C" __global__ void {dims}__launch_bounds__({bounds})
{name}({parameters}, const Geometry at) {{
    {shared};
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
    body = _columns(kernel) if kernel.mode == "columns" else _rows(kernel)
    named = (i.name for i in kernel.inputs if i.role not in ("one", "value"))
    strides = (*named, *(o.name for o in kernel.outs))
    fields = "".join(f", {s}_outer[{kernel.outer}], {s}_inner[{kernel.inner}]" for s in strides)
    fields += "".join(f"; double {s}" for s in kernel.program.scalars)
    constants = [f"    const T {s} = T(at.{s});" for s in kernel.program.scalars]
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
        header="shared_rows" if kernel.cluster > 1 else "rows",
        cluster=_CLUSTER.format(kernel.cluster) if kernel.cluster > 1 else "",
        dims=f"__cluster_dims__(1, 1, {kernel.cluster}) " if kernel.cluster > 1 else "",
        constants="\n".join(constants),
        functions=kernel.program.functions,
        body=body,
    )


def _scratch(kernel: Rows) -> str:
    """Where folds meet."""
    if kernel.cluster > 1:
        return "DYNAMIC_SHARED(Post, post);\n    Post& scratch = *post;\n    scratch.open()"
    shared = kernel.lanes > 32 and kernel.mode != "columns"
    return "__shared__ T scratch[2 * HALF]" if shared else "T* const scratch = nullptr"


def _bounds(kernel: Rows) -> str:
    """Sums and long rows take registers: a thread may have 128 of them."""
    if kernel.cluster > 1 and not kernel.program.sums:
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


def _inner(kernel: Rows, name: str, form: str) -> str:
    """Where element ``i`` of the row of an operand lies, counted from the start of the row."""
    if kernel.inner > 1:
        return f"place<{kernel.inner}>(i, at.isize, at.{name}_inner)"
    return {"dense": "i", "same": "0"}.get(form, f"i * at.{name}_inner[0]")


def fetched(kernel: Rows, i: Input) -> str:
    """A pack of an operand at element ``i`` of the row."""
    how = "spread" if i.form == "same" else "fetch"
    return f"{how}<VEC>({i.name}_data + {i.name}_at + {_inner(kernel, i.name, i.form)})"


def starts_of(kernel: Rows, names: list[str], row: str, suffix: str = "") -> list[str]:
    """Where the row begins in each operand; what it is told by ends in ``suffix``."""
    pointed = {i.name: i for i in kernel.inputs if i.by}
    lines = []
    for n in names:
        start = f"place<{kernel.outer}>({row}, at.osize, at.{n}_outer)"
        if n in pointed:
            start += f" + {_pointed(kernel, pointed[n], row, suffix)}"
        lines.append(f"{n}_at = {start}")
    return lines


def _pointed(kernel: Rows, i: Input, row: str, suffix: str) -> str:
    """What the integer of a row adds to where it begins."""
    where = f"place<{kernel.outer}>({row}, at.osize, at.{i.by}_outer)"
    wraps = str(i.wraps).lower()
    call = f"pointed<{wraps}>({i.by}{suffix}, (i64)at.{i.by}_length, {where}, faults)"
    return f"{call} * (i64)at.{i.by}_step"


def _load(kernel: Rows, row: str, suffix: str) -> str:
    """What belongs to a row, into variables that exist: its values, and where packs begin."""
    lines = []
    for i in kernel.of("row"):
        start = f"place<{kernel.outer}>({row}, at.osize, at.{i.name}_outer)"
        value = f"to<{i.value}>({i.name}_data[{start}])"
        lines.append(f"        if ({row} < at.rows) {i.name}{suffix} = {value};")
    if kernel.mode == "held" and not kernel.ring:
        lines += _load_packs(kernel, row, suffix, "")
    return "\n".join(lines)


def _slot(kernel: Rows, name: str, stage: str) -> str:
    """Where a thread keeps pack ``p`` of an operand in a stage of the ring."""
    start = kernel.sent
    for i in kernel.of("rows"):
        size = i.dtype.itemsize * kernel.vec
        if i.name == name:
            break
        start += kernel.ring * kernel.per * kernel.threads * size
    return f"ring + {start} + (({stage} * PER + p) * {kernel.threads} + threadIdx.x) * {size}"


def _send(kernel: Rows, row: str, stage: str) -> list[str]:
    """The packs of a row on their way into a stage of the ring; an empty group past the last."""
    rows = kernel.of("rows")
    starts = "".join(f" const i64 {s};" for s in starts_of(kernel, [i.name for i in rows], row))
    lines = [
        f"        if ({row} < at.rows) {{{starts}",
        "#pragma unroll",
        "            for (int p = 0; p < PER; ++p) {",
        "                const int i = (p * LANES + lane) * VEC;",
        "                if (i < n) {",
    ]
    for i in rows:
        place = f"{i.name}_data + {i.name}_at + {_inner(kernel, i.name, i.form)}"
        size = i.dtype.itemsize * kernel.vec
        slot = _slot(kernel, i.name, stage)
        lines.append(f"                    copy_async<{size}>({slot}, {place});")
    return [*lines, "                }", "            }", "        }", "        fetches_end();"]


def _begun(kernel: Rows) -> list[str]:
    """The first rows of the ring, and the values of the first row."""
    lines = ["    DYNAMIC_SHARED(char, ring);", "    int stage = 0;"]
    lines += [
        "    {",
        "    const i64 begin = start + group;",
        _load(kernel, "begin", "_next"),
        f"    for (int s = 0; s < {kernel.ring - 1}; ++s) {{",
        "        const i64 next = begin + s * step;",
    ]
    return [*lines, *_send(kernel, "next", "s"), "    }", "    }"]


def _taken(kernel: Rows) -> list[str]:
    """The packs of this row out of the ring; a row further ahead takes the place of the last."""
    far = kernel.ring - 1
    lines = [f"        fetches_arrive<{kernel.ring - 2}>();"]
    lines += ["#pragma unroll", "        for (int p = 0; p < PER; ++p) {"]
    for i in kernel.of("rows"):
        kind = f"Pack<{stored(i.dtype)}, VEC>"
        slot = _slot(kernel, i.name, "stage")
        lines.append(f"            {i.name}_raw[p] = *reinterpret_cast<const {kind}*>({slot});")
    lines += ["        }", f"        const int free = stage == 0 ? {far} : stage - 1;"]
    lines.append(f"        const i64 far = row + {far} * step;")
    lines += _send(kernel, "far", "free")
    return [*lines, f"        stage = stage == {far} ? 0 : stage + 1;"]


def _load_packs(kernel: Rows, row: str, suffix: str, base: str) -> list[str]:
    """The packs of a thread, all asked for before any is used."""
    names = [i.name for i in kernel.of("rows")]
    found = [] if base else starts_of(kernel, names, row, suffix)
    starts = "".join(f" const i64 {s};" for s in found)
    lines = [
        f"        if ({row} < at.rows) {{{starts}",
        "#pragma unroll",
        "            for (int p = 0; p < PER; ++p) {",
        f"                const int i = {base}(p * LANES + lane) * VEC;",
        "                if (i < n) {",
    ]
    for i in kernel.of("rows"):
        lines.append(f"                    {i.name}{suffix}_raw[p] = {fetched(kernel, i)};")
    return [*lines, "                }", "            }", "        }"]


def _ahead(kernel: Rows) -> list[str]:
    """This row is what was loaded ahead, and the next one is asked for."""
    lines = _taken(kernel) if kernel.ring else []
    if not kernel.ring:
        lines += ["#pragma unroll", "        for (int p = 0; p < PER; ++p) {"]
        lines += [f"            {i.name}_raw[p] = {i.name}_next_raw[p];" for i in kernel.of("rows")]
        lines.append("        }")
    lines += [f"        {i.name} = {i.name}_next;" for i in kernel.of("row")]
    return [*lines, "        const i64 later = row + step;", _load(kernel, "later", "_next")]


def _declared(kernel: Rows, suffix: str) -> list[str]:
    keeps = () if suffix and kernel.ring else kernel.of("rows")
    lines = [f"    Pack<{stored(i.dtype)}, VEC> {i.name}{suffix}_raw[PER];" for i in keeps]
    return lines + [f"    {i.value} {i.name}{suffix} = {i.value}(0);" for i in kernel.of("row")]


def _placed(kernel: Rows) -> list[str]:
    """Where a thread is in the row, and the first row and the step of its block or cluster."""
    places = "lane = threadIdx.x % LANES, group = threadIdx.x / LANES"
    if kernel.cluster > 1:
        places = f"lane = blockIdx.z * {kernel.threads} + threadIdx.x, group = 0"
    return [
        f"    const int {places};",
        "    const i64 start = (i64)blockIdx.x * GROUPS, step = (i64)gridDim.x * GROUPS;",
    ]


def _rows(kernel: Rows) -> str:
    """The loop over rows."""
    program, held = kernel.program, kernel.mode == "held"
    ahead = kernel.walks
    sums = program.sums if held else ()
    lines = _placed(kernel)
    lines += _declared(kernel, "")
    lines += _declared(kernel, "_next") if ahead else []
    lines += [f"    T {s}[PER][VEC] = {{}};" for s in sums]
    if ahead:
        lines += _begun(kernel) if kernel.ring else _first(kernel)
    lines += [
        "    for (i64 first = start; first < at.rows; first += step) {",
        "        const i64 row = first + group;",
        "        const bool active = row < at.rows;",
    ]
    if ahead:
        lines += _ahead(kernel)
    else:
        lines.append(_load(kernel, "row", ""))
    kept = [i for i in kernel.inputs if not (i.by and held)]
    names = [i.name for i in kept if i.role in ("rows", "column")]
    names += [o.name for o in kernel.outs]
    lines += [f"        const i64 {s};" for s in starts_of(kernel, names, "(active ? row : 0)")]
    lines.append(_indented(program.before, 8))
    last = program.passes[-1] if sums else None
    for each in program.passes:
        lines += _sweep(kernel, each, gathers=each is last)
    if program.row_outs:
        pairs = zip(program.row_outs, kernel.row_types, strict=True)
        lines.append("        if (active && lane == 0) {")
        lines += [f"            {n}_data[row] = to<{stored(t)}>({n});" for n, t in pairs]
        lines.append("        }")
    lines.append("    }")
    if sums:
        lines += _partial_rows(kernel)
    return "\n".join(lines)


def _first(kernel: Rows) -> list[str]:
    """The first row into registers."""
    begin = "    {\n    const i64 begin = start + group;"
    return [begin, _load(kernel, "begin", "_next"), "    }"]


def _sweep(kernel: Rows, each: Pass, gathers: bool) -> list[str]:
    """One pass over the row, and the folds after it."""
    held = kernel.mode == "held"
    lines = [f"        T {name} = {start};" for name, _, start in each.folds]
    pad = "        "
    if not held:
        lines.append("        for (int base = 0; active && base < n; base += PER * LANES * VEC) {")
        lines += _load_packs(kernel, "row", "", "base + ")
    lines += [
        "#pragma unroll",
        f"{pad}for (int p = 0; p < PER; ++p) {{",
        f"{pad}    const int i = {'' if held else 'base + '}(p * LANES + lane) * VEC;",
        f"{pad}    if (active && i < n) {{",
        *_pack(kernel, each, gathers),
        f"{pad}    }}",
        f"{pad}}}",
    ]
    if not held:
        lines.append("        }")
    return [*lines, *_folds(each), _indented(each.then, 8)]


def _pack(kernel: Rows, each: Pass, gathers: bool) -> list[str]:
    """What one pass does with the packs at ``i``."""
    pad = " " * 16
    lines = []
    used = {*each.reads, *(("+",) if gathers else ())}
    for i in kernel.inputs:
        wanted = i.name in used or _named(kernel.program.each, i.name)
        if i.raw and wanted and i.role in ("rows", "column"):
            read = f"{i.name}_raw[p]" if i.role == "rows" else fetched(kernel, i)
            lines.append(f"{pad}const Pack<{stored(i.dtype)}, VEC> {i.name} = {read};")
        elif i.role == "rows" and (wanted or gathers):
            lines.append(f"{pad}T {i.name}[VEC]; widened({i.name}, {i.name}_raw[p]);")
        elif i.role == "column" and wanted:
            lines.append(f"{pad}T {i.name}[VEC]; widened({i.name}, {fetched(kernel, i)});")
    lines.append(_indented(kernel.program.each, 16))
    known = kernel.program.each + each.pack
    lines += [f"{pad}T {n}[VEC];" for n in each.writes if f" {n}[VEC];" not in known]
    lines.append(_indented(each.pack, 16))
    if gathers:
        gather = kernel.program.gather
        for name in kernel.program.sums:
            gather = gather.replace(f"{name}[k]", f"{name}[p][k]")
        lines.append(_indented(gather, 16))
    for name in each.writes:
        form = "dense" if kernel.vec > 1 else "each"
        lines.append(f"{pad}put({name}_data + {name}_at + {_inner(kernel, name, form)}, {name});")
    return lines


def _named(text: str, name: str) -> bool:
    return f"{name}[k]" in text


def _folds(each: Pass) -> list[str]:
    """Folds of one kind go together: they share a barrier."""
    lines = []
    for kind in ("Max", "Min", "Sum"):
        names = [name for name, how, _ in each.folds if how == kind]
        if not names:
            continue
        values = ", ".join(names)
        lines.append(f"        {{ T folded[{len(names)}] = {{{values}}};")
        lines.append(f"          fold_group<LANES, HALF, {kind}>(folded, scratch, turn);")
        lines += [f"          {name} = folded[{k}];" for k, name in enumerate(names)]
        lines.append("        }")
    return lines


def _partial_rows(kernel: Rows) -> list[str]:
    """The sums of a block as one row of ``partial [sums, blocks, n]``, groups in their order."""
    lines = []
    for number, name in enumerate(kernel.program.sums):
        to = f"partial[({number} * (i64)gridDim.x + blockIdx.x) * n + i + k]"
        if kernel.groups == 1:
            lines += [
                "#pragma unroll",
                "    for (int p = 0; p < PER; ++p) {",
                "        const int i = (p * LANES + lane) * VEC;",
                f"        if (i < n) {{ EACH {to} = {name}[p][k]; }}",
                "    }",
            ]
            continue
        lines += [
            "    {",
            "    __shared__ T gathered[GROUPS][PER * LANES * VEC];",
            "#pragma unroll",
            "    for (int p = 0; p < PER; ++p)",
            f"        EACH gathered[group][(p * LANES + lane) * VEC + k] = {name}[p][k];",
            "    __syncthreads();",
            f"    for (int j = threadIdx.x; j < n; j += {kernel.threads}) {{",
            "        T total = T(0);",
            "        for (int g = 0; g < GROUPS; ++g) total += gathered[g][j];",
            f"        {to.replace('n + i + k', 'n + j')} = total;",
            "    }",
            "    __syncthreads();",
            "    }",
        ]
    return lines


def _columns(kernel: Rows) -> str:
    """Sums over rows alone: a thread has one pack of columns, blocks in y share the rows."""
    program = kernel.program
    lines = [
        f"    const int i = (blockIdx.x * {kernel.threads} + threadIdx.x) * VEC;",
        "    if (i >= n) return;",
        *(f"    T {s}[VEC] = {{}};" for s in program.sums),
        "#pragma unroll 4",
        "    for (i64 row = blockIdx.y; row < at.rows; row += gridDim.y) {",
    ]
    for i in kernel.of("row"):
        start = f"place<{kernel.outer}>(row, at.osize, at.{i.name}_outer)"
        lines.append(f"        const T {i.name} = to<T>({i.name}_data[{start}]);")
    lines += [
        f"        const i64 {s};"
        for s in starts_of(kernel, [i.name for i in kernel.of("rows")], "row")
    ]
    for i in kernel.of("rows"):
        lines.append(f"        T {i.name}[VEC]; widened({i.name}, {fetched(kernel, i)});")
    lines += [_indented(program.before, 8), _indented(program.each, 8)]
    lines += [_indented(program.gather, 8), "    }"]
    for number, name in enumerate(program.sums):
        to = f"partial[({number} * (i64)gridDim.y + blockIdx.y) * n + i + k]"
        lines.append(f"    EACH {to} = {name}[k];")
    return "\n".join(lines)


def _indented(text: str, width: int) -> str:
    return "\n".join(" " * width + line for line in text.splitlines())
