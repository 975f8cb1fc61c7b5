"""What a compiled step takes from the pool: logged, rehearsed, laid out in one piece."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from ruda.backends.cuda import graphs
from ruda.backends.cuda.clock import Clock
from ruda.backends.cuda.launch import collected, spied
from ruda.backends.cuda.memory import (
    Place,
    allocate_piece,
    handle_over,
    piece_class,
    size_class,
)
from ruda.backends.cuda.memory_layout import Layout, Log, Nowhere, Planned, layout
from ruda.backends.cuda.stream_order import touch
from ruda.core.dtypes import uint8
from ruda.core.errors import RudaError
from ruda.core.shapes import extent
from ruda.core.spec import Spec, spec_of


class Footprint(NamedTuple):
    """Bytes: in use now, of slots, of the graph's memory, of outputs, and of the first run."""

    now: int
    slots: int
    piece: int
    outputs: int
    first: int


def _kind(plan: Any) -> Any:
    """What plans with the same kernels have in common."""
    if plan.op.kind != "region":
        return id(plan)
    steps = tuple((id(step.plan), step.sources) for step in plan.steps)
    return steps, plan.specs, plan.kept, plan.paged


class Idle:
    """``real`` for other threads; for this one, it does nothing that touches memory."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if name not in ("fill", "on_device", "to_device"):
            return found
        return found if threading.get_ident() != self.thread else lambda *_: None


def _shared(graph: Any, plan: Layout | None = None) -> Planned | None:
    """The memory of ``graph``, parted as there or by ``plan``; None where that has no room."""
    theirs = graph.arena
    if not isinstance(theirs, Planned):
        return None
    plan = theirs.plan if plan is None else plan
    return Planned(theirs.piece, plan) if plan.total <= theirs.piece.spec.nbytes else None


class Planning:
    """The part of ``CudaClient`` that lays out the memory of compiled steps."""

    pool: Any
    guards: Any
    order: Any
    driver: Any
    staging: Any
    bind: Callable[[Any], Callable[..., Any]]
    synchronize_all: Callable[[], None]
    bind_region: Callable[[Any], Callable[..., Any]]
    _sides: Callable[[], Any]

    spied = staticmethod(spied)

    def lacks_kernels(self, plans: Iterable[Any], made: Sequence[Any]) -> bool:
        """Whether a kernel of ``plans``, or of the launchers ``made``, would have to be compiled.

        Which ones they have shows when they are bound, once for each kind of plan; some show when
        they first run. Where none lacks, they are loaded.
        """
        if not self.driver.lazy:
            return False
        # Libraries multiply, as a rule, and are slow to bind.
        own = (p for p in plans if not p.shares and p.op.bound != "compute")
        kinds = {_kind(plan): plan for plan in own}
        with collected() as found:
            for plan in kinds.values():
                self.bind_anew(plan)
        wanted = [(one.source, one.name) for one in (*found, *made)]
        names: dict[str, dict[str, None]] = {}
        for source, name in wanted:
            names.setdefault(source, {})[name] = None
        # The kernels of one source are on disk together, under the name that was asked for first.
        lacks = self.driver.lacks
        if any(all(lacks(source, name) for name in among) for source, among in names.items()):
            return True
        self.driver.load_all(wanted)
        return False

    def settled(self) -> None:
        """Raise now what earlier work has recorded, and not in a rehearsal."""
        if self.order.capture is None:
            self.synchronize_all()

    def compile_all(self, launchers: Sequence[Any], rehearse: Callable[[], Sequence[Any]]) -> None:
        """Have the kernels of ``launchers`` and of a rehearsal ready, few programs at once.

        What cannot be rehearsed runs all the same, and its kernels are compiled as they come.
        """
        self.settled()
        found = list(launchers)
        with contextlib.suppress(RudaError, *self.driver.errors):
            found += rehearse()
        self.driver.load_all([(one.source, one.name) for one in found])

    collected = staticmethod(collected)

    def clock(self, pieces: int) -> Clock:
        """What measures so many pieces of work."""
        return Clock(self, pieces)

    def bind_anew(self, plan: Any) -> Callable[..., Any]:
        """The function of ``plan`` that keeps no memory for any other use."""
        return (self.bind_region if plan.op.kind == "region" else self.bind)(plan)

    @contextmanager
    def logged(self) -> Iterator[Log]:
        """A log of the memory that the calling thread takes and gives back in the block.

        Operators take what they would take in a capture.
        """
        local, order = self.guards.local, self.order
        before = local.log, order.planned
        local.log, order.planned = Log(), True
        try:
            yield local.log
        finally:
            local.log, order.planned = before

    def rehearse(self, queue: Callable[[], Any]) -> tuple[Log, list[Any]]:
        """What memory ``queue`` would take, and its launchers; nothing runs, and none is taken."""
        nowhere, launchers = Nowhere(), list[Any]()
        self._sides()
        # Should a library not know of rehearsals, a capture keeps its work from running.
        graphs.begin(self, nowhere)
        self.order.rehearsed = True
        self.driver = self.staging.driver = Idle(self.driver)
        try:
            with self.logged() as log, spied(launchers.append, alone=True):
                queue()
        finally:
            self.driver = self.staging.driver = self.driver.real
            self.order.rehearsed = False
            graphs.abandon(self)
            for address in [a for a in self.order.marks if nowhere.owns(a)]:
                del self.order.marks[address]
        return log, launchers

    def over(self, plan: Any, run: Callable[..., Any], target: Any) -> Callable[..., Any]:
        """The operator of ``run`` straight into ``target``, which its first operand is."""
        write, order = run.in_place, self.order  # type: ignore[attr-defined]
        read = [i for i, spec in enumerate(plan.specs[1:]) if not spec.weak]

        def written(_: Any, *others: Any) -> Any:
            touch(order, [others[i] for i in read], (target,))
            write(target.address, target.address, *others)
            return target

        return written

    def lagging(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run``, whose blocks are in use for longer than a log would show.

        It belongs to a branch of the graph that nobody waits for.
        """

        def lags(*handles: Any) -> Any:
            log = self.guards.local.log
            if log is None:
                return run(*handles)
            first = len(log.sizes)
            out = run(*handles)
            for handle in handles:
                block = getattr(getattr(handle, "root", None) or handle, "block", None)
                log.lags(getattr(block, "address", 0))
            # What it made, and what it worked in meanwhile.
            log.all_lag(first)
            return out

        return lags

    @contextmanager
    def inside(self, graph: Any) -> Iterator[None]:
        """What the calling thread makes meanwhile lies in the memory of ``graph``, at its places.

        Of what ``graph`` left there nothing may be needed any more.
        """
        planned = _shared(graph)
        if planned is None:
            yield
            return
        home, local = graphs.Home(self.guards, planned), self.guards.local
        before, local.arena = local.arena, home.memory
        try:
            yield
        finally:
            local.arena = before

    def exact(self) -> AbstractContextManager[None]:
        """Meanwhile no memory is taken beyond what ``footprint`` counts."""
        return self.pool.exact()

    def piece(self: Any, plan: Layout, within: Any = None) -> Planned | None:
        """The memory that ``plan`` wants, None if that is none: that of ``within`` if it can be."""
        if not plan.total:
            return None
        shared = None if within is None else _shared(within, plan)
        if shared is not None:
            return shared
        return Planned(allocate_piece(self.pool, spec_of(self, (plan.total,), uint8)), plan)

    def available(self) -> int:
        """Bytes that the pool could still hand out."""
        pool = self.pool
        free = self.driver.memory()[0]
        if pool.limit is not None:
            free = min(free, pool.limit - pool.reserved)
        return int(free + pool.arena.cached())

    def layout(self, log: Log) -> Layout:
        """Where the blocks of ``log`` lie in one piece of memory."""
        return layout(log)

    def footprint(self, log: Log, slots: Sequence[Spec], outs: Sequence[Spec]) -> Footprint:
        """What a step takes from the pool, in blocks of its classes, as a rehearsal shows it.

        ``slots`` are the specs of its arguments, ``outs`` those of what it returns.
        """
        piece = piece_class(layout(log).total, self.pool.shift)
        sizes = self._classes(slots), piece, self._classes(outs)
        return Footprint(self.pool.used, *sizes, log.peak(self.pool.shift))

    def footprint_now(self, graph: Any, slots: Sequence[Spec], outs: Sequence[Spec]) -> Footprint:
        """The same of a step that has its graph already."""
        arena, copies = graph.arena, self._classes(slots)
        piece = arena.piece.block.size if isinstance(arena, Planned) else 0
        return Footprint(self.pool.used - copies - piece, copies, piece, self._classes(outs), 0)

    def _classes(self, specs: Sequence[Spec]) -> int:
        return sum(size_class(spec.nbytes, self.pool.shift) for spec in specs)

    def unplaced(self, spec: Spec) -> Any:
        """What stands for memory of ``spec`` in a rehearsal."""
        low, _ = extent(spec.shape, spec.strides)
        start = next(Nowhere.tensors)
        return handle_over(Place(start), start - low * spec.dtype.itemsize, spec)
