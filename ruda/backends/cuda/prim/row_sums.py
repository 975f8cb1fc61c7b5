"""Row kernels that also add up over rows: the launches, and the fold of what blocks leave."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ruda.backends.cuda.codegen_row_pipes import pieces_of
from ruda.backends.cuda.codegen_rows import source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.row_kernel import Kernel
from ruda.backends.cuda.prim.row_operands import Work
from ruda.backends.cuda.prim.row_pipes import piped_sharing
from ruda.backends.cuda.prim.row_sharing import Sharing, held_sharing
from ruda.backends.cuda.row_programs import Program
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType
from ruda.core.spec import spec_of


def fold(client: Any, out: DType, compute: DType, parts: int, n: int, count: int) -> Launcher:
    """The kernel that adds up ``partial [count, parts, n]`` over the parts."""
    name = f"fold_columns_{code_of(compute)}_{code_of(out)}"
    text = instance(__file__, NAME=name, T=stored(compute), OUT=stored(out))
    fixed = [struct.pack("<q", parts), struct.pack("<q", n)]
    return Launcher(client, text, name, (-(-n // 32), count), (32, 8), (1, 1, 1), fixed)


class Summing:
    """A program with sums over rows: one launch for rows and sums, or one each; then the fold."""

    def __init__(self, work: Work, program: Program, alone: Program) -> None:
        self.work, self.program, self.client = work, program, work.client
        self.rows = Kernel(work, program, alone, skews=True)
        vec, layout = self.rows.vec, self.rows.layout
        piped = piped_sharing(work, program, vec, layout, self.rows.skewed)
        if piped is None and held_sharing(work, program, vec) is None:
            # Clusters that keep a row have no room for sums: another launch makes them.
            name = f"{program.name}_rows"
            self.rows = Kernel(work, replace(program, name=name, sums=(), gather=""), alone)
        self.packed = [i for i, s in enumerate(work.inputs) if s.role in ("rows", "column")]
        self.made: dict[int, tuple[Any, ...]] = {}

    def __call__(self, out: Sequence[int], sums: Sequence[Any], given: Sequence[int]) -> None:
        """Queue all launches, for addresses of outputs, handles of sums, addresses of operands."""
        vec = self.rows.pick((*[given[i] for i in self.packed], *out))
        found = self.made.get(vec)
        if found is None:
            found = self.made[vec] = self._make(vec)
        launcher, columns, again, between = found
        partial = allocate(self.client.pool, between)
        if columns is None:
            launcher(*out, partial.address, *given)
        else:
            launcher(*out, *given)
            columns(partial.address, *given)
        targets = [handle.address for handle in sums]
        end = (*targets, *[0] * (2 - len(sums)), partial.address)
        # Only an optimizer asks for the sums of a step.
        self.client.later(lambda: again(*end), (partial,), sums)

    def _make(self, vec: int) -> tuple[Any, ...]:
        launcher, blocks, kernel = self.rows.made(vec)
        n, count, columns = self.work.length, len(self.program.sums), None
        if kernel.mode == "stream" or not kernel.program.sums:
            columns, blocks = self._columns(vec)
        blocks *= pieces_of(kernel, blocks)
        compute = self.work.compute
        again = fold(self.client, self.work.row_dtype, compute, blocks, n, count)
        return launcher, columns, again, spec_of(self.client, (count, blocks, n), compute)

    def _columns(self, vec: int) -> tuple[Launcher, int]:
        """The launch that adds up over rows alone, and its blocks along them."""
        work = self.work
        alone = Kernel(work._replace(outs=()), None, self.program)
        kernel = alone.kernel(self.program, Sharing("columns", 128, 1), vec)
        across = -(-work.length // (vec * kernel.threads))
        most = -(-self.client.driver.multiprocessors * 8 // across)
        down = max(1, min(-(-work.rows // 16), most, 1024))
        widths = (1,) * (1 + len(work.inputs))
        text, fixed = source(kernel), [alone.geometry()]
        launcher = Launcher(
            self.client, text, kernel.name, (across, down), kernel.threads, widths, fixed
        )
        return launcher, down
