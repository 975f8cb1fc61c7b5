"""What a client offers compiled steps: regions as kernels, slots and pages, a capture."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ruda.backends.cuda import graphs
from ruda.backends.cuda.blas import gelu_ends, gemm, small_region
from ruda.backends.cuda.donation import donating
from ruda.backends.cuda.faults import traced
from ruda.backends.cuda.inlets import Inlet, suits
from ruda.backends.cuda.inlets import inlet as inlet_of
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import Place, ViewHandle, allocate, handle_over
from ruda.backends.cuda.memory_layout import Layout
from ruda.backends.cuda.memory_planning import Planning
from ruda.backends.cuda.nvtx import ranges
from ruda.backends.cuda.prim import (
    attention,
    down_region,
    fold_region,
    placed,
    region,
    replacing,
    row_region,
    sibling_region,
)
from ruda.backends.cuda.runs import Runs
from ruda.backends.cuda.stream_order import StreamState, touch
from ruda.core.dtypes import float64, uint8, uint64
from ruda.core.shapes import extent
from ruda.core.spec import Spec, is_absent, spec_of

# A launch has room for 4 KiB of parameters.
_PART = 256


class Slot:
    """A place of 8 bytes in a page, as operators see it.

    As an integer it is its address with a mark: kernels that draw random numbers know it by that.
    """

    __slots__ = ("address", "block")

    root = None

    def __init__(self, address: int, block: Any) -> None:
        self.address = address
        self.block = block

    def __int__(self) -> int:
        return self.address | 1 << 63


class Page:
    """Python scalars that a graph reads from memory: integers and doubles, 8 bytes each.

    ``store`` passes them by value to a small kernel, so no replay sees those of the next one.
    """

    def __init__(self, client: Any, count: int) -> None:
        self.client = client
        self.memory = allocate(client.pool, spec_of(client, (count,), uint64))
        block, start = self.memory.block, self.memory.address
        self.slots = [Slot(start + 8 * i, block) for i in range(count)]
        sizes = [min(_PART, count - start) for start in range(0, count, _PART)]
        self.launchers = [_store(client, size) for size in sizes]

    def declare(self) -> None:
        """What is captured reads the page: the graph keeps it, and replays elsewhere wait."""
        touch(self.client.order, (self.memory,), ())

    def store(self, numbers: Sequence[Any]) -> None:
        """Queue the numbers of the next replay."""
        if self.client.guarded:
            touch(self.client.order, (), (self.memory,))
        bits = self.bits(numbers)
        for i, launch in enumerate(self.launchers):
            part = bits[i * _PART : (i + 1) * _PART]
            room = (0,) * (launch.room - len(part))
            launch(self.slots[i * _PART].address, len(part), *part, *room)

    @staticmethod
    def bits(numbers: Sequence[Any]) -> list[int]:
        """Each of ``numbers`` as the 8 bytes that operators read."""
        return [_bits(number) for number in numbers]


class _Store(Launcher):
    __slots__ = ("room",)

    room: int


def _store(client: Any, count: int) -> _Store:
    """The launcher of the kernel that stores up to the next power of two of numbers."""
    room = 1 << (count - 1).bit_length()
    name = f"store_numbers_{room}"
    values = ", ".join(f"u64 v{i}" for i in range(room))
    lines = "\n".join(f"    if ({i} < n) page[{i}] = v{i};" for i in range(room))
    text = (
        '#include "ruda/types.cuh"\n'
        "// One thread: n numbers, passed by value, into the page.\n"
        f'extern "C" __global__ void __launch_bounds__(1) {name}(u64* page, u64 n, {values}) {{\n'
        f"{lines}\n}}\n"
    )
    made = _Store(client, text, name, 1, 1, (1,) * (room + 2))
    made.room = room
    return made


def _bits(number: Any) -> int:
    if number.__class__ is float:
        return int.from_bytes(struct.pack("<d", number), "little")
    return int(number) & 0xFFFFFFFFFFFFFFFF


class Step(NamedTuple):
    """An operator of a region, and where its operands come from."""

    plan: Any
    sources: tuple[int, ...]


class Region(NamedTuple):
    """What ``region.bind`` takes."""

    steps: tuple[Step, ...]
    specs: tuple[Spec, ...]
    kept: tuple[int, ...]
    paged: tuple[int, ...]

    @property
    def out(self) -> tuple[Spec, ...]:
        """The specs of the results."""
        outs = [spec for step in self.steps for spec in _several(step.plan.out)]
        return tuple(outs[k] for k in self.kept)


def _several(out: Any) -> tuple[Spec, ...]:
    return out if out.__class__ is tuple else (out,)


class PagedPlan(NamedTuple):
    """A plan whose scalars became tensors without axes."""

    op: Any
    specs: tuple[Spec, ...]
    attrs: tuple[Any, ...]
    out: Any


class Steps(Planning):
    """The part of ``CudaClient`` that compiled steps use."""

    pool: Any
    guards: Any
    now: Any
    driver: Any
    order: Any
    faults: Any
    into: Any
    blocking: bool
    guarded: bool
    blocked: Callable[[Any, Callable[..., Any]], Callable[..., Any]]
    staging: Any
    # The streams of the branches that a graph has besides its main one.
    sides: tuple[StreamState, ...] = ()
    # While a step is captured: whether its second branch may be used, what is sent before it runs.
    branching = False
    first: list[tuple[Any, Any]]

    def fuses(self, plan: Any) -> bool:
        """Whether ``plan`` can be a part of a region that runs as one kernel."""
        return region.joins(plan)

    def leads(self, plan: Any) -> bool:
        """Whether the elementwise kernel that reads the result of ``plan`` can make it itself."""
        return region.leads(plan)

    def bind_region(self, whole: Any) -> Callable[..., tuple[Any, ...]]:
        """The function that runs a region of a compiled step."""
        self.order.current()
        run = self._bound_region(whole)
        return self.blocked(whole, run) if self.blocking else run

    def _bound_region(self, whole: Any) -> Callable[..., tuple[Any, ...]]:
        if small_region.is_product(self, whole):
            return small_region.bind(self, whole)
        if gelu_ends.is_ended(whole):
            return gelu_ends.bind(self, whole)
        if whole.steps[0].plan.op.name == "linear":
            run = gemm.bind_linear_relu(self, whole.steps[0].plan)
            assert run is not None
            return lambda *handles: (run(*handles),)
        if placed.is_placed(whole):
            return placed.bind(self, whole)  # type: ignore[return-value]
        if sibling_region.are_siblings(whole):
            return sibling_region.bind(self, whole)
        if row_region.has_rows(whole):
            return row_region.bind(self, whole)
        if not fold_region.has_folds(whole):
            return region.bind(self, whole)
        return (down_region if down_region.folds_down(whole) else fold_region).bind(self, whole)

    def places_results(self, plan: Any) -> bool:
        """Whether the kernel of ``plan`` can write its results where others want them."""
        return placed.takes(self, plan)

    def joins_siblings(self, plan: Any) -> bool:
        """Whether ``plan`` can share a launch with others of its row and dtypes."""
        return sibling_region.joins(plan)

    def ends_steps(self, plan: Any) -> bool:
        """Whether ``plan`` is a product that may go on with its result."""
        return small_region.is_core(self, plan)

    def ends_in_step(self, plan: Any, step: Any) -> bool:
        """Whether the kernel of the product ``plan`` can do ``step`` to its result."""
        return small_region.takes(plan, step)

    def ends_in_relu(self, plan: Any) -> bool:
        """Whether one call does the product ``plan`` and a relu of its result."""
        return gemm.bind_linear_relu(self, plan) is not None

    def ends_in_gelu(self, plan: Any, step: Any, keeps: bool) -> bool:
        """Whether one call does the product ``plan`` and ``step``, a gelu or its gradient."""
        return gelu_ends.joins(self, plan, step, keeps)

    def rows_of(self, plan: Any) -> Any:
        """What a compiled step may join to ``plan``, a kernel over rows; None for all others."""
        return row_region.facts(plan)

    def joins_rows(self, plan: Any, step: Any) -> bool:
        """Whether the kernel of ``plan`` can do ``step`` to elements as well."""
        return row_region.takes(plan, step)

    def folds_of(self, plan: Any) -> Any:
        """What a compiled step may join to the reduction ``plan``; None where that is not good."""
        return fold_region.facts(plan) or down_region.facts(plan)

    def joins_folds(self, step: Any, facts: Any) -> bool:
        """Whether a kernel with reductions that ``facts`` tell of can do ``step``."""
        return fold_region.takes(step, facts)

    def replaces(self, plan: Any) -> tuple[int, ...]:
        """The operands of ``plan`` where its kernel may write a result of as many bytes."""
        return replacing.places(plan)

    def donating(self, run: Callable[..., Any], given: Sequence[int]) -> Callable[..., Any]:
        """``run``, whose results may have the memory of the operands at ``given``."""
        return donating(self, run, given)

    def page(self, count: int) -> Page:
        """Room for ``count`` Python scalars."""
        return Page(self, count)

    def inlet(self, slots: Sequence[Any], page: Page | None) -> Inlet | None:
        """One launch for arguments that come to ``slots`` and for ``page``; None for one thing."""
        return inlet_of(self, slots, page, 0 if page is None else len(page.slots))

    def brings(self, spec: Spec) -> bool:
        """Whether such an argument is copied by that launch."""
        return suits(spec)

    def _draws(self, plan: Any, places: tuple[int, ...]) -> bool:
        """Whether the scalars are a seed and a draw number that a kernel finds in a page itself."""
        names = tuple(plan.op.args[i] for i in places)
        if names != ("seed", "draw"):
            return False
        name, specs = plan.op.name, plan.specs
        if name.startswith("attention"):
            operands = specs if name == "attention" else (*specs[2:5], *specs[7:])
            biased = name != "attention" and not is_absent(operands[4])
            return not biased and attention.lack(self, operands, plan.attrs) is None
        return plan.op.kind == "random" or (name == "dropout" and specs[0].contiguous)

    def slot(self, spec: Spec) -> Any:
        """Memory of its own that ``spec`` shows, to copy arguments into."""
        if spec.contiguous:
            return allocate(self.pool, spec)
        low, high = extent(spec.shape, spec.strides)
        size = spec.dtype.itemsize
        whole = allocate(self.pool, spec_of(self, ((high - low) * size,), uint8))  # type: ignore[arg-type]
        return ViewHandle(whole.address - low * size, spec, whole)

    def beheld(self, handle: Any, spec: Spec) -> Any:
        """What stands for ``handle`` in a graph that is not to keep its memory."""
        block = (handle.root or handle).block
        return handle_over(Place(block.address), handle.address, spec)

    def capture(
        self, queue: Callable[[], Any], plan: Layout | None = None, within: Any = None
    ) -> tuple[Any, Any]:
        """The graph of what ``queue`` queues, which does not run now, and what it returned.

        Its memory lies as ``plan`` says, in one piece: that of ``within``, a graph that never runs
        at the same time, if there is room.
        """
        guards = self.guards
        arena = graphs.Home(guards, None if plan is None else self.piece(plan, within))
        # Known before the capture begins, it has nothing to wait for inside it.
        self._sides()
        graphs.begin(self, arena.memory)
        # A second branch may use what the first gives back, and the other way round.
        ordered, guards.ordered = guards.ordered, True
        self.branching, self.first = True, []
        try:
            found = queue()
        except BaseException:
            self.branching, guards.ordered = False, ordered
            graphs.abandon(self)
            raise
        self.branching, guards.ordered = False, ordered
        graph = graphs.end(self)
        for target, array in self.first:
            self.staging.send(target.address, array, self.now.stream)
        # Its intermediates lie there: nobody else may have that memory before the graph is gone.
        graph.home = arena
        return graph, found

    def _sides(self) -> tuple[StreamState, ...]:
        """The streams that further branches of a graph are recorded from."""
        if not self.sides:
            self.sides = self.order.open(0), self.order.open(0)
        return self.sides

    def beside(self, run: Callable[..., Any], branch: int = 0) -> Callable[..., Any]:
        """``run`` in a second branch of the graph that is being captured, or a third one."""
        side, now, order = self._sides()[branch], self.now, self.order

        def apart(*handles: Any) -> Any:
            if order.capture is None:
                # The first run, which is to show what the graph will hold.
                return run(*handles)
            order.capture.enters(side)
            outer, now.stream = now.stream, side.ptr
            try:
                return run(*handles)
            finally:
                now.stream = outer

        return apart

    def later(self, queue: Callable[[], None], reads: Sequence[Any], writes: Sequence[Any]) -> None:
        """Queue what nobody waits for soon: in a third branch, where a step is captured.

        Such kernels are short: behind the products of the second branch they would hold these up.
        ``reads`` and ``writes`` are the handles that ``queue`` is about.
        """
        if self.branching:

            def apart() -> None:
                touch(self.order, reads, writes)
                queue()

            self.beside(apart, 1)()
            return
        queue()
        log = self.guards.local.log if self.pool.special is not None else None
        if log is not None:
            for handle in (*reads, *writes):
                log.lags(handle.block.address)

    def counted(self) -> Runs:
        """What counts the runs of one step, so that faults say in which."""
        return Runs(self.faults.waits)

    def ranged(self, instruction: Any, run: Callable[..., Any], runs: Any) -> Callable[..., Any]:
        """``run`` in a range for profilers, while these are on; its faults name line and run.

        ``runs`` counts the runs of the step.
        """
        line = instruction.line
        return traced(line, runs, ranges.traced(self.driver, instruction.op, line.place, run))

    def watched(self, plan: Any, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run`` such that a capture, and other streams, know what it touches."""
        return self.order.guarded(self, plan, run)

    def paged(self, plan: Any, places: tuple[int, ...]) -> Callable[..., Any] | None:
        """``plan`` with the scalars at ``places`` in a page; None where no kernel can do that."""
        if plan.op.kind == "region":
            whole = Region(plan.steps, plan.specs, plan.kept, places)
            return self.bind_region(whole)
        if self._draws(plan, places):
            return plan.run
        if not region.fuses(plan):
            return None
        alone = Region((Step(plan, tuple(range(len(plan.specs)))),), plan.specs, (0,), places)
        run = region.bind(self, alone)
        return lambda *handles: run(*handles)[0]

    def paged_update(self, plan: Any, places: tuple[int, ...]) -> Any:
        """``plan`` of an optimizer's step, its scalars at ``places`` in a page; None if not so."""
        double = spec_of(self, (), float64)  # type: ignore[arg-type]
        specs = tuple(double if i in places else s for i, s in enumerate(plan.specs))
        made = PagedPlan(plan.op, specs, plan.attrs, plan.out)
        return None if self.into(made) is None else made

    def copied(self, handle: Any, spec: Spec) -> Any:
        """A fresh base handle with what ``handle``, which is dense, holds now."""
        out = allocate(self.pool, spec)
        if spec.nbytes:
            stream = self.now.stream
            self.driver.on_device(out.address, handle.address, spec.nbytes, stream)
        return out

    def room(self, spec: Spec) -> Any:
        """A fresh base handle, to ``carry`` something to."""
        return allocate(self.pool, spec)

    def carry(self, handle: Any, room: Any) -> None:
        """Copy what ``handle``, which is dense, holds now to ``room``."""
        if room.spec.nbytes:
            stream = self.now.stream
            self.driver.on_device(room.address, handle.address, room.spec.nbytes, stream)
            if self.guarded:
                # The epoch in which it was made may be over.
                self.order.wrote(room, self.order.current())

    def shown(self, root: Any, spec: Spec, view: Any, base: Any) -> Any:
        """A view of ``root`` that lies in it as ``view`` lies in ``base``."""
        whole = root if root.root is None else root.root
        return ViewHandle(root.address + view.address - base.address, spec, whole)
