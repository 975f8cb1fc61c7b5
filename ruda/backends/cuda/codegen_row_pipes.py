"""CUDA C of row kernels that are a row further in their first pass than in their second.

What the blocks of a cluster have folded of a row travels while they are at the next one: between
the two a block waits for nobody. Rows are in a ring in shared memory, out of which both passes read
them, so that registers are left for sums over rows.
"""

from __future__ import annotations

from ruda.backends.cuda.codegen_row_passes import indented, pack_lines, partial_rows
from ruda.backends.cuda.codegen_row_reads import (
    inside,
    kept,
    pack_at,
    pack_of,
    send_row,
    skew_of,
    slot_of,
    starts_of,
)
from ruda.backends.cuda.row_programs import Pass, Rows


def piped(kernel: Rows) -> str:
    """The loop over rows, and sums over rows behind it; once for all rows that begin alike."""
    opened = ["    cluster_wait();"] * (kernel.cluster > 1)
    if not kernel.skewed:
        opened.append("    const i64 limit = at.rows;")
        return "\n".join([*opened, *_walked(kernel), *partial_rows(kernel)])
    names = "start = share.start, step = share.step, limit = share.limit"
    return "\n".join(
        [
            *opened,
            "    const int pieces = pieces_of<VEC>(gridDim.x);",
            "    for (int piece = 0; piece < pieces; ++piece) {",
            "    const Share share = share_of<VEC>(at.rows, gridDim.x, blockIdx.x, piece);",
            f"    const i64 {names};",
            *_walked(kernel),
            *partial_rows(kernel, "blockIdx.x * pieces + piece", "gridDim.x * pieces"),
            "    }",
        ]
    )


def pieces_of(kernel: Rows, blocks: int) -> int:
    """Partial rows of each block: one for each kind of rows that it may have."""
    if not (kernel.piped and kernel.skewed) or blocks % kernel.vec == 0:
        return 1
    return (kernel.vec - 1) // blocks + 2


def _walked(kernel: Rows) -> list[str]:
    """The loop over rows of one kind, with the first rows in front of it."""
    first, _ = kernel.program.passes
    names = [name for name, *_ in first.folds]
    kinds = {i.name: i.value for i in kernel.of("row")}
    far = kernel.ring - 1
    lines = [f"    T {s}[PER][VEC] = {{}};" for s in kernel.program.sums]
    lines += [f"    {k} {v} = {k}(0), {v}_late = {v}, {v}_next = {v};" for v, k in kinds.items()]
    lines += [f"    T {name}_late = T(0);" for name in names] * (kernel.cluster == 1)
    lines += [*_skewed(kernel), *(kept(kernel) if kernel.keeps else []), *_begun(kernel)]
    return [
        *lines,
        "    for (i64 row = start; row - step < limit; row += step) {",
        "        const bool active = row < limit, late = row > start;",
        f"        const int last = stage == 0 ? {far} : stage - 1;",
        f"        const i64 later = row + step, before = row - step, far = row + {far} * step;",
        *[f"        {v}_late = {v}; {v} = {v}_next;" for v in kinds],
        *_values(kernel, "later"),
        *[f"        {name}_late = {name}; {name} = {name}_next;" for name in _loose(kernel)],
        *_alone(kernel, "later"),
        *[f"        T {name} = {start};" for name, _, start in first.folds],
        "        if (active) {",
        f"        fetches_arrive<{kernel.ring - 2}>();",
        indented(kernel.program.before, 8),
        *_swept(kernel, first, "stage", gathers=True),
        "        }",
        *_exchanged(kernel, names),
        *_second(kernel, names, list(kinds)),
        *send_row(kernel, "far", "last", "limit"),
        f"        stage = stage == {far} ? 0 : stage + 1;",
        "        turn += active;",
        "    }",
    ]


def _begun(kernel: Rows) -> list[str]:
    """The first rows of the ring, and the values of the first."""
    return [
        "    DYNAMIC_SHARED(char, ring);",
        "    int stage = 0;",
        *_values(kernel, "start"),
        *_alone(kernel, "start"),
        f"    for (int s = 0; s < {kernel.ring - 1}; ++s) {{",
        "        const i64 next = start + s * step;",
        *send_row(kernel, "next", "s", "limit"),
        "    }",
    ]


def _values(kernel: Rows, row: str) -> list[str]:
    """What belongs to a row that is still to come."""
    lines = []
    for i in kernel.of("row"):
        place = f"place<{kernel.outer}>({row}, at.osize, at.{i.name}_outer)"
        found = f"to<{i.value}>({i.name}_data[{place}])"
        lines.append(f"        if ({row} < limit) {i.name}_next = {found};")
    return lines


def _loose(kernel: Rows) -> list[str]:
    """The variables of a thread's loose elements."""
    return [f"{i.name}_loose" for i in kernel.of("rows")] if kernel.skewed else []


def _skewed(kernel: Rows) -> list[str]:
    """Where packs begin in the rows of this block, in all alike, and its loose elements.

    A block has every so many rows that they do: its sums stay those of the same places.
    """
    if not kernel.skewed:
        return []
    first = kernel.of("rows")[0]
    lines = [f"    const i64 {s};" for s in starts_of(kernel, [first.name], "start")]
    lines.append(f"    {skew_of(kernel)}")
    for i in kernel.of("rows"):
        name, kind = f"{i.name}_loose", pack_of(kernel, i, True)
        lines.append(f"    {kind} {name} = {{}}, {name}_late = {{}}, {name}_next = {{}};")
    return [*lines, *[f"    T {name}_loose = T(0);" for name in kernel.program.sums]]


def _alone(kernel: Rows, row: str) -> list[str]:
    """The loose elements of a row that is still to come."""
    if not kernel.skewed:
        return []
    names = [i.name for i in kernel.of("rows")]
    starts = "".join(f" const i64 {s};" for s in starts_of(kernel, names, row))
    found = [f"{n}_loose_next = fetch<1>({n}_data + {n}_at + alone);" for n in names]
    return [f"        if (alone >= 0 && {row} < limit) {{{starts} {' '.join(found)} }}"]


def _swept(kernel: Rows, each: Pass, stage: str, gathers: bool) -> list[str]:
    """All packs of a thread, out of a stage of the ring."""
    lines = [
        "#pragma unroll",
        "        for (int p = 0; p < PER; ++p) {",
        f"            {pack_at(kernel)}",
        f"            if ({inside(kernel)}) {{",
    ]
    for i in kernel.of("rows"):
        kind, slot = pack_of(kernel, i), slot_of(kernel, i.name, stage)
        lines.append(f"                {kind} {i.name}_raw[PER];")
        lines.append(f"                {i.name}_raw[p] = *reinterpret_cast<const {kind}*>({slot});")
    lines += [*pack_lines(kernel, each, gathers), "            }", "        }"]
    if kernel.skewed:
        lines += ["        if (alone >= 0) {", "            constexpr int VEC = 1;"]
        lines.append("            const int i = alone;")
        lines += [*pack_lines(kernel, each, gathers, loose=True), "        }"]
    return lines


def _exchanged(kernel: Rows, names: list[str]) -> list[str]:
    """This row's parts go out when those of the row before have come in."""
    count, warps = len(names), kernel.threads // 32
    several = kernel.cluster > 1
    scratch = "scratch.scratch" if several else "scratch"
    came = ["        if (late) come_in(whole, scratch, turn - 1);"]
    held = [f"        whole[{k}] = {name}_late;" for k, name in enumerate(names)]
    sent = ["        hand_out(parts, scratch, turn);"]
    stay = [f"        {name}_late = parts[{k}];" for k, name in enumerate(names)]
    return [
        f"        T parts[{count}] = {{{', '.join(names)}}}, whole[{count}];",
        f"        if (active) hand_in<HALF>(parts, {scratch}, turn);",
        *(came if several else held),
        "        if (active) {",
        "        __syncthreads();",
        f"        take_out<{warps}, HALF>(parts, {scratch}, turn);",
        *(sent if several else stay),
        "        }",
    ]


def _second(kernel: Rows, names: list[str], values: list[str]) -> list[str]:
    """The second pass over the row before."""
    first, second = kernel.program.passes
    outs = [o.name for o in kernel.outs]
    return [
        "        if (late) {",
        *[f"        const i64 {s};" for s in starts_of(kernel, outs, "before")],
        *[f"        const auto {v} = {v}_late;" for v in values],
        *[f"        const auto {name} = {name}_late;" for name in _loose(kernel)],
        *[f"        T {name} = whole[{k}];" for k, name in enumerate(names)],
        indented(kernel.program.before, 8),
        indented(first.then, 8),
        *_swept(kernel, second, "last", gathers=False),
        "        }",
    ]
