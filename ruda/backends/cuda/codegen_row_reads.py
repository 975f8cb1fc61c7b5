"""CUDA C of what row kernels read: where rows begin, packs into registers, and rows ahead.

Blocks that walk over rows have the next ones on their way into a ring in shared memory, or the
next one into registers: each thread fetches what it will use itself, so no barrier is needed for
them.
"""

from __future__ import annotations

from ruda.backends.cuda.row_programs import Input, Rows
from ruda.backends.cuda.types import stored


def inner_of(kernel: Rows, name: str, form: str) -> str:
    """Where element ``i`` of the row of an operand lies, counted from the start of the row."""
    if kernel.inner > 1:
        return f"place<{kernel.inner}>(i, at.isize, at.{name}_inner)"
    return {"dense": "i", "same": "0"}.get(form, f"i * at.{name}_inner[0]")


def fetched(kernel: Rows, i: Input) -> str:
    """A pack of an operand at element ``i`` of the row."""
    how = "spread" if i.form == "same" else "fetch"
    return f"{how}<VEC>({i.name}_data + {i.name}_at + {inner_of(kernel, i.name, i.form)})"


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


def declared(kernel: Rows, suffix: str) -> list[str]:
    """Variables for the packs of a thread and for the values of a row."""
    keeps = () if suffix and kernel.ring else kernel.of("rows")
    lines = [f"    Pack<{stored(i.dtype)}, VEC> {i.name}{suffix}_raw[PER];" for i in keeps]
    return lines + [f"    {i.value} {i.name}{suffix} = {i.value}(0);" for i in kernel.of("row")]


def load(kernel: Rows, row: str, suffix: str) -> str:
    """What belongs to a row, into variables that exist: its values, and where packs begin."""
    lines = []
    for i in kernel.of("row"):
        start = f"place<{kernel.outer}>({row}, at.osize, at.{i.name}_outer)"
        value = f"to<{i.value}>({i.name}_data[{start}])"
        lines.append(f"        if ({row} < at.rows) {i.name}{suffix} = {value};")
    if kernel.mode == "held" and not kernel.ring:
        lines += load_packs(kernel, row, suffix, "")
    return "\n".join(lines)


def load_packs(kernel: Rows, row: str, suffix: str, base: str) -> list[str]:
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


def first_of(kernel: Rows) -> list[str]:
    """The first row into registers."""
    begin = "    {\n    const i64 begin = start + group;"
    return [begin, load(kernel, "begin", "_next"), "    }"]


def begun(kernel: Rows) -> list[str]:
    """The first rows of the ring, and the values of the first row."""
    lines = ["    DYNAMIC_SHARED(char, ring);", "    int stage = 0;"]
    lines += [
        "    {",
        "    const i64 begin = start + group;",
        load(kernel, "begin", "_next"),
        f"    for (int s = 0; s < {kernel.ring - 1}; ++s) {{",
        "        const i64 next = begin + s * step;",
    ]
    return [*lines, *_send(kernel, "next", "s"), "    }", "    }"]


def ahead_of(kernel: Rows) -> list[str]:
    """This row is what was loaded ahead, and the next one is asked for."""
    lines = _taken(kernel) if kernel.ring else []
    if not kernel.ring:
        lines += ["#pragma unroll", "        for (int p = 0; p < PER; ++p) {"]
        lines += [f"            {i.name}_raw[p] = {i.name}_next_raw[p];" for i in kernel.of("rows")]
        lines.append("        }")
    lines += [f"        {i.name} = {i.name}_next;" for i in kernel.of("row")]
    return [*lines, "        const i64 later = row + step;", load(kernel, "later", "_next")]


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
        place = f"{i.name}_data + {i.name}_at + {inner_of(kernel, i.name, i.form)}"
        size = i.dtype.itemsize * kernel.vec
        slot = _slot(kernel, i.name, stage)
        lines.append(f"                    copy_async<{size}>({slot}, {place});")
    return [*lines, "                }", "            }", "        }", "        fetches_end();"]


def _slot(kernel: Rows, name: str, stage: str) -> str:
    """Where a thread keeps pack ``p`` of an operand in a stage of the ring."""
    start = kernel.sent
    for i in kernel.of("rows"):
        size = i.dtype.itemsize * kernel.vec
        if i.name == name:
            break
        start += kernel.ring * kernel.per * kernel.threads * size
    return f"ring + {start} + (({stage} * PER + p) * {kernel.threads} + threadIdx.x) * {size}"
