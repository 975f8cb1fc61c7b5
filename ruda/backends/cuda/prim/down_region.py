"""Folds over axes before the last with the elementwise operators around: sums for biases, say.

The elements are computed while they are read, and may be written as well; what is computed from
the folded values follows in the same launch.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.codegen_down import THREADS, source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.fold_region import FOLDS, Facts, Whole, reader
from ruda.backends.cuda.prim.fold_region import facts as row_facts
from ruda.backends.cuda.prim.row_kernel import Kernel
from ruda.backends.cuda.prim.row_operands import Side, Work, rows_of
from ruda.backends.cuda.prim.row_sharing import Sharing
from ruda.backends.cuda.row_programs import Pass, Program
from ruda.core.dtypes import compute_of, float32, uint32
from ruda.core.spec import spec_of

# Rows that a thread adds up, as far as that leaves work for all; blocks of a multiprocessor.
_ROWS, _BLOCKS, _MOST_SPLITS = (2, 16), 8, 512
# So many blocks of columns do without others that share their rows, where a thread has so few:
# what blocks leave each other takes longer than to read these.
_WIDE, _FEW = 32, 8
# Beyond so many elements a launch is nothing beside the reading, which plain sums do quicker: 18 us
# where this kernel took 25 on an H200, and the gradient of gelu with its sum 118 where it took 161.
_LARGEST = 1 << 22
# Over axes in the middle this kernel won from so many elements of float32: 7.1 us instead of 13.4
# for [64, 512, 128], 4.7 instead of 3.9 for [16, 64, 64]; of bfloat16 it took 10.7 instead of 10.0.
_LEAST_INNER = 1 << 18


def facts(plan: Any) -> Facts | None:
    """What a fold down columns needs to know of ``plan``; ``axes`` are those that stay."""
    if plan.op.name not in FOLDS or plan.out.__class__ is tuple or not plan.out.size:
        return None
    (x,), folded = plan.specs, tuple(sorted(plan.attrs[0]))
    compute = compute_of(plan.op.dtype_of_operands(plan)[0] or x.dtype)
    inner = bool(folded) and folded[-1] < len(x.shape) - 1
    if not (inner and compute.is_floating and x.dtype.is_floating and plan.out.contiguous):
        return None
    # One column would leave all but one block idle.
    if x.size == plan.out.size or plan.out.size < 2 or x.size > _LARGEST:
        return None
    leading = folded[-1] == len(folded) - 1
    if not leading and (x.dtype is not float32 or x.size < _LEAST_INNER):
        return None
    return Facts(x.shape, tuple(i for i in range(len(x.shape)) if i not in folded), compute, True)


def folds_down(region: Any) -> bool:
    """Whether the reductions of a region are over the first axes."""
    first = next(step.plan for step in region.steps if step.plan.op.name in FOLDS)
    return row_facts(first) is None


class _Down(Whole):
    """The program of one region."""

    @staticmethod
    def found(plan: Any) -> Facts | None:
        return facts(plan)

    def side_of(self, place: int) -> Side:
        """All operands of elements are read by rows; those of folded values along the columns."""
        if self.is_of_folded(place):
            return self.beside(place)._replace(role="column")
        return rows_of(f"p{place}", self.region.specs[place], self.facts.shape)._replace(raw=True)

    def name_of_folded(self, k: int) -> str:
        return f"r{k}[k]"

    def finish(self) -> str:
        """From the folded values to what is written of them."""
        lines = []
        for k in range(len(self.plans)):
            if k not in self.full:
                kind, value = self.folded_value(k, f"f{k}[k]", "at.rows")
                lines.append(f"{kind} r{k}[VEC]; EACH r{k}[k] = {value};")
        rows = [k for k in self.region.kept if k not in self.full]
        lines += [f"EACH r{k}_data[i + k] = r{k}[k];" for k in rows]
        return "\n".join(f"    {line}" for line in lines)

    def program(self) -> Program:
        """One pass: the elements, the folds, the writes."""
        kept = [k for k in self.region.kept if k in self.full]
        sources = [self.sources[k][0] for k in self.folds]
        lines = [self.elements([*sources, *(self.count + k for k in kept)])]
        entries = []
        for k, s in zip(self.folds, sources, strict=True):
            how, start, text = FOLDS[self.plans[k].op.name]
            entries.append((f"f{k}", how, start))
            lines.append("EACH " + text.format(f"f{k}[k]", self.value(s)))
        pack = "\n".join(line for line in lines if line)
        each = Pass((), pack, tuple(entries), writes=tuple(f"s{k}" for k in kept))
        rows = [k for k in self.region.kept if k not in self.full]
        digest = hashlib.sha256(f"{each}{self.finish()}{self.text}".encode()).hexdigest()[:10]
        words = "_".join(dict.fromkeys(plan.op.name for plan in self.plans))[:48]
        return Program(
            f"down_{words}_{digest}",
            (each,),
            row_outs=tuple(f"r{k}" for k in rows),
            row_types=tuple(self.plans[k].out.dtype for k in rows),
            functions=self.text,
        )

    def work(self) -> Work:
        """What the program works on: rows are what is folded."""
        plan, shape = self.plans[self.folds[0]], self.facts.shape
        kept = [k for k in self.region.kept if k in self.full]
        outs = tuple(rows_of(f"s{k}", self.plans[k].out, shape) for k in kept)
        sides = tuple(self.sides.values())
        kinds = (plan.out.dtype, self.facts.compute)
        return Work(self.client, shape, self.facts.axes, sides, outs, *kinds)


class _Launches:
    """The launches of one region by the size of packs, and the memory where blocks meet."""

    def __init__(self, whole: _Down) -> None:
        self.whole, self.client, self.work = whole, whole.client, whole.work()
        self.program = whole.program()
        self.base = Kernel(self.work, None, self.program)
        self.folds = len(whole.folds)
        self._made: dict[int, tuple[Launcher, Any]] = {}
        # A zero for each block of columns, at any size of packs.
        most = -(-self.work.length // 32)
        self.count = allocate(self.client.pool, spec_of(self.client, (most,), uint32))
        self.client.fill_zero(self.count.address, 4 * most)

    def made(self, vec: int) -> tuple[Launcher, Any]:
        """The launcher for packs of ``vec``, and the spec of the parts."""
        if vec not in self._made:
            self._made[vec] = self._make(vec)
        return self._made[vec]

    def _make(self, vec: int) -> tuple[Launcher, Any]:
        work, kernel = self.work, self.base.kernel(self.program, Sharing("down", THREADS, 1), vec)
        packs = -(-work.length // vec)
        # A warp reads packs side by side; with few of them and few rows there is nothing else for
        # the others.
        deep = work.rows >= 64 or (work.rows >= _FEW and packs >= 32 * _WIDE)
        across = min(32 if deep else THREADS, 1 << (packs - 1).bit_length())
        wide, down = -(-packs // across), THREADS // across
        units = self.client.driver.multiprocessors
        least, most = _ROWS
        each = max(least, min(most, work.rows * wide // (down * units * 2)))
        splits = max(1, min(work.rows // (down * each), units * _BLOCKS // wide, _MOST_SPLITS))
        if wide >= _WIDE and work.rows <= _FEW * down:
            splits = 1
        text, finish = source(kernel, self.whole.finish()), struct.pack("<q", across)
        widths = (1,) * (len(kernel.outs) + len(self.program.row_outs) + 2 + len(kernel.inputs))
        fixed = [self.base.geometry(), finish]
        launcher = Launcher(self.client, text, kernel.name, (wide, splits), THREADS, widths, fixed)
        room = self.folds * splits * work.length if splits > 1 else 1
        return launcher, spec_of(self.client, (room,), work.compute)


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of a region's inputs to those of its results."""
    whole = _Down(client, region)
    launches = _Launches(whole)
    order = [k for k in region.kept if k in whole.full]
    order += [k for k in region.kept if k not in whole.full]
    specs = [whole.plans[k].out for k in order]
    chosen = [order.index(k) for k in region.kept]
    sides = launches.work.inputs
    reads = [reader(side) for side in sides]
    held = [j for j, side in enumerate(sides) if side.role == "rows"]
    count = sum(k in whole.full for k in order)

    def launch(*handles: Any) -> tuple[Any, ...]:
        outs = [allocate(client.pool, spec) for spec in specs]
        given = [read(handle) for read, handle in zip(reads, handles, strict=True)]
        written = [out.address for out in outs]
        vec = launches.base.pick([*(given[j] for j in held), *written[:count]])
        launcher, between = launches.made(vec)
        parts = allocate(client.pool, between)
        launcher(*written, parts.address, launches.count.address, *given)
        return tuple([outs[j] for j in chosen])

    return launch
