"""CUDA C of the passes over a row, of the folds after them, and of sums over rows.

Programs that also add up over rows, for gradients of parameters, keep those sums in registers
while blocks walk over many rows, and write one partial row a block ("held"), or have a pass of
their own ("columns").
"""

from __future__ import annotations

from ruda.backends.cuda.codegen_row_reads import (
    end_of,
    fetched,
    has_open,
    in_pairs,
    inner_of,
    inside,
    is_open,
    load_packs,
    pack_at,
    pack_of,
    starts_of,
)
from ruda.backends.cuda.row_programs import Input, Pass, Rows
from ruda.backends.cuda.types import stored


def sweep(kernel: Rows, each: Pass, gathers: bool) -> list[str]:
    """One pass over the row, and the folds after it."""
    held = kernel.mode == "held"
    lines = [f"        T {name} = {start};" for name, _, start in each.folds]
    pad = "        "
    if not held:
        step = f"active && base < {end_of(kernel)}; base += PER * LANES * VEC"
        lines.append(f"        for (int base = 0; {step}) {{")
        lines += load_packs(kernel, "row", "", "base + ")
    if each is not kernel.program.passes[0]:
        lines += _forgotten(kernel)
    if is_open(kernel, each) and each.writes:
        # Where no pack lies behind the row, all loads of columns may come first.
        lines += [f"{pad}if (n == PER * LANES * VEC) {{", *_sweep(kernel, each, gathers, "true")]
        lines += [f"{pad}}} else {{", *_sweep(kernel, each, gathers), f"{pad}}}"]
    else:
        lines += _sweep(kernel, each, gathers)
    if not held:
        lines.append("        }")
    if kernel.skewed:
        lines += [
            f"{pad}if (active && alone >= 0) {{",
            f"{pad}    constexpr int VEC = 1;",
            f"{pad}    const int i = alone;",
            *pack_lines(kernel, each, gathers, loose=True),
            f"{pad}}}",
        ]
    return [*lines, *_folds(each), indented(each.then, 8)]


def _forgotten(kernel: Rows) -> list[str]:
    """What earlier passes have made of words is not kept for this one."""
    names = [i.name for i in kernel.of("rows") if in_pairs(kernel, i)]
    if kernel.cluster == 1 or kernel.skewed or has_open(kernel) or not names:
        return []
    calls = " ".join(f"forget({name}_raw[p]);" for name in names)
    return ["#pragma unroll", f"        for (int p = 0; p < PER; ++p) {{ {calls} }}"]


def _sweep(kernel: Rows, each: Pass, gathers: bool, here: str = "") -> list[str]:
    """All packs of a thread; which are in the row is known or found."""
    pad, base = " " * 8, "" if kernel.mode == "held" else "base + "
    here = here or f"active && ({inside(kernel, _is_free(kernel, each))})"
    return [
        "#pragma unroll",
        f"{pad}for (int p = 0; p < PER; ++p) {{",
        f"{pad}    {pack_at(kernel, base)}",
        f"{pad}    const bool here = {here};",
        *(_undone(kernel, each) if is_open(kernel, each) else _guarded(kernel, each, gathers)),
        f"{pad}}}",
    ]


def _is_free(kernel: Rows, each: Pass) -> bool:
    """Whether a pass has columns on their way from memory while others are worked with."""
    read = any(i.name in each.reads for i in kernel.of("column"))
    return bool(each.writes) and read and not kernel.keeps


def _guarded(kernel: Rows, each: Pass, gathers: bool) -> list[str]:
    pad = " " * 12
    return [f"{pad}if (here) {{", *pack_lines(kernel, each, gathers), f"{pad}}}"]


def _undone(kernel: Rows, each: Pass) -> list[str]:
    """A pack that is done in any case; behind the row it leaves everything as it was."""
    pad, names = " " * 16, [*(name for name, *_ in each.folds), *(each.grows or ())]
    before = [f"{pad}const T {name}_before = {name};" for name in names]
    after = [f"{pad}{name} = here ? {name} : {name}_before;" for name in names]
    return [*before, *pack_lines(kernel, each, gathers=False), *after]


def pack_lines(kernel: Rows, each: Pass, gathers: bool, loose: bool = False) -> list[str]:
    """What one pass does with the packs at ``i``, or with a loose element as a pack of one."""
    pad = " " * 16
    lines, raw = [], "{}_loose" if loose else "{}_raw[p]"
    used = {*each.reads, *(("+",) if gathers else ())}
    for i in kernel.inputs:
        wanted = i.name in used or _named(kernel.program.each, i.name)
        if i.raw and wanted and i.role in ("rows", "column"):
            read = raw.format(i.name)
            if i.role == "column":
                lines.append(_column(kernel, each, i, loose))
                read = f"{i.name}_pack"
            lines.append(f"{pad}const Pack<{stored(i.dtype)}, VEC> {i.name} = {read};")
        elif i.role == "rows" and (wanted or gathers):
            lines.append(f"{pad}T {i.name}[VEC]; widened({i.name}, {raw.format(i.name)});")
        elif i.role == "column" and wanted:
            lines.append(_column(kernel, each, i, loose))
            lines.append(f"{pad}T {i.name}[VEC]; widened({i.name}, {i.name}_pack);")
    lines.append(indented(kernel.program.each, 16))
    known = kernel.program.each + each.pack
    lines += [f"{pad}T {n}[VEC];" for n in each.writes if f" {n}[VEC];" not in known]
    lines.append(indented(each.pack, 16))
    if gathers:
        gather = kernel.program.gather
        for name in kernel.program.sums:
            place = f"{name}_loose" if loose else f"{name}[p][k]"
            gather = gather.replace(f"{name}[k]", place)
        lines.append(indented(gather, 16))
    for name in each.writes:
        form = "dense" if kernel.vec > 1 else "each"
        check = "if (here) " * (is_open(kernel, each) and not loose)
        place = f"{name}_data + {name}_at + {inner_of(kernel, name, form, loose)}"
        lines.append(f"{pad}{check}put({place}, {name});")
    return lines


def _column(kernel: Rows, each: Pass, i: Input, loose: bool) -> str:
    """The declaration of a pack of a column."""
    pad, kind = " " * 16, pack_of(kernel, i, loose)
    found = fetched(kernel, i, loose)
    if is_open(kernel, each) and not loose:
        return f"{pad}{kind} {i.name}_pack = {{}}; if (here) {i.name}_pack = {found};"
    return f"{pad}const {kind} {i.name}_pack = {found};"


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


def partial_rows(kernel: Rows, part: str = "blockIdx.x", parts: str = "gridDim.x") -> list[str]:
    """The sums of a block as one row of ``partial [sums, parts, n]``, groups in their order."""
    lines = []
    for number, name in enumerate(kernel.program.sums):
        to = f"partial[({number} * (i64)({parts}) + {part}) * n + i + k]"
        if kernel.groups == 1:
            lines += [
                "#pragma unroll",
                "    for (int p = 0; p < PER; ++p) {",
                f"        {pack_at(kernel)}",
                f"        if (i < {end_of(kernel)}) {{ EACH {to} = {name}[p][k]; }}",
                "    }",
            ]
            if kernel.skewed:
                alone = to.replace("i + k", "alone")
                lines.append(f"    if (alone >= 0) {alone} = {name}_loose;")
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


def columns(kernel: Rows) -> str:
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
    lines += [indented(program.before, 8), indented(program.each, 8)]
    lines += [indented(program.gather, 8), "    }"]
    for number, name in enumerate(program.sums):
        to = f"partial[({number} * (i64)gridDim.y + blockIdx.y) * n + i + k]"
        lines.append(f"    EACH {to} = {name}[k];")
    return "\n".join(lines)


def indented(text: str, width: int) -> str:
    """The lines of ``text``, each behind ``width`` spaces."""
    return "\n".join(" " * width + line for line in text.splitlines())
