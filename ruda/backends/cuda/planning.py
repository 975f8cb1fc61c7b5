"""What a compiled step takes from the pool: taken down, rehearsed, laid out in one piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ruda.backends.cuda import graphs
from ruda.backends.cuda.launch import spied
from ruda.backends.cuda.layout import Layout, Log, Nowhere, Planned, layout
from ruda.backends.cuda.memory import allocate_piece, handle_over, piece_class, size_class
from ruda.core.dtypes import uint8
from ruda.core.shapes import extent
from ruda.core.spec import Spec, spec_of


class _Place(NamedTuple):
    """What stands for a block that nobody made."""

    address: int


class Footprint(NamedTuple):
    """Bytes: in use now, of slots, of the graph's memory, of outputs, and of the first run."""

    now: int
    slots: int
    piece: int
    outputs: int
    first: int


class Planning:
    """The part of ``CudaClient`` that lays out the memory of compiled steps."""

    pool: Any
    guards: Any
    order: Any
    _side: Callable[[], Any]

    spied = staticmethod(spied)

    @contextmanager
    def taken_down(self) -> Iterator[Log]:
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

    def rehearse(self, queue: Callable[[], Any]) -> Log:
        """What memory ``queue`` would take; nothing runs, and none is taken."""
        nowhere = Nowhere()
        self._side()
        graphs.begin(self, nowhere)
        try:
            with self.taken_down() as log:
                queue()
        finally:
            graphs.abandon(self)
            for address in [a for a in self.order.marks if nowhere.owns(a)]:
                del self.order.marks[address]
        return log

    def lagging(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run``, whose blocks are in use for longer than a log would show.

        It belongs to a branch of the graph that nobody waits for.
        """

        def lags(*handles: Any) -> Any:
            out = run(*handles)
            log = self.guards.local.log
            if log is not None:
                made = out if isinstance(out, tuple) else (out,)
                for handle in (*handles, *made):
                    block = getattr(getattr(handle, "root", None) or handle, "block", None)
                    log.lags(getattr(block, "address", 0))
            return out

        return lags

    def piece(self, plan: Layout) -> Planned | None:
        """The memory that ``plan`` wants, None if that is none."""
        if not plan.total:
            return None
        return Planned(allocate_piece(self.pool, spec_of(self, (plan.total,), uint8)), plan)

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
        return handle_over(_Place(start), start - low * spec.dtype.itemsize, spec)
