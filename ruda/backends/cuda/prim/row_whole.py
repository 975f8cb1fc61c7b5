"""The program of a row kernel with its surroundings: what stands before and behind, as text.

The sides of the whole are the operands of the row operator that lie in memory, then those of the
steps; its programs are those of the row operator with the steps in their first and last pass.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ruda.backends.cuda.codegen_steps import Step, argument, functions
from ruda.backends.cuda.prim.reading import Reading, reading_of
from ruda.backends.cuda.prim.region import step_of
from ruda.backends.cuda.prim.row_operands import Side, rows_of
from ruda.backends.cuda.prim.rows import Parts
from ruda.backends.cuda.row_programs import Pass, Program
from ruda.backends.cuda.types import stored
from ruda.core.dtypes import float64, int64, uint64
from ruda.core.shapes import Shape

# Rows of a table that are longer have to be whole packs: others would be read element by element in
# each pass, which took 171 us for 512 rows of 50257 where a gather and a norm took 130 (one H200).
_LONG = 1 << 14

# Where a row begins; what is out of range is told and clamped.
POINTED = """#include "ruda/faults.cuh"
template <bool WRAPS>
__device__ __forceinline__ i64 pointed(i64 value, i64 length, i64 where, const Faults& faults) {
    const i64 place = place_of<WRAPS>(value, length);
    if (place >= 0 && place < length) return place;
    report(faults, value, where, 0);
    return clamped(place, length);
}"""


def is_core(plan: Any) -> bool:
    """Whether ``plan`` is that of a row operator, which others are joined to."""
    return getattr(plan.run, "parts", None) is not None


def by_rows(step: Any, axes: Shape) -> bool:
    """Whether ``step`` reads all of a row along ``axes`` where one integer a row says."""
    reading = reading_of(step)
    pointing = reading.sources[0].pointing if reading is not None else None
    if pointing is None or len(pointing.lengths) != 1 or step.specs[1].dtype is uint64:
        return False
    length = math.prod(step.out.shape[i] for i in axes)
    if length > _LONG and length * step.out.dtype.itemsize % 16:
        return False
    return not any(pointing.spot[i] for i in axes)


def fetches(program: Program, name: str) -> bool:
    """Whether a pass fetches elements of an operand by itself: a cast is then all before it."""
    return any(f"{name}_data[" in each.then for each in program.passes)


class Whole:
    """The kernel of one region: its sides, its programs, and what of it leaves the region."""

    def __init__(self, region: Any) -> None:
        self.region = region
        self.core = next(k for k, s in enumerate(region.steps) if is_core(s.plan))
        self.plan = region.steps[self.core].plan
        self.parts: Parts = self.plan.run.parts
        self.count = len(region.specs)
        starts, at = [], self.count
        for step in region.steps:
            starts.append(at)
            at += 1 if step.plan.out.__class__ is not tuple else len(step.plan.out)
        self.starts = starts
        self.first = starts[self.core]
        self.rows = len(self.parts.work.outs)
        self.results = 1 if self.plan.out.__class__ is not tuple else len(self.plan.out)
        self.step_at = {at: k for k, at in enumerate(starts) if k != self.core}
        self.readings: dict[int, Reading] = {}
        for k, step in enumerate(region.steps):
            reading = None if k == self.core else reading_of(step.plan)
            if reading is not None:
                self.readings[k] = reading
        self.sides: list[Side] = []
        self.places: list[int] = []
        self.names: dict[int, str] = {}
        self.before = self._before()
        self._name_inputs()

    def _before(self) -> set[int]:
        """The steps that operands of the row operator come from."""
        found: set[int] = set()
        waiting = list(self.region.steps[self.core].sources)
        while waiting:
            k = self.step_at.get(waiting.pop())
            if k is not None and k not in found:
                found.add(k)
                waiting += self.region.steps[k].sources
        return found

    def _fetches(self, name: str) -> bool:
        return fetches(self.parts.stream, name)

    def _name_inputs(self) -> None:
        """The operands of the row operator that lie in memory, then those of the steps."""
        work, sources = self.parts.work, self.region.steps[self.core].sources
        for side, place in zip(work.inputs, self.parts.places, strict=True):
            source = sources[place]
            if source < self.count:
                self.sides.append(side)
                self.places.append(source)
            elif self._fetches(side.name):
                # A cast alone, which reading does anyway.
                k = self.step_at[source]
                self.before.discard(k)
                (place,) = self.region.steps[k].sources
                self.sides.append(rows_of(side.name, self.region.specs[place], work.shape))
                self.places.append(place)
        used = {v for k in self.elementwise() for v in self.region.steps[k].sources}
        self.names |= {place: f"p{place}" for place in sorted(used) if place < self.count}
        for place in self.names:
            self.sides.append(self._side(place))
            self.places.append(place)

    def elementwise(self) -> list[int]:
        """The steps but for the row operator and casts that reading does."""
        skipped = set()
        sources = self.region.steps[self.core].sources
        for side, place in zip(self.parts.work.inputs, self.parts.places, strict=True):
            if self._fetches(side.name) and sources[place] >= self.count:
                skipped.add(self.step_at[sources[place]])
        return [k for k in range(len(self.region.steps)) if k != self.core and k not in skipped]

    def _side(self, place: int) -> Side:
        spec, name, shape = self.region.specs[place], self.names[place], self.parts.work.shape
        for k, reading in self.readings.items():
            if place in self.region.steps[k].sources:
                return self._pointed_side(place, self.region.steps[k].sources, reading)
        if place in self.region.paged:
            return Side(name, int64 if spec.dtype.is_integer else float64, "one", (0,) * len(shape))
        if spec.weak:
            return Side(name, float64, "value", (0,) * len(shape))
        side = rows_of(name, spec, shape)
        axes = self.parts.work.axes
        if not any(side.strides):
            return side._replace(role="one")
        if not any(side.strides[i] for i in axes):
            return side._replace(role="row")
        along = all(i in axes for i, s in enumerate(side.strides) if s)
        return side._replace(role="column") if along and not self.parts.sums else side

    def _pointed_side(self, place: int, sources: tuple[int, ...], reading: Reading) -> Side:
        """The rows that a step reads, or the integers that say where."""
        pointing, name = reading.sources[0].pointing, self.names[place]
        dtype = self.region.specs[place].dtype
        assert pointing is not None
        if place == sources[1]:
            return Side(name, dtype, "row", pointing.spot)
        by, wraps = self.names[sources[1]], pointing.form.wraps
        return Side(name, dtype, "rows", pointing.other, by=by, wraps=wraps)

    def value(self, source: int) -> str:
        """The elements of an input or of a result, as a variable of the kernel."""
        if source in self.names:
            k = "[k]" if self._side(source).role in ("rows", "column") else ""
            return self.names[source] + k
        if source in self.step_at:
            return f"s{self.step_at[source]}[k]"
        return f"{self.parts.work.outs[source - self.first].name}[k]"

    def steps(self, chosen: Sequence[int]) -> str:
        """The text of the steps ``chosen``, in their order."""
        lines = []
        for k in chosen:
            if k in self.readings:
                source = self.region.steps[k].sources[0]
                lines.append(f"T s{k}[VEC]; EACH s{k}[k] = {self.value(source)};")
                continue
            step = self.made[k]
            pairs = zip(step.sources, step.computed, strict=True)
            arguments = ", ".join(argument(self.value(s), dtype) for s, dtype in pairs)
            lines.append(f"T s{k}[VEC]; EACH s{k}[k] = to<T>(step{self.same[k]}({arguments}));")
        return "\n".join(lines)

    def parts_of_all(self) -> Parts:
        """Programs and sides of the whole."""
        chosen = [k for k in self.elementwise() if k not in self.readings]
        made = [step_of(self.region.steps[k].plan, self.region.steps[k].sources) for k in chosen]
        self.made: dict[int, Step] = dict(zip(chosen, made, strict=True))
        text, same = functions(made)
        self.same = {k: same[j] for j, k in enumerate(chosen)}
        work = self.parts.work
        outs = tuple(self._out(v) for v in self.kept_rows())
        names = tuple(side.name for side in outs)
        stream = self._program(self.parts.stream, names, text)
        held = self.parts.held
        if held is not None:
            held = self._program(held, names, text)
        work = work._replace(inputs=tuple(self.sides), outs=outs)
        for k, reading in self.readings.items():
            work = self._pointed_work(work, k, reading)
        return Parts(work, held, stream, tuple(self.places), self.parts.sums)

    def _pointed_work(self, work: Any, k: int, reading: Reading) -> Any:
        """``work`` with the numbers of a step that reads rows, and what is told of its faults."""
        pointing = reading.sources[0].pointing
        assert pointing is not None
        numbers = float(pointing.lengths[0]), float(pointing.steps[0])
        return work._replace(scalars=(*work.scalars, *numbers), form=pointing.form)

    def _pointed_names(self) -> tuple[str, ...]:
        names = (self.names[self.region.steps[k].sources[1]] for k in self.readings)
        return tuple(f"{name}_{what}" for name in names for what in ("length", "step"))

    def kept_rows(self) -> list[int]:
        """The results of the rows' shape that leave the region."""
        kept = (self.count + k for k in self.region.kept)
        others = range(self.first + self.rows, self.first + self.results)
        return [v for v in kept if v not in others]

    def _out(self, value: int) -> Side:
        k = self.step_at.get(value)
        if k is None:
            return self.parts.work.outs[value - self.first]
        return rows_of(f"s{k}", self.region.steps[k].plan.out, self.parts.work.shape)

    def _program(self, program: Program, writes: tuple[str, ...], text: str) -> Program:
        sources = self.region.steps[self.core].sources
        known = sorted({*self.made, *self.readings})
        before = self.steps([k for k in known if k in self.before])
        lines = [before] if before else []
        for side, place in zip(self.parts.work.inputs, self.parts.places, strict=True):
            k = self.step_at.get(sources[place])
            if k is not None and not self._fetches(side.name):
                lines.append(f"T {side.name}[VEC]; EACH {side.name}[k] = s{k}[k];")
        each = "\n".join([*lines, *([program.each] if program.each else [])])
        last = program.passes[-1]
        behind = [k for k in known if k not in self.before]
        pack = [f"T {name}[VEC];" for name in last.writes if name not in writes]
        pack += [last.pack, *self._rounded(last.writes if behind else ()), self.steps(behind)]
        reads = (*last.reads, *(s.name for s in self.sides if s.name in self.names.values()))
        # Declared by its own text, what a step makes is written without being declared again.
        end = Pass(reads, "\n".join(p for p in pack if p), last.folds, last.then, writes)
        told = POINTED if self.readings else ""
        named = f"{program.name}{each}{end}{told}{text}"
        digest = hashlib.sha256(named.encode()).hexdigest()[:10]
        return replace(
            program,
            name=f"{program.name}_{digest}",
            passes=(*program.passes[:-1], end),
            each=each,
            functions="\n".join(filter(None, (program.functions, told, text))),
            scalars=(*program.scalars, *self._pointed_names()),
            faults=program.faults or bool(self.readings),
        )

    def _rounded(self, names: Sequence[str]) -> list[str]:
        """What the steps behind read is what would have been written."""
        outs = {side.name: side.dtype for side in self.parts.work.outs}
        return [
            f"EACH {name}[k] = to<T>(rounded(to<{stored(outs[name])}>({name}[k])));"
            for name in names
        ]
