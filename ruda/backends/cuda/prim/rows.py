"""Row kernels: which class of kernel rows of a given layout need, and their launches."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ruda.backends.cuda.codegen_rows import Input, Output, Program, Rows, source
from ruda.backends.cuda.faults import Form
from ruda.backends.cuda.geometry import collapsed
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, is_absent, spec_of

# Rows that are read again should still be in the L2 cache by then.
_CACHED = 32 << 20
_LONGEST = 1 << 30
# Rows on their way, in shared memory: at most so many, and so many bytes of a multiprocessor.
_MOST_AHEAD, _RING = 4, 96 << 10
# Threads of a block that a long row fills alone, and shared memory that it has beside the ring.
_BLOCK, _BESIDE = 512, 4 << 10
# Threads of the blocks that share a row and how many blocks may, in the order of their speed; and
# the packs that each thread keeps.
_SHARES, _KEPT = ((256, 2), (512, 2), (256, 8), (512, 8)), 8
# Rows that a cluster has by turns: weights are in the first cache for all but the first of them,
# and where a cluster waits, others take over the next ones.
_TURNS = 4
# Multiprocessors that are close enough for a cluster: no device has fewer together.
_CLOSE = 16


class Side(NamedTuple):
    """One operand or output: its role, and its stride along each axis of the rows' shape.

    Rows ``by`` another side begin where its integers say, which may count from the end: ``wraps``.
    """

    name: str
    dtype: DType
    role: str
    strides: Shape
    raw: bool = False
    by: str = ""
    wraps: bool = False


class Work(NamedTuple):
    """Rows of ``shape`` along ``axes``, one kernel over them; scalars in the program's order.

    ``form`` is that of the indices among the inputs, where the program tells of faults.
    """

    client: Any
    shape: Shape
    axes: Shape
    inputs: tuple[Side, ...]
    outs: tuple[Side, ...]
    row_dtype: DType
    compute: DType
    scalars: tuple[float, ...] = ()
    form: Form | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return math.prod(n for i, n in enumerate(self.shape) if i not in self.axes)

    @property
    def length(self) -> int:
        """Elements of a row."""
        return math.prod(self.shape[i] for i in self.axes)


def rows_of(name: str, spec: Spec, shape: Shape) -> Side:
    """An operand of the shape of the rows, or that broadcasts to it."""
    return Side(name, spec.dtype, "rows", _broadcast(spec, shape))


def column_of(name: str, spec: Spec, shape: Shape, axis: int | None = None) -> Side:
    """An operand with an element for each place along ``axis``, or that broadcasts to the rows."""
    if axis is None:
        return Side(name, spec.dtype, "column", _broadcast(spec, shape))
    strides = (spec.strides[0] if i == axis else 0 for i in range(len(shape)))
    return Side(name, spec.dtype, "column", tuple(strides))


def row_of(name: str, spec: Spec, shape: Shape, axes: Shape) -> Side:
    """An operand with an element for each row, of the shape without ``axes`` or with ones there."""
    if spec.ndim == len(shape):
        return Side(name, spec.dtype, "row", _broadcast(spec, shape))
    found = iter(zip(spec.shape, spec.strides, strict=True))
    pairs = [(1, 0) if i in axes else next(found) for i in range(len(shape))]
    return Side(name, spec.dtype, "row", tuple(0 if n == 1 else s for n, s in pairs))


def one_of(name: str, spec: Spec, shape: Shape) -> Side:
    """An operand of one element."""
    return Side(name, spec.dtype, "one", (0,) * len(shape))


def _broadcast(spec: Spec, shape: Shape) -> Shape:
    lead = len(shape) - spec.ndim
    own = (0 if n == 1 else s for n, s in zip(spec.shape, spec.strides, strict=True))
    return (0,) * lead + tuple(own)


class _Layout(NamedTuple):
    """Collapsed sizes and strides of outer and inner axes, per side."""

    outer: Shape
    inner: Shape
    steps: dict[str, tuple[Shape, Shape]]


def _layout(work: Work) -> _Layout:
    sides = [s for s in (*work.inputs, *work.outs) if s.role not in ("one", "value")]
    kept = [i for i in range(len(work.shape)) if i not in work.axes]
    outer, outer_steps = _joined(work.shape, kept, sides)
    inner, inner_steps = _joined(work.shape, sorted(work.axes), sides)
    steps = {s.name: (o, i) for s, o, i in zip(sides, outer_steps, inner_steps, strict=True)}
    return _Layout(outer, inner, steps)


def _joined(shape: Shape, axes: Sequence[int], sides: list[Side]) -> tuple[Shape, list[Shape]]:
    sizes = tuple(shape[i] for i in axes)
    return collapsed(sizes, [tuple(s.strides[i] for i in axes) for s in sides])


def _vector(work: Work, layout: _Layout) -> int:
    """Elements of a pack: 16 bytes of the widest, where all packs begin at whole ones."""
    sizes = [s.dtype.itemsize for s in (*work.inputs, *work.outs) if s.role == "rows"]
    size = max(sizes, default=work.compute.itemsize)
    vec = max(1, 16 // size)
    while vec > 1 and not all(_fits(s, layout, vec) for s in (*work.inputs, *work.outs)):
        vec //= 2
    return vec


def _fits(side: Side, layout: _Layout, vec: int) -> bool:
    if side.role in ("row", "one", "value"):
        return layout.inner[-1] % vec == 0
    outer, inner = layout.steps[side.name]
    if inner[-1] == 0:
        return layout.inner[-1] % vec == 0
    steps = (*outer, *inner[:-1])
    return inner[-1] == 1 and layout.inner[-1] % vec == 0 and all(s % vec == 0 for s in steps)


class Sharing(NamedTuple):
    """How threads share a row."""

    mode: str
    lanes: int
    per: int
    long: bool = False
    cluster: int = 1


def _power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _size(work: Work) -> int:
    """Registers of a value."""
    return work.compute.itemsize // 4


def _held(work: Work, program: Program, vec: int) -> Sharing | None:
    """Threads and packs to keep a row in registers, or None for one that is too long."""
    packs = -(-work.length // vec)
    count = max(1, sum(s.role == "rows" for s in work.inputs))
    # What a thread keeps fits into its registers: 128 for sums, which read one row ahead, else 64.
    most = max(1, (4 if vec > 1 else 16) // (count * _size(work)))
    widest = 1024 // _size(work)
    if program.sums:
        widest = 512
        most = (16 // vec if vec > 1 else 4) * 2 // max(count, 2)
        most = max(1, most // _size(work) ** 2)
    lanes = min(32, _power(packs))
    if packs > lanes * most:
        lanes = max(64, _power(-(-packs // most)))
    per = _power(-(-packs // lanes))
    if lanes > _BLOCK // _size(work) and not program.sums and vec > 1:
        shared = _shared(work, packs, count)
        if shared is not None:
            return shared
        # Blocks that walk over rows pay no more than one such block on a multiprocessor.
        lanes = _BLOCK // _size(work)
        per = _power(-(-packs // lanes))
        return None if per > 2 * most else Sharing("held", lanes, per, long=True)
    if lanes > widest:
        # With sums two blocks have all registers of a multiprocessor: too few to wait for many.
        return _shared(work, packs, count, 2) if program.sums and vec > 1 else None
    return Sharing("held", lanes, per)


def _shared(work: Work, packs: int, count: int, limit: int = 8) -> Sharing | None:
    """How up to ``limit`` blocks of a cluster keep a row together."""
    if not _has_clusters(work.client):
        return None
    kept = max(1, _KEPT // (count * _size(work)))
    for threads, most in _SHARES:
        threads //= _size(work)
        blocks = max(2, _power(-(-packs // (threads * kept))))
        if blocks <= min(most, limit):
            lanes = threads * blocks
            return Sharing("held", lanes, _power(-(-packs // lanes)), cluster=blocks)
    return None


def _has_clusters(client: Any) -> bool:
    """Whether blocks can send into each other's shared memory."""
    found = re.match(r"sm_(\d+)", client.driver.arch)
    return found is not None and int(found[1]) >= 90


def _streamed(work: Work, program: Program, vec: int) -> Sharing:
    packs = -(-work.length // vec)
    count = max(1, sum(s.role == "rows" for s in work.inputs))
    per = max(1, 4 // (count * _size(work)))
    lanes = min(32, _power(packs))
    if packs > lanes * per:
        wide = len(program.passes) > 1 and not program.sums
        most = (1024 if wide else 512) // _size(work)
        lanes = min(most, max(64, _power(-(-packs // (2 * per)))))
    return Sharing("stream", lanes, per)


def _ring(kernel: Rows, long: bool, room: int) -> int:
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
    count = min(_MOST_AHEAD, (room - _BESIDE if long else _RING) // row)
    return count if count > 2 or (long and count == 2) else 0


class Kernel:
    """The launches of one program over one layout; the one without packs is made when needed."""

    def __init__(self, work: Work, held: Program | None, stream: Program) -> None:
        self.work, self.layout = work, _layout(work)
        self.programs = held, stream
        self.vec = _vector(work, self.layout)
        self._made: dict[int, tuple[Launcher, int, Rows]] = {}

    def made(self, vec: int) -> tuple[Launcher, int, Rows]:
        """Launcher, blocks and class of the kernel with packs of ``vec``."""
        found = self._made.get(vec)
        if found is None:
            found = self._made[vec] = self._make(vec)
        return found

    def _make(self, vec: int) -> tuple[Launcher, int, Rows]:
        held, stream = self.programs
        shape = _held(self.work, held, vec) if held is not None else None
        program = stream if shape is None or held is None else held
        shape = shape or _streamed(self.work, program, vec)
        kernel = self.kernel(program, shape, vec)
        blocks = self._blocks(kernel)
        partial = bool(program.sums) and shape.mode == "held"
        count = len(kernel.outs) + len(program.row_outs) + partial + len(kernel.inputs)
        widths = (*(1,) * count, *(3,) * program.faults)
        launcher = Launcher(
            self.work.client,
            source(kernel),
            kernel.name,
            blocks if kernel.cluster == 1 else (blocks, 1, kernel.cluster),
            kernel.threads,
            widths,
            [self.geometry()],
            kernel.shared,
        )
        return launcher, blocks, kernel

    def kernel(self, program: Program, shape: Sharing, vec: int) -> Rows:
        """The class of kernel."""
        work, layout = self.work, self.layout

        def form(side: Side) -> str:
            if vec == 1 or side.role in ("row", "one", "value"):
                return "each"
            return "dense" if layout.steps[side.name][1][-1] else "same"

        made = Rows(
            program,
            tuple(
                Input(s.name, s.dtype, s.role, form(s), s.raw, s.by, s.wraps) for s in work.inputs
            ),
            tuple(Output(s.name, s.dtype) for s in work.outs),
            work.row_dtype,
            work.compute,
            *shape[:3],
            vec,
            len(layout.outer),
            len(layout.inner),
            cluster=shape.cluster,
        )
        return replace(made, ring=_ring(made, shape.long, work.client.driver.shared_memory))

    def _blocks(self, kernel: Rows) -> int:
        work, here = self.work, self.work.client.driver.multiprocessors
        blocks = -(-work.rows // kernel.groups)
        if kernel.cluster > 1:
            return min(blocks, self._clusters(kernel, blocks))
        if kernel.walks:
            return int(min(blocks, here * (8 if kernel.threads <= 128 else 512 // kernel.threads)))
        if kernel.mode == "stream" and len(kernel.program.passes) > 1:
            nbytes = sum(s.dtype.itemsize for s in work.inputs if s.role == "rows") * work.length
            return int(min(blocks, here * max(1, min(2, _CACHED // (max(nbytes, 1) * here)))))
        return min(blocks, 2**31 - 1)

    def _clusters(self, kernel: Rows, rows: int) -> int:
        """As many clusters as run at a time; more where each has but a few rows by turns."""
        blocks = (512 if kernel.program.sums else 1024) // kernel.threads
        near = _CLOSE * blocks // kernel.cluster
        here = max(1, int(self.work.client.driver.multiprocessors) // _CLOSE * near)
        if kernel.program.sums:
            return here
        return max(here, -(-rows // _TURNS) if kernel.of("column") else rows)

    def geometry(self) -> bytes:
        """The struct Geometry."""
        work, layout = self.work, self.layout
        numbers = [work.rows, work.length, *layout.outer, *layout.inner]
        for outer, inner in layout.steps.values():
            numbers += [*outer, *inner]
        packed = struct.pack(f"<{len(numbers)}q", *numbers)
        return packed + struct.pack(f"<{len(work.scalars)}d", *work.scalars)

    def pick(self, addresses: Sequence[int]) -> int:
        """The size of packs that addresses of operands and outputs allow."""
        joint = 0
        for address in addresses:
            joint |= address
        return self.vec if joint & 15 == 0 else 1


class Parts(NamedTuple):
    """A row kernel before it is bound: its programs for rows that are kept and that are read again.

    ``places`` are those of its inputs among the operands of the plan. With ``sums`` the program
    adds up over rows as well, and is the same for both.
    """

    work: Work
    held: Program | None
    stream: Program
    places: tuple[int, ...]
    sums: bool = False


def supported(work: Work) -> bool:
    """Whether rows can be counted as the kernels count them."""
    return 0 < work.length <= _LONGEST and work.compute.is_floating


def bind(
    plan: Any, work: Work, held: Program | None, stream: Program, places: Sequence[int]
) -> Callable[..., Any] | None:
    """The function from handles to outputs; operands ``places`` of the plan are the inputs."""
    if not supported(work):
        return None
    parts = Parts(work, held, stream, tuple(places))
    return _declared(plan, parts, launches(parts, plan.out))


def bind_sums(
    plan: Any, work: Work, program: Program, places: Sequence[int]
) -> Callable[..., Any] | None:
    """As ``bind``, of a program that also adds up over rows; its sums are the last outputs."""
    if not supported(work):
        return None
    parts = Parts(work, program, program, tuple(places), sums=True)
    return _declared(plan, parts, launches(parts, plan.out))


def _declared(plan: Any, parts: Parts, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` from all operands of the plan; it says what it is made of."""
    places, several = parts.places, isinstance(plan.out, tuple)

    def bound(*handles: Any) -> Any:
        outs = run([handles[i].address for i in places])
        return outs if several else outs[0]

    bound.parts = parts  # type: ignore[attr-defined]
    return bound


def launches(parts: Parts, out: Any) -> Callable[[Sequence[int]], tuple[Any, ...]]:
    """The function from addresses of the inputs, in their order, to the outputs."""
    work, client = parts.work, parts.work.client
    specs = out if isinstance(out, tuple) else (out,)
    count = len(work.outs)
    if not work.rows:
        return lambda _: tuple(_zeros(client, spec) for spec in specs)
    if parts.sums:
        summing = Summing(work, parts.stream, parts.stream)
    else:
        kernel = Kernel(work, parts.held, parts.stream)
    values = [i for i, side in enumerate(work.inputs) if side.role == "value"]
    form, faults = work.form, client.faults

    def run(given: Sequence[int]) -> tuple[Any, ...]:
        outs = tuple([allocate(client.pool, spec) for spec in specs])
        written = [handle.address for handle in outs]
        if parts.sums:
            summing(written[:count], outs[count:], given)
            return outs
        read = [a for i, a in enumerate(given) if i not in values] if values else given
        launcher, _, _ = kernel.made(kernel.pick((*read, *written[:count])))
        if form is None:
            launcher(*written, *given)
        else:
            launcher(*written, *given, *faults.parameters(form))
        return outs

    return run


def _zeros(client: Any, spec: Spec) -> Any:
    """Sums over no rows."""
    out = allocate(client.pool, spec)
    client.fill_zero(out.address, spec.nbytes)
    return out


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
        self.rows = Kernel(work, program, alone)
        if _held(work, program, self.rows.vec) is None:
            # Clusters that keep a row have no room for sums: another launch makes them.
            name = f"{program.name}_rows"
            self.rows = Kernel(work, replace(program, name=name, sums=(), gather=""), alone)
        self.made: dict[int, tuple[Any, ...]] = {}

    def __call__(self, out: Sequence[int], sums: Sequence[Any], given: Sequence[int]) -> None:
        """Queue all launches, for addresses of outputs, handles of sums, addresses of operands."""
        sides = self.work.inputs
        read = [a for a, side in zip(given, sides, strict=True) if side.role != "value"]
        vec = self.rows.pick((*read, *out))
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


def given(specs: Sequence[Spec], names: Sequence[str]) -> dict[str, int]:
    """The places of the operands that are given, by name."""
    pairs = zip(names, specs, strict=True)
    return {name: i for i, (name, spec) in enumerate(pairs) if not is_absent(spec)}
