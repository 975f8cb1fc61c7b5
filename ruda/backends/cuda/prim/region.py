"""Regions of a compiled step: elementwise operators of one shape in one launch."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.cuda import codegen_region as codegen
from ruda.backends.cuda.codegen import Operand
from ruda.backends.cuda.codegen_draws import Draw
from ruda.backends.cuda.codegen_reads import Walker
from ruda.backends.cuda.codegen_steps import THREADS, Step, blocks_of, compared, compute, is_light
from ruda.backends.cuda.geometry import Layout, by_packs, layout_of, needs_wide, packed
from ruda.backends.cuda.launch import Launcher, raw_bits
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.drawing import Drawing, drawing_of
from ruda.backends.cuda.prim.reading import Placed, Walks, reading_of
from ruda.core.dtypes import DType, compute_of, float64, int64

_ELEMENTWISE = ("unary", "binary", "ternary", "cast", "copy")
# Light steps that are light together.
_FEW = 8


def fuses(plan: Any) -> bool:
    """Whether ``plan`` can be a step of a region: an expression without attributes."""
    op = plan.op
    if plan.out is None or plan.out.__class__ is tuple or not plan.out.contiguous:
        return False
    if op.kind not in _ELEMENTWISE and (op.kind != "fused" or op.expr is None):
        return False
    if any("storage" in (s.dtype.kind, plan.out.dtype.kind) for s in plan.specs):
        return False
    if op.kind in ("cast", "copy"):
        return bool(plan.specs[0].shape == plan.out.shape)
    return op.expr is not None and not op.attrs and op.name != "nextafter"


def joins(plan: Any) -> bool:
    """Whether ``plan`` can be a step of a region of elementwise operators: also if it draws."""
    return fuses(plan) or drawing_of(plan) is not None


def leads(plan: Any) -> bool:
    """Whether ``plan`` can be a step that reads memory, or nothing, and no earlier step."""
    if reading_of(plan) is not None:
        return True
    drawing = drawing_of(plan)
    return drawing is not None and not drawing.operands


class _Whole:
    """What the kernels of one region have in common."""

    def __init__(self, client: Any, region: Any) -> None:
        self.client, self.region = client, region
        self.out = region.steps[0].plan.out
        walks = Walks(client, self.out.shape)
        self.drawn: dict[int, Drawing] = {}
        self.placed: list[Placed] = []
        for k, (plan, _) in enumerate(region.steps):
            drawing, reading = drawing_of(plan), reading_of(plan)
            if drawing is not None:
                self.drawn[k] = drawing
            elif reading is not None:
                self.placed.append(Placed(walks, reading, k, plan))
        self.steps = self._steps()
        # Each weak input belongs to one step, whose dtype it is passed in.
        self.computed = {
            source: kind
            for step in self.steps
            for source, kind in zip(step.sources, step.computed, strict=False)
        }
        self.elements = [i for i in range(len(region.specs)) if i in self.computed]
        self.bits = {
            region.steps[p.step].sources[p.reading.fill]: p.plan.out.dtype
            for p in self.placed
            if p.reading.fill is not None
        }
        self.read = {
            region.steps[p.step].sources[i]
            for p in self.placed
            for i in range(len(p.plan.specs))
            if i != p.reading.fill
        }
        specs = (*(region.specs[i] for i in self.elements), *walks.specs)
        layout = layout_of(specs, self.out)
        self.layout = _walked(layout, self.out.size) if self.placed else layout
        self.sizes = (*(region.specs[i].dtype.itemsize for i in self.elements), *walks.sizes)
        self.wide = needs_wide((*region.specs, *walks.specs, self.out), self.out.shape)

    def _steps(self) -> tuple[Step, ...]:
        reading = {placed.step for placed in self.placed}
        return tuple(
            _moved(plan, sources) if k in reading else step_of(plan, sources, self.drawn.get(k))
            for k, (plan, sources) in enumerate(self.region.steps)
        )

    def packs(self) -> Layout | None:
        """The layout in packs of neighbours, where that can be."""
        if self.layout.is_flat or any(placed.by_elements for placed in self.placed):
            return None
        whole = [n for placed in self.placed for n in placed.whole]
        largest = max(spec.dtype.itemsize for spec in self.region.out)
        return by_packs(self.layout, (*self.sizes, largest), whole)

    def kernel(self, layout: Layout) -> codegen.Region:
        """The class of kernel over ``layout``."""
        forms = dict(zip(self.elements, layout.forms, strict=False))
        inputs = tuple(self._operand(i, forms.get(i, "")) for i in range(len(self.region.specs)))
        rest = layout.forms[len(self.elements) :]
        walkers = tuple(Walker(f"w{k}", form) for k, form in enumerate(rest))
        sources = [step.sources for step in self.region.steps]
        return codegen.Region(
            inputs,
            self.steps,
            self.region.kept,
            # One element alone needs no strides, but places all the same.
            0 if layout.is_flat and not self.placed else len(layout.sizes),
            self.wide,
            max(layout.count, 1),
            tuple(p.read(sources[p.step], walkers) for p in self.placed),
            walkers,
            tuple(Draw(k, drawing.numbers) for k, drawing in self.drawn.items()),
        )

    def _operand(self, i: int, form: str) -> Operand:
        spec, name = self.region.specs[i], f"i{i}"
        if i in self.bits:
            return Operand(name, self.bits[i], self.bits[i], "bits")
        if i not in self.computed:
            return Operand(name, spec.dtype, spec.dtype, "read" if i in self.read else "none")
        wanted = self.computed[i]
        if i in self.region.paged:
            kind = int64 if spec.dtype.is_integer else float64
            return Operand(name, kind, wanted, "single")
        return Operand(name, spec.dtype, wanted if form == "value" else spec.dtype, form)

    def launchers(self) -> tuple[Launcher, Launcher]:
        """The kernel for addresses that 16 does not divide, and for those that it does."""
        kernel = self.kernel(self.layout)
        if kernel.rank == 0:
            size = struct.pack("<Q" if self.wide else "<I", self.out.size)
            work = -(-self.out.size // codegen.vector(kernel))
            flags = (struct.pack("<I", flag) for flag in (0, 1))
            first, second = (self._launcher(kernel, work, [size, flag]) for flag in flags)
            return first, second
        first = self._strided(self.layout, kernel)
        packs = self.packs()
        return first, first if packs is None else self._strided(packs, self.kernel(packs))

    def _strided(self, layout: Layout, kernel: codegen.Region) -> Launcher:
        numbers = [n for placed in self.placed for n in placed.numbers]
        more = struct.pack(f"<{len(numbers)}{'q' if self.wide else 'i'}", *numbers)
        geometry = packed(layout, self.wide) + more
        return self._launcher(kernel, self.out.size // kernel.count, [geometry])

    def _launcher(self, kernel: codegen.Region, work: int, fixed: list[bytes]) -> Launcher:
        light = (kernel.rank == 0 or kernel.count > 1) and self._light()
        grid = blocks_of(work, self.client.driver.multiprocessors, light)
        given = [o for o in kernel.inputs if o.form != "none"]
        double = (2 if o.form == "value" and o.computed.itemsize == 16 else 1 for o in given)
        drawn = (1 for draw in kernel.draws for _ in range(2 + len(draw.numbers)))
        faults = (3 for placed in self.placed if placed.reading.form is not None)
        widths = [*(1 for _ in kernel.kept), *double, *drawn, *faults]
        text = codegen.source(kernel)
        return Launcher(self.client, text, kernel.name, grid, THREADS, widths, fixed)

    def _light(self) -> bool:
        """Whether the kernel waits for memory: it does little, and finds no places."""
        steps, rest = self.steps, self.placed or self.drawn
        return not rest and len(steps) <= _FEW and all(is_light(s.expr, compute(s)) for s in steps)

    def reads(self) -> list[tuple[int, Callable[[Any], tuple[int, ...]]]]:
        """For each input that is a parameter what makes its slots of a handle."""
        found: list[tuple[int, Callable[[Any], tuple[int, ...]]]] = []
        for i, operand in enumerate(self.kernel(self.layout).inputs):
            if operand.form == "value":
                found.append((i, raw_bits(operand.computed)))
            elif operand.form == "bits":
                found.append((i, functools.partial(_bits_of, operand.dtype)))
            elif operand.form != "none":
                found.append((i, _address))
        return found

    def draws(self) -> list[tuple[tuple[int, ...], Drawing]]:
        """For each step that draws its scalars among the inputs, and how."""
        return [
            (self.region.steps[k].sources[len(drawing.operands) :], drawing)
            for k, drawing in self.drawn.items()
        ]


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of a region's inputs to those of its results."""
    whole = _Whole(client, region)
    run, reads, draws = whole.launchers(), whole.reads(), whole.draws()
    forms = [placed.reading.form for placed in whole.placed]
    told, faults = [form for form in forms if form is not None], client.faults
    # What is read in packs, if anything is: elements that lie side by side.
    aligned = [i for i, spec in enumerate(region.specs) if not spec.weak and spec.size > 1]
    aligned = [i for i in aligned if i not in region.paged]

    def launch(*handles: Any) -> tuple[Any, ...]:
        made = tuple(allocate(client.pool, spec) for spec in region.out)
        values = [h.address for h in made]
        joint = 0
        for address in values:
            joint |= address
        for i, read in reads:
            values += read(handles[i])
        for i in aligned:
            joint |= handles[i].address
        for places, drawing in draws:
            *given, seed, draw = (handles[i] for i in places)
            values += [int(seed) & _WORD, int(draw) & _WORD, *drawing.given(*given)]
        for form in told:
            values += faults.parameters(form)
        run[(joint & 15) == 0](*values)
        return made

    return launch


_WORD = 0xFFFFFFFFFFFFFFFF


def _walked(layout: Layout, n: int) -> Layout:
    """``layout`` with strides in any case: places along axes are made of coordinates."""
    if not layout.is_flat:
        return layout
    forms = tuple("strided" if form == "dense" else form for form in layout.forms)
    strides = tuple((1,) if form == "strided" else () for form in forms)
    return Layout((n,), forms, strides, None)


def _address(handle: Any) -> tuple[int, ...]:
    return (handle.address,)


def _bits_of(dtype: DType, number: Any) -> tuple[int, ...]:
    """``number`` as it lies in memory."""
    return (int.from_bytes(np.asarray(number).astype(dtype.numpy).tobytes(), "little"),)


def _moved(plan: Any, sources: tuple[int, ...]) -> Step:
    """A step that reads, whose result is what it finds."""
    return Step(plan.op.name, "", (), sources, (), plan.out.dtype)


def step_of(plan: Any, sources: tuple[int, ...], drawing: Drawing | None = None) -> Step:
    """The expression of an operator, and what its operands are computed in."""
    op, out = plan.op, plan.out.dtype
    if drawing is not None:
        more = (("u32", "word"), *drawing.numbers)
        return Step(op.name, drawing.expr, drawing.operands, sources, drawing.computed, out, more)
    moves = op.kind in ("cast", "copy")
    wanted = (None,) if moves else op.dtype_of_operands(plan)
    pairs = zip(plan.specs, wanted, strict=True)
    kinds = tuple(compute_of(dtype or spec.dtype) for spec, dtype in pairs)
    expr, names = ("x", ("x",)) if moves else (op.expr, op.args)
    if out.kind == "bool" and not moves:
        expr = compared(expr, names, plan.specs, wanted)
    return Step(op.name, expr, names, sources, kinds, out)
