"""Who has a row: how threads, blocks and clusters share it, in which packs, and what is ahead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ruda.backends.cuda.prim.row_operands import Layout, Side, Work
from ruda.backends.cuda.row_programs import Program, Rows

# Rows on their way, in shared memory: at most so many, and so many bytes of a multiprocessor.
MOST_AHEAD, _RING = 4, 96 << 10
# Threads of a block that a long row fills alone, and shared memory that it has beside the ring.
_BLOCK, _BESIDE = 512, 4 << 10
# Threads that have a piece of a row where nothing is folded, neighbours in time as in memory (from
# the end on): for gradients of 8192 x 128256 logits in bfloat16 that took 1.026 ms from the start
# on, a block for a row 1.07, a copy 1.025.
_PIECE = 256
# Packs up to which, and from half of which on, a row that is but mapped is read at once where it
# begins at a whole pack: 512 classes reach 0.93 of a copy, out of a loop 0.87.
_FLAT = 128
# Threads of the blocks that share a row and how many blocks may, in the order of their speed; and
# the packs that each thread keeps.
_SHARES, _KEPT = ((256, 2), (512, 2), (256, 8), (512, 8)), 8
# Those that are as quick as smaller ones only where all of their packs are used.
_FULL = (512, 2)
# Blocks that share a row, from which on it pays to keep a single column, and shared memory that
# each block has beside what it asks for.
_KEEPING, RESERVED = 4, 1 << 10
# Rows of a block that share columns (three with float32 weights, of which two have no room; four
# were slower at 8 packs a thread), where one alone has no room for them, or
# where all blocks of a multiprocessor would take so much that its first cache has too little left:
# layer norm of 20000 is at 0.87 of a copy then, 0.84 with a row for each block.
_ABREAST, _CALM = (2, 3), 132 << 10
# Blocks that share a row, from which on clusters stay for all rows, and packs up to which fewer do,
# where columns are as narrow as rows: layer norm of 20000 is at 0.895 with that (0.866 without),
# one of 32768 would be at 0.87 (0.90).
_STAYING, _FEW = 4, 5
# Bytes of an element of all columns that pay from two blocks on.
_NARROW = 4


class Sharing(NamedTuple):
    """How threads share a row."""

    mode: str
    lanes: int
    per: int
    long: bool = False
    cluster: int = 1
    apart: bool = False
    ring: int = 0
    keeps: bool = False


def vector_of(work: Work, layout: Layout) -> int:
    """Elements of a pack: 16 bytes of the widest, where all packs begin at whole ones."""
    sizes = [s.dtype.itemsize for s in (*work.inputs, *work.outs) if s.role == "rows"]
    size = max(sizes, default=work.compute.itemsize)
    vec = max(1, 16 // size)
    while vec > 1 and not all(_fits(s, layout, vec) for s in (*work.inputs, *work.outs)):
        vec //= 2
    return vec


def _fits(side: Side, layout: Layout, vec: int) -> bool:
    if side.role in ("row", "one", "value"):
        return layout.inner[-1] % vec == 0
    outer, inner = layout.steps[side.name]
    if inner[-1] == 0:
        return layout.inner[-1] % vec == 0
    steps = (*outer, *inner[:-1])
    return inner[-1] == 1 and layout.inner[-1] % vec == 0 and all(s % vec == 0 for s in steps)


# Rows that are shorter than this are not worth what it takes to look at each element's place.
_SKEWED = 512


def skewed_vector(work: Work, layout: Layout, vec: int) -> int:
    """Elements of a pack where rows begin anywhere, all sides alike; 0 where that is no gain."""
    sides = [s for s in (*work.inputs, *work.outs) if s.role in ("rows", "column")]
    rows = [s for s in sides if s.role == "rows"]
    if not rows:
        return 0
    whole = 16 // max(s.dtype.itemsize for s in rows)
    if vec * 2 > whole or work.length < _SKEWED or len(layout.inner) > 1:
        return 0
    if any(s.by or layout.steps[s.name][1] != (1,) for s in rows):
        return 0
    outers = [layout.steps[s.name][0] for s in rows]
    if any((a - b) % whole for own in outers for a, b in zip(own, outers[0], strict=True)):
        return 0
    columns = [layout.steps[s.name] for s in sides if s.role == "column"]
    loose = 2 * (whole - 1) + spare_of(work.inputs, whole)
    return whole if loose <= 32 and all(not any(outer) for outer, _ in columns) else 0


def wants_small(work: Work, skewed: bool) -> bool:
    """Whether columns ask for blocks of few threads, of which several fill a multiprocessor."""
    sizes = [s.dtype.itemsize for s in work.inputs if s.role == "column"]
    half = all(s.dtype.is_half for s in work.inputs if s.role == "rows")
    return bool(sizes) and (skewed or (half and sum(sizes) > _NARROW))


def spare_of(sides: Sequence[Any], vec: int) -> int:
    """Elements behind a pack that are read with it, from columns in pieces of 16 bytes."""
    pieces = [max(1, 16 // s.dtype.itemsize) for s in sides if s.role == "column"]
    return max(((-(-vec // piece) + 1) * piece - vec for piece in pieces), default=0)


def held_sharing(
    work: Work, program: Program, vec: int, small: bool = False, skewed: bool = False
) -> Sharing | None:
    """Threads and packs to keep a row in registers, or None for one that is too long.

    Blocks of a cluster may have to be ``small``, of which several fill a multiprocessor. Where rows
    are ``skewed`` what is no whole pack is loose.
    """
    packs = work.length // vec if skewed else -(-work.length // vec)
    count = max(1, sum(s.role == "rows" for s in work.inputs))
    if program.brief:
        return _brief(work, packs, vec, max(1, _KEPT // (count * size_of(work))))
    # What a thread keeps fits into its registers: 128 for sums, which read one row ahead, else 64.
    most = max(1, (4 if vec > 1 else 16) // (count * size_of(work)))
    widest = 1024 // size_of(work)
    if program.sums:
        widest = 512
        most = (16 // vec if vec > 1 else 4) * 2 // max(count, 2)
        most = max(1, most // size_of(work) ** 2)
    lanes = min(32, _power(packs))
    if packs > lanes * most:
        lanes = max(64, _power(-(-packs // most)))
    per = _power(-(-packs // lanes))
    if lanes > _BLOCK // size_of(work) and not program.sums and vec > 1:
        shared = _shared(work, packs, count, small=small)
        if shared is not None:
            return shared
        # Blocks that walk over rows pay no more than one such block on a multiprocessor.
        lanes = _BLOCK // size_of(work)
        per = _power(-(-packs // lanes))
        return None if per > 2 * most else Sharing("held", lanes, per, long=True)
    if lanes > widest:
        # With sums two blocks have all registers of a multiprocessor: too few to wait for many.
        return _shared(work, packs, count, 2) if program.sums and vec > 1 else None
    return Sharing("held", lanes, per)


def _brief(work: Work, packs: int, vec: int, most: int) -> Sharing | None:
    """How at most a warp keeps a row that is but read."""
    # Loose elements of a skewed row are one thread's each: there may be 14.
    lanes = max(16, _power(-(-packs // most)))
    if vec == 1 or lanes > 32 or work.length < _SKEWED:
        return None
    return Sharing("held", lanes, -(-packs // lanes))


def _shared(
    work: Work, packs: int, count: int, limit: int = 8, small: bool = False
) -> Sharing | None:
    """How up to ``limit`` blocks of a cluster keep a row together."""
    if not has_clusters(work.client):
        return None
    kept = max(1, _KEPT // (count * size_of(work)))
    for shares in sorted(_SHARES) if small else _SHARES:
        threads, most = shares[0] // size_of(work), shares[1]
        blocks = max(2, _power(-(-packs // (threads * kept))))
        lanes = threads * blocks
        per = -(-packs // lanes)
        if blocks <= min(most, limit) and (per == kept or shares != _FULL):
            return Sharing("held", lanes, per, cluster=blocks)
    return None


def has_clusters(client: Any) -> bool:
    """Whether blocks can send into each other's shared memory."""
    found = re.match(r"sm_(\d+)", client.driver.arch)
    return found is not None and int(found[1]) >= 90


def streamed_sharing(work: Work, program: Program, vec: int, skewed: bool = False) -> Sharing:
    """Threads and packs of a row that is read again in each pass, or a piece at a time."""
    packs = -(-work.length // vec)
    count = max(1, sum(s.role == "rows" for s in work.inputs))
    threads, kept = _PIECE // size_of(work), max(1, _KEPT // (count * size_of(work)))
    if vec > 1 and packs > threads * kept and _is_flat(program):
        return Sharing("held", threads, kept, apart=True)
    whole = work.length // vec if skewed else packs
    brief = skewed or _FLAT // 2 <= packs <= _FLAT
    if vec > 1 and brief and count == size_of(work) == 1 and _is_flat(program):
        # Asked for at once, by as few warps as that takes: gradients of 513, 1001 and 3001 classes
        # reach 0.91, 0.93 and 0.90 of a copy, out of a loop they were at 0.51, 0.67 and 0.75.
        lanes = min(_PIECE, max(16, _power(-(-whole // 4))))
        return Sharing("held", lanes, -(-whole // lanes))
    per = max(1, 4 // (count * size_of(work)))
    lanes = min(32, _power(packs))
    if packs > lanes * per:
        wide = len(program.passes) > 1 and not program.sums
        # Many rows that are but read are as quick as memory with small blocks: the losses of 8192
        # rows of 128256 classes in bfloat16 take 0.48 ms with 256 threads, 0.52 with 512.
        many = not work.outs and work.rows >= 4 * work.client.driver.multiprocessors
        most = (1024 if wide else 256 if many else 512) // size_of(work)
        lanes = min(most, max(64, _power(-(-packs // (2 * per)))))
    return Sharing("stream", lanes, per)


def _is_flat(program: Program) -> bool:
    """Whether nothing is known of a row but what each element says."""
    (first, *more), sums = program.passes, program.sums or program.row_outs
    return not (more or sums or first.folds or first.then)


def size_of(work: Work) -> int:
    """Registers of a value."""
    return work.compute.itemsize // 4


def _power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def keeps(kernel: Rows, room: int) -> bool:
    """Whether the blocks of a cluster have room for columns beside them, for all their rows.

    ``room`` is the shared memory of a block that has a multiprocessor alone.
    """
    columns = kernel.of("column")
    narrow = len(columns) > 1 and sum(i.dtype.itemsize for i in columns) <= _NARROW
    least = 1 if kernel.skewed else 2 if narrow or kernel.abreast > 1 else _KEEPING
    if kernel.cluster < least or not columns:
        return False
    if kernel.program.sums or kernel.inner > 1 or kernel.mode != "held":
        return False
    if kernel.skewed and kernel.outer > 1:
        return False
    # Blocks that stay pay where several columns of a half type would be moved for each row.
    if kernel.cluster == 1 and (kernel.vec < 8 or kernel.lanes < (64 if narrow else 512)):
        return False
    *early, last = kernel.program.passes
    known = {name for each in early for name in each.reads}
    for i in columns:
        whole = i.dtype.itemsize * kernel.vec % 16 == 0
        if not (whole and i.form == "dense" and i.still) or i.name not in last.reads:
            return False
        if i.name in known or f"{i.name}[k]" in kernel.program.each:
            return False
    made = replace(kernel, keeps=True)
    blocks = made.resident // (made.threads * made.abreast)
    most = (room + RESERVED) // max(1, blocks) - RESERVED
    return blocks > 0 and made.shared <= most


def with_columns(kernel: Rows, room: int) -> Rows:
    """The class that keeps columns if there is room, of which rows abreast need a part."""
    folds = any(each.folds for each in kernel.program.passes)
    alone = replace(kernel, keeps=keeps(kernel, room))
    several = (replace(kernel, abreast=count, keeps=True) for count in _abreast(kernel))
    found = next((made for made in several if keeps(made, room)), None)
    if folds or found is None or kernel.cluster == 1:
        return alone
    calm = alone.shared * (alone.resident // alone.threads) <= _CALM
    return alone if alone.keeps and calm else found


def _abreast(kernel: Rows) -> tuple[int, ...]:
    """How many rows may be abreast, in the order of their worth."""
    # A thread with as many packs, in rows that begin anywhere, wants more than 64 registers.
    full = kernel.skewed and kernel.per == _KEPT and kernel.threads < _BLOCK
    return _ABREAST[full:]


def stays(kernel: Rows) -> bool:
    """Whether clusters have all rows by turns: what they keep of columns was long on its way."""
    wide = any(i.dtype.itemsize * kernel.vec > 16 for i in kernel.kept)
    pays = wide or kernel.cluster >= _STAYING or kernel.per <= _FEW
    return kernel.abreast > 1 and (pays or kernel.skewed)


def ring_of(kernel: Rows, long: bool, room: int) -> int:
    """How many rows a block that walks over rows has in its ring; 0 where packs do not suit.

    A ``long`` row has all of the shared memory, ``room``, and so has one that blocks share; others
    have as much as most devices have.
    """
    rows = kernel.of("rows")
    sizes = [i.dtype.itemsize * kernel.vec for i in rows]
    walks = kernel.mode == "held" and (long or kernel.program.sums)
    if not walks or any(i.form != "dense" for i in rows):
        return 0
    if any(size % 16 and size not in (4, 8) for size in sizes) or any(i.by for i in rows):
        return 0
    long = long or kernel.cluster > 1
    row = replace(kernel, ring=1).shared * max(1, 512 // kernel.threads)
    count = min(MOST_AHEAD, (room - _BESIDE if long else _RING) // row)
    return count if count > 2 or (long and count == 2) else 0
