"""How blocks share rows of programs with sums that are a row further in their first pass."""

from __future__ import annotations

import re
from typing import Any

from ruda.backends.cuda.prim.row_operands import Layout, Work
from ruda.backends.cuda.prim.row_sharing import (
    MOST_AHEAD,
    RESERVED,
    Sharing,
    has_clusters,
    size_of,
)
from ruda.backends.cuda.row_programs import Program

# Threads of a block and blocks of a cluster, in the order of their worth. Of layer norms of halves
# 512 x 1 reach 0.77 of a copy at 16384 (two blocks 0.68), 256 x 8 0.67 at 65536 (512 x 4: 0.62).
PIPES = ((512, 1), (512, 2), (256, 8), (512, 8), (512, 16))
# Those of rows that begin anywhere, short ones too.
SKEWED = ((64, 1), (128, 1), (256, 1), (512, 1), (512, 2), (512, 4), (512, 8), (512, 16))
# Registers of a thread for sums: of one block that has one sum (RMS norm of 16384, which takes 32:
# 0.79 of a copy, with two blocks 0.88), and of others; rows in the ring, at least; bytes of what
# blocks send.
_ALONE, _SUMMED, _RING, _MAIL = 24, 64, 3, 1 << 10
# Packs of halves up to which one block keeps a row in registers as well, and is about as quick;
# float32 was timed from four times as many on.
_SHORT = 1000
# Blocks of a cluster that every device has that has clusters, and those that have 16.
_PORTABLE, _WIDE = 8, ("sm_90a", "sm_100a", "sm_103a")
# Threads of a multiprocessor, so that each may have 128 registers.
_RESIDENT = 512


def piped_sharing(
    work: Work, program: Program, vec: int, layout: Layout, skewed: bool = False
) -> Sharing | None:
    """How blocks keep rows in a ring and their sums in registers; None where they cannot.

    Where rows are ``skewed`` columns lie beside the ring, moved to where packs begin.
    """
    if not _pipes(work, program, vec, layout) or not has_clusters(work.client):
        return None
    packs = (work.length if skewed else work.length + vec - 1) // vec
    if not skewed and packs <= _SHORT * (1 if _has_halves(work) else 4):
        return None
    beside = any(side.role == "column" for side in work.inputs)
    # Columns out of memory take what the ring gains: 0.43 of a copy for 0.60 at 131072 in float32.
    for keeps in (True, False) if beside and not skewed else (True,):
        for threads, blocks in _pipes_of(work.client, skewed):
            per = -(-packs // (threads * blocks))
            summed = per * vec * len(program.sums) * size_of(work)
            alone = blocks == 1 and len(program.sums) == 1 and not skewed
            if summed > (_ALONE if alone else _SUMMED):
                continue
            ring = _ring(work, threads, per * vec, keeps)
            if ring >= _RING:
                return Sharing("held", threads * blocks, per, False, blocks, False, ring, keeps)
    return None


def _has_halves(work: Work) -> bool:
    return any(side.dtype.is_half for side in work.inputs if side.role == "rows")


def _pipes_of(client: Any, skewed: bool) -> list[tuple[int, int]]:
    """The shares that the device has clusters for."""
    most = 16 if client.driver.arch in _WIDE else _PORTABLE
    return [share for share in (SKEWED if skewed else PIPES) if share[1] <= most]


def _ring(work: Work, threads: int, own: int, keeps: bool) -> int:
    """Rows for which there is room where a thread has ``own`` elements of each."""
    rows, columns = (
        sum(side.dtype.itemsize for side in work.inputs if side.role == role)
        for role in ("rows", "column")
    )
    room = (work.client.driver.shared_memory + RESERVED) * threads // _RESIDENT - RESERVED - _MAIL
    return int(min(MOST_AHEAD, (room // (own * threads) - columns * keeps) // rows))


def skews_sums(work: Work, program: Program, layout: Layout, vec: int) -> bool:
    """Whether rows that begin anywhere may be read by packs of ``vec`` where sums are kept."""
    if len(layout.outer) > 1:
        return False
    return piped_sharing(work, program, vec, layout, skewed=True) is not None


def _pipes(work: Work, program: Program, vec: int, layout: Layout) -> bool:
    """Whether the second pass of two may be done a row later, and packs lie whole in memory."""
    if len(program.passes) != 2 or not program.sums or vec == 1:
        return False
    if program.faults or program.row_outs:
        return False
    first, second = program.passes
    known = {name for name, *_ in first.folds}
    plain = all(how == "Sum" for _, how, _ in first.folds) and not (first.writes or second.folds)
    early = not known & set(re.findall(r"\w+", program.gather))
    if not (plain and early) or any(s.by or s.raw for s in work.inputs):
        return False
    steps = [(s, *layout.steps[s.name]) for s in work.inputs if s.role in ("rows", "column")]
    whole = all(s.dtype.itemsize * vec in (4, 8, 16) for s, *_ in steps if s.role == "rows")
    still = all(not any(outer) for s, outer, _ in steps if s.role == "column")
    return whole and still and all(inner[-1] == 1 for *_, inner in steps)
