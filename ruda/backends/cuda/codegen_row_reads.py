"""CUDA C of what row kernels read: where rows begin, packs into registers, and rows ahead.

Blocks that walk over rows have the next ones on their way into a ring in shared memory, or the
next one into registers: each thread fetches what it will use itself, so no barrier is needed for
them.
"""

from __future__ import annotations

from ruda.backends.cuda.row_programs import Input, Pass, Rows
from ruda.backends.cuda.types import stored
from ruda.core.dtypes import bfloat16, float32


def inner_of(kernel: Rows, name: str, form: str, loose: bool = False) -> str:
    """Where element ``i`` of the row of an operand lies, counted from the start of the row."""
    if form == "dense" and kernel.inner == 1 and kernel.mode == "held" and not loose:
        # All packs of a thread are at fixed distances from its first one.
        return "lane_at + p * (LANES * VEC)"
    if kernel.inner > 1:
        return f"place<{kernel.inner}>(i, at.isize, at.{name}_inner)"
    return {"dense": "i", "same": "0"}.get(form, f"i * at.{name}_inner[0]")


def in_pairs(kernel: Rows, i: Input, loose: bool = False) -> bool:
    """Whether the packs of an operand are words of two elements."""
    moved = kernel.skewed and i.role == "column" and i not in kernel.kept
    spread = i.form == "same" or moved
    single = loose or kernel.vec == 1 or i.raw
    return i.dtype is bfloat16 and kernel.compute is float32 and not (spread or single)


def pack_of(kernel: Rows, i: Input, loose: bool = False) -> str:
    """The C type of a pack of an operand."""
    pairs = in_pairs(kernel, i, loose)
    return "Pairs<VEC>" if pairs else f"Pack<{stored(i.dtype)}, {'1' if loose else 'VEC'}>"


def fetched(kernel: Rows, i: Input, loose: bool = False) -> str:
    """A pack of an operand at element ``i`` of the row, which is the thread's pack ``p``."""
    start = f"{i.name}_data" + f" + {i.name}_at" * (not i.still)
    if i in kernel.kept and not loose:
        return _kept_pack(kernel, i)
    if i in kernel.kept and not kernel.piped:
        return f"{i.name}_lone"
    if kernel.skewed and i.role == "column" and i.form == "dense" and not loose:
        return f"fetch_across<VEC>({start}, i)"
    how = "spread" if i.form == "same" else "fetch_pairs" if in_pairs(kernel, i, loose) else "fetch"
    return f"{how}<VEC>({start} + {inner_of(kernel, i.name, i.form, loose)})"


def pack_at(kernel: Rows, base: str = "") -> str:
    """The declaration of ``i``, the first element of a thread's pack ``p``."""
    head = " + skew.head" * kernel.skewed
    return f"const int i = {base}(p * LANES + lane) * VEC{head};"


def end_of(kernel: Rows) -> str:
    """Where the packs of a row end."""
    return "skew.end" if kernel.skewed else "n"


def is_open(kernel: Rows, each: Pass) -> bool:
    """Whether a pass is done to all packs of a thread, without branches.

    That takes registers, which rows of one block would rather have for more blocks, and pays where
    columns come from memory.
    """
    plain = kernel.cluster > 1 and not (kernel.skewed or kernel.program.sums or kernel.keeps)
    # Of wider columns all packs at a time have no room in registers.
    narrow = all(i.dtype.itemsize * kernel.vec <= 16 for i in kernel.of("column"))
    return plain and narrow and each.grows is not None


def has_open(kernel: Rows) -> bool:
    """Whether any pass is done to all packs."""
    return any(is_open(kernel, each) for each in kernel.program.passes)


def inside(kernel: Rows, free: bool = False) -> str:
    """Whether a thread's pack ``p``, at ``i``, is in the row.

    Blocks of a cluster have as few packs as a row takes: but for the last one all are in it. That
    is asked all the same unless ``free``, since registers are too few for work on all of them.
    """
    spare = kernel.skewed and kernel.spare > 0 and not kernel.keeps
    plain = kernel.mode == "held" and not spare and not has_open(kernel)
    end = end_of(kernel)
    if kernel.cluster == 1 or not plain:
        return f"i < {end}"
    return f"p < PER - 1 ? {'true' if free else f'p * (LANES * VEC) < {end}'} : i < {end}"


def skew_of(kernel: Rows) -> str:
    """Where packs begin and end, in all sides alike, and the thread's loose element."""
    first = next(i.name for i in kernel.of("rows"))
    found = f"skew_of<VEC, {0 if kernel.keeps else kernel.spare}>({first}_at, n)"
    lines = [
        f"const Skew skew = {found};",
        "const int alone = loose_of(skew, lane);",
        "const int lane_at = lane * VEC + skew.head;",
    ]
    return " ".join(lines)


def kept(kernel: Rows) -> list[str]:
    """The columns' packs of a thread on their way into shared memory, or a place for them."""
    lines = ["    DYNAMIC_SHARED(char, columns);"]
    if not kernel.moves:
        return [*lines, "    {", *_kept_all(kernel), "    fetches_end();", "    }"]
    # The loose element of a thread is the same in all its rows.
    return lines + [f"    {pack_of(kernel, i, True)} {i.name}_lone = {{}};" for i in kernel.kept]


def kept_alike(kernel: Rows) -> list[str]:
    """The columns' packs moved to where the rows of a kind begin, while its first is read."""
    if not kernel.moves:
        return []
    start, fresh = ("kind", "fresh") if kernel.by_kind else ("start", "first == start")
    first = next(i.name for i in kernel.of("rows"))
    (start,) = starts_of(kernel, [first], start)
    lones = (f"{i.name}_lone = fetch<1>({i.name}_data + alone);" for i in kernel.kept)
    # Nobody reads those of the kind before any more.
    lines = ["    if (nth == 0 && unit > begin) __syncthreads();"] * (kernel.groups > 1)
    lines += [
        f"    if ({fresh}) {{",
        f"    const i64 {start};",
        f"    {skew_of(kernel)}",
        f"    if (alone >= 0) {{ {' '.join(lones)} }}",
        *_kept_all(kernel),
        "    }",
    ]
    return [f"    {line}" for line in lines]


def _kept_all(kernel: Rows) -> list[str]:
    mine = "p % GROUPS == group && " * (kernel.groups > 1)
    # Beside a row in registers there is no room for all packs at a time.
    few = " 1" * kernel.moves
    return [
        f"#pragma unroll{few}",
        "    for (int p = 0; p < PER; ++p) {",
        f"        {pack_at(kernel)}",
        f"        if ({mine}i < {end_of(kernel)}) {{",
        *(line for i in kernel.kept for line in _kept_packs(kernel, i)),
        "        }",
        "    }",
    ]


def _kept_packs(kernel: Rows, i: Input) -> list[str]:
    """The copy of one column's pack ``p``, in pieces of 16 bytes that lie apart."""
    pad, at = " " * 12, _kept_at(kernel, i.name)
    size = min(16, i.dtype.itemsize * kernel.vec)
    step, part = kernel.slots * size, size // i.dtype.itemsize
    if kernel.moves:
        return [f"{pad}keep_across<{kernel.slots}, VEC>({at}, {i.name}_data, i, n);"]
    if kernel.skewed:
        to = f"reinterpret_cast<{stored(i.dtype)}*>({at} + k / {part} * {step})[k % {part}]"
        return [f"{pad}EACH {to} = {i.name}_data[i + k];"]
    return [
        f"{pad}copy_async<{size}>({at} + {k * step}, {i.name}_data + i + {k * part});"
        for k in range(kernel.vec // part)
    ]


def _kept_pack(kernel: Rows, i: Input) -> str:
    """Pack ``p`` of a column out of shared memory."""
    kind, at = pack_of(kernel, i), _kept_at(kernel, i.name)
    if i.dtype.itemsize * kernel.vec > 16:
        return f"fetch_apart<{kind}, {kernel.slots}>({at})"
    return f"*reinterpret_cast<const {kind}*>({at})"


def _kept_at(kernel: Rows, name: str) -> str:
    """Where a thread keeps pack ``p`` of a column, or its first 16 bytes of that."""
    start = kernel.sent
    for i in kernel.kept:
        room = kernel.room_of(i)
        if i.name == name:
            break
        start += kernel.per * room
    slot = "threadIdx.x" if kernel.lanes > 32 else "lane"
    return f"columns + {start} + p * {room} + {slot} * {min(16, i.dtype.itemsize * kernel.vec)}"


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
    empty = " = {}" * has_open(kernel)
    lines = [f"    {pack_of(kernel, i)} {i.name}{suffix}_raw[PER]{empty};" for i in keeps]
    if kernel.skewed:
        lines += [f"    {pack_of(kernel, i, True)} {i.name}_loose;" for i in keeps]
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
    elif kernel.skewed:
        lines += loose_ones(kernel, row)
    return "\n".join(lines)


def load_packs(kernel: Rows, row: str, suffix: str, base: str) -> list[str]:
    """The packs of a thread, all asked for before any is used."""
    names = [i.name for i in kernel.of("rows")]
    found = [] if base else starts_of(kernel, names, row, suffix)
    starts = "".join(f" const i64 {s};" for s in found)
    if kernel.skewed and not base:
        starts += f" {skew_of(kernel)}"
    lines = [
        f"        if ({row} < at.rows) {{{starts}",
        "#pragma unroll",
        "            for (int p = 0; p < PER; ++p) {",
        f"                {pack_at(kernel, base)}",
        f"                if ({inside(kernel, free=True)}) {{",
    ]
    for i in kernel.of("rows"):
        lines.append(f"                    {i.name}{suffix}_raw[p] = {fetched(kernel, i)};")
    lines += ["                }", "            }"]
    if kernel.skewed and not base:
        lines += _lone(kernel)
    return [*lines, "        }"]


def loose_ones(kernel: Rows, row: str) -> list[str]:
    """The loose element of a thread, where packs are read in each pass."""
    names = [i.name for i in kernel.of("rows")]
    starts = "".join(f" const i64 {s};" for s in starts_of(kernel, names, row))
    lines = [f"        if ({row} < at.rows) {{{starts} {skew_of(kernel)}"]
    return [*lines, *_lone(kernel), "        }"]


def _lone(kernel: Rows) -> list[str]:
    """The loose element of a thread, of each operand, into variables that exist."""
    places = ((i.name, f"fetch<1>({i.name}_data + {i.name}_at + alone)") for i in kernel.of("rows"))
    return [f"            if (alone >= 0) {name}_loose = {found};" for name, found in places]


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
    return [*lines, *send_row(kernel, "next", "s"), "    }", "    }"]


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
        kind = pack_of(kernel, i)
        slot = slot_of(kernel, i.name, "stage")
        lines.append(f"            {i.name}_raw[p] = *reinterpret_cast<const {kind}*>({slot});")
    lines += ["        }", f"        const int free = stage == 0 ? {far} : stage - 1;"]
    lines.append(f"        const i64 far = row + {far} * step;")
    lines += send_row(kernel, "far", "free")
    return [*lines, f"        stage = stage == {far} ? 0 : stage + 1;"]


def send_row(kernel: Rows, row: str, stage: str, limit: str = "at.rows") -> list[str]:
    """The packs of a row on their way into a stage of the ring; an empty group past the last."""
    rows = kernel.of("rows")
    starts = "".join(f" const i64 {s};" for s in starts_of(kernel, [i.name for i in rows], row))
    lines = [
        f"        if ({row} < {limit}) {{{starts}",
        "#pragma unroll",
        "            for (int p = 0; p < PER; ++p) {",
        f"                {pack_at(kernel)}",
        f"                if (i < {end_of(kernel)}) {{",
    ]
    for i in rows:
        place = f"{i.name}_data + {i.name}_at + {inner_of(kernel, i.name, i.form)}"
        size = i.dtype.itemsize * kernel.vec
        slot = slot_of(kernel, i.name, stage)
        lines.append(f"                    copy_async<{size}>({slot}, {place});")
    return [*lines, "                }", "            }", "        }", "        fetches_end();"]


def slot_of(kernel: Rows, name: str, stage: str) -> str:
    """Where a thread keeps pack ``p`` of an operand in a stage of the ring."""
    start = kernel.sent + kernel.beside
    for i in kernel.of("rows"):
        size = i.dtype.itemsize * kernel.vec
        if i.name == name:
            break
        start += kernel.ring * kernel.per * kernel.threads * size
    return f"ring + {start} + (({stage} * PER + p) * {kernel.threads} + threadIdx.x) * {size}"
