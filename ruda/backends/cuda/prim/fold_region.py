"""Reductions of a compiled step with the elementwise operators around them, as row kernels.

A row stays in registers while it is folded and gone over again, so a softmax or a norm that is
written by hand is one kernel. Each pass over the row ends with the folds whose operands are known
by then; steps on folded values run once a row, in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ruda.backends.cuda.codegen_steps import argument, functions
from ruda.backends.cuda.launch import raw_bits
from ruda.backends.cuda.prim.reading import Reading, reading_of
from ruda.backends.cuda.prim.region import fuses, step_of
from ruda.backends.cuda.prim.row_operands import Side, Work, beside_of, rows_of, supported
from ruda.backends.cuda.prim.row_whole import POINTED, by_rows
from ruda.backends.cuda.prim.rows import Parts, launches
from ruda.backends.cuda.row_programs import Pass, Program
from ruda.backends.cuda.types import stored
from ruda.core.dtypes import DType, compute_of, float64, int64
from ruda.core.shapes import Shape

FOLDS = {
    "sum": ("Sum", "T(0)", "{0} += to<T>({1});"),
    "mean": ("Sum", "T(0)", "{0} += to<T>({1});"),
    "max": ("Max", "lowest<T>()", "{0} = ruda_max({0}, to<T>({1}));"),
    "min": ("Min", "highest<T>()", "{0} = ruda_min({0}, to<T>({1}));"),
}
# A block has a row: few of them leave most of the device idle, which short ones do not mind.
_MANY_ROWS, _SHORT = 128, 1 << 15


class Facts(NamedTuple):
    """Of a reduction: the shape that it reads, the axes that it folds, what it computes in."""

    shape: Shape
    axes: Shape
    compute: DType
    down: bool = False


def facts(plan: Any) -> Facts | None:
    """What a row kernel needs to know of ``plan``; None for what is no reduction for one."""
    if plan.op.name not in FOLDS or plan.out.__class__ is tuple or not plan.out.size:
        return None
    (x,), axes = plan.specs, tuple(sorted(plan.attrs[0]))
    wanted = plan.op.dtype_of_operands(plan)[0] or x.dtype
    compute, last = compute_of(wanted), len(x.shape)
    length = _length(x.shape, axes)
    trailing = axes == tuple(range(last - len(axes), last))
    if not (trailing and compute.is_floating and x.dtype.is_floating and length > 1):
        return None
    good = x.size // length >= _MANY_ROWS or x.size <= _SHORT
    return Facts(x.shape, axes, compute) if good and plan.out.contiguous else None


def takes(step: Any, facts: Facts) -> bool:
    """Whether a kernel with such folds can do an elementwise step, or read rows for it."""
    if reading_of(step) is not None:
        return _reads_rows(step, facts)
    kinds = (*(s.dtype for s in step.specs), step.out.dtype)
    return fuses(step) and all(dtype.kind != "complex" for dtype in kinds)


def _reads_rows(step: Any, facts: Facts) -> bool:
    """Whether ``step`` reads whole rows where one integer a row says."""
    if facts.down or step.out.shape != facts.shape or not step.out.dtype.is_floating:
        return False
    # Rows of float64 leave no registers for where they begin.
    small = step.out.dtype.itemsize <= 4 and facts.compute.itemsize <= 4
    return small and by_rows(step, facts.axes)


def has_folds(region: Any) -> bool:
    """Whether a region is one with reductions."""
    return any(step.plan.op.name in FOLDS for step in region.steps)


def _length(shape: Shape, axes: Shape) -> int:
    n = 1
    for axis in axes:
        n *= shape[axis]
    return n


class Whole:
    """The program of one region."""

    def __init__(self, client: Any, region: Any) -> None:
        self.client, self.region, self.count = client, region, len(region.specs)
        self.plans = [step.plan for step in region.steps]
        self.sources = [step.sources for step in region.steps]
        folds = [k for k, plan in enumerate(self.plans) if plan.op.name in FOLDS]
        found = self.found(self.plans[folds[0]])
        assert found is not None
        self.folds, self.facts = folds, found
        self.full = {
            k
            for k, plan in enumerate(self.plans)
            if k not in folds and plan.out.shape == found.shape
        }
        self.levels = self._levels()
        self.last = max(self.levels[k] for k in folds)
        self.readings = {
            k: reading for k, plan in enumerate(self.plans) if (reading := reading_of(plan))
        }
        made = [
            None if k in folds or k in self.readings else step_of(plan, self.sources[k])
            for k, plan in enumerate(self.plans)
        ]
        self.text, same = functions([step for step in made if step is not None])
        if self.readings:
            self.text = f"{POINTED}\n{self.text}"
        numbers = iter(same)
        self.function = [None if step is None else next(numbers) for step in made]
        self.made = made
        self.sides = {place: self._side(place) for place in range(self.count)}

    @staticmethod
    def found(plan: Any) -> Facts | None:
        """The facts of a reduction of this kind of region."""
        return facts(plan)

    def _levels(self) -> list[int]:
        """For each step how many folds have to be over before it, itself included."""
        levels: list[int] = []
        for k, sources in enumerate(self.sources):
            below = [levels[s - self.count] for s in sources if s >= self.count]
            levels.append(max(below, default=0) + (k in self.folds))
        return levels

    def _side(self, place: int) -> Side:
        spec, name = self.region.specs[place], f"p{place}"
        nothing = (0,) * len(self.facts.shape)
        for k, reading in self.readings.items():
            if place in self.sources[k]:
                return self._pointed_side(place, self.sources[k], reading)
        if place in self.region.paged:
            kind = int64 if spec.dtype.is_integer else float64
            return Side(name, kind, "one", nothing, True)
        if spec.weak:
            kind = int64 if self._kind_of(place).is_integer else float64
            return Side(name, kind, "value", nothing, True)
        if spec.size == 1:
            return Side(name, spec.dtype, "one", nothing, True)
        return self.side_of(place)

    def _pointed_side(self, place: int, sources: tuple[int, ...], reading: Reading) -> Side:
        """The rows that a step reads, or the integers that say where."""
        pointing, dtype = reading.sources[0].pointing, self.region.specs[place].dtype
        assert pointing is not None
        if place == sources[1]:
            return Side(f"p{place}", dtype, "row", pointing.spot)
        by, wraps = f"p{sources[1]}", pointing.form.wraps
        return Side(f"p{place}", dtype, "rows", pointing.other, True, by, wraps)

    def side_of(self, place: int) -> Side:
        """How a tensor of more than one element is read."""
        spec, name, axes = self.region.specs[place], f"p{place}", self.facts.axes
        if self.is_of_folded(place):
            return self.beside(place)
        side = rows_of(name, spec, self.facts.shape)._replace(raw=True)
        if not any(side.strides[i] for i in axes):
            return side._replace(role="row")
        # One row is no column, however it lies: it is kept in registers.
        several = any(n > 1 for i, n in enumerate(self.facts.shape) if i not in axes)
        along = several and all(i in axes for i, s in enumerate(side.strides) if s)
        return side._replace(role="column") if along else side

    def beside(self, place: int) -> Side:
        """An operand of steps on folded values, whose shape has ones for the folded axes or not."""
        shape, axes = self.facts.shape, self.facts.axes
        user = next(k for k, sources in enumerate(self.sources) if place in sources)
        kept = tuple(i for i in range(len(shape)) if (i in axes) is self.facts.down)
        if self.plans[user].out.ndim == len(shape):
            kept = tuple(range(len(shape)))
        spec = self.region.specs[place]
        return beside_of(f"p{place}", spec, shape, kept)._replace(raw=True)

    def _kind_of(self, place: int) -> DType:
        """What the step that takes a scalar computes it in."""
        for step in self.made:
            if step is not None and place in step.sources:
                return step.computed[step.sources.index(place)]
        return float64

    def is_of_folded(self, place: int) -> bool:
        """Whether an operand belongs to steps on folded values, whose shape may lack the axes."""
        users = [k for k, sources in enumerate(self.sources) if place in sources]
        return all(k not in self.full and k not in self.folds for k in users)

    def value(self, source: int) -> str:
        """An input or a result as it is called in the kernel."""
        if source < self.count:
            side = self.sides[source]
            return side.name + ".at[k]" * (side.role in ("rows", "column"))
        k = source - self.count
        return f"s{k}[k]" if k in self.full else self.name_of_folded(k)

    def name_of_folded(self, k: int) -> str:
        """A folded value, or one that is computed from such."""
        return f"r{k}"

    def call(self, k: int) -> str:
        step = self.made[k]
        assert step is not None
        pairs = zip(step.sources, step.computed, strict=True)
        arguments = ", ".join(argument(self.value(s), dtype) for s, dtype in pairs)
        return f"step{self.function[k]}({arguments})"

    def elements(self, wanted: Sequence[int]) -> str:
        """The steps on elements that the values ``wanted`` come from."""
        needed: set[int] = set()
        waiting = [v - self.count for v in wanted if v >= self.count]
        while waiting:
            k = waiting.pop()
            if k in self.full and k not in needed:
                needed.add(k)
                waiting += [s - self.count for s in self.sources[k] if s >= self.count]
        return "\n".join(
            f"{stored(self.plans[k].out.dtype)} s{k}[VEC]; EACH s{k}[k] = {self._element(k)};"
            for k in sorted(needed)
        )

    def _element(self, k: int) -> str:
        return self.value(self.sources[k][0]) if k in self.readings else self.call(k)

    def folded_value(self, k: int, fold: str, count: str) -> tuple[str, str]:
        """Type and value of step ``k`` on folded values, where ``fold`` is what has been folded."""
        plan = self.plans[k]
        value = fold if k in self.folds else self.call(k)
        if k in self.folds and plan.op.name == "mean":
            value = f"mean_of({fold}, {count})"
        kind = stored(plan.out.dtype)
        return kind, f"rounded(to<{kind}>({value}))"

    def _once(self, level: int) -> str:
        """The steps on folded values that can run after ``level`` passes."""
        lines = []
        for k in range(len(self.plans)):
            if self.levels[k] == level and k not in self.full:
                kind, value = self.folded_value(k, f"f{k}", "at.n")
                lines.append(f"const {kind} r{k} = {value};")
        return "\n".join(lines)

    def program(self) -> Program:
        """The passes: one for each level of folds, and one more for what is written."""
        reads = tuple(s.name for s in self.sides.values() if s.role in ("rows", "column"))
        passes = []
        for level in range(1, self.last + 1):
            here = [k for k in self.folds if self.levels[k] == level]
            sources = [self.sources[k][0] for k in here]
            lines = [self.elements(sources)]
            entries = []
            for k, source in zip(here, sources, strict=True):
                how, start, text = FOLDS[self.plans[k].op.name]
                entries.append((f"f{k}", how, start))
                lines.append("EACH " + text.format(f"f{k}", self.value(source)))
            pack = "\n".join(line for line in lines if line)
            passes.append(Pass(reads, pack, tuple(entries), self._once(level)))
        kept = [k for k in self.region.kept if k in self.full]
        if kept:
            pack = self.elements([self.count + k for k in kept])
            passes.append(Pass(reads, pack, writes=tuple(f"s{k}" for k in kept)))
        rows = [k for k in self.region.kept if k not in self.full]
        types = tuple(self.plans[k].out.dtype for k in rows)
        before = self._once(0)
        digest = hashlib.sha256(f"{passes}{before}{self.text}".encode()).hexdigest()[:10]
        words = "_".join(dict.fromkeys(plan.op.name for plan in self.plans))[:48]
        return Program(
            f"folded_{words}_{digest}",
            tuple(passes),
            before=before,
            row_outs=tuple(f"r{k}" for k in rows),
            row_types=types,
            functions=self.text,
            scalars=tuple(
                f"p{self.sources[k][1]}_{what}"
                for k in self.readings
                for what in ("length", "step")
            ),
            faults=bool(self.readings),
        )

    def parts(self) -> Parts:
        """The program and what it works on."""
        plan, shape = self.plans[self.folds[0]], self.facts.shape
        kept = [k for k in self.region.kept if k in self.full]
        outs = tuple(rows_of(f"s{k}", self.plans[k].out, shape) for k in kept)
        kinds = (plan.out.dtype, self.facts.compute)
        sides = tuple(self.sides.values())
        work = Work(self.client, shape, self.facts.axes, sides, outs, *kinds)
        for reading in self.readings.values():
            pointing = reading.sources[0].pointing
            assert pointing is not None
            numbers = float(pointing.lengths[0]), float(pointing.steps[0])
            work = work._replace(scalars=numbers, form=pointing.form)
        program = self.program()
        return Parts(work, program, program, tuple(range(self.count)))


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of a region's inputs to those of its results."""
    whole = Whole(client, region)
    parts = whole.parts()
    assert supported(parts.work)
    order = [k for k in region.kept if k in whole.full]
    order += [k for k in region.kept if k not in whole.full]
    specs = tuple(whole.plans[k].out for k in order)
    run = launches(parts, specs)
    chosen = [order.index(k) for k in region.kept]
    reads = [reader(side) for side in parts.work.inputs]

    def launch(*handles: Any) -> tuple[Any, ...]:
        made = run([read(handle) for read, handle in zip(reads, handles, strict=True)])
        return tuple([made[j] for j in chosen])

    return launch


def reader(side: Side) -> Callable[[Any], int]:
    if side.role != "value":
        return lambda handle: handle.address
    bits = raw_bits(side.dtype)
    return lambda value: bits(value)[0]
