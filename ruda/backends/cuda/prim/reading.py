"""Rows that read elements at places of their own, as the step "read at" of a region.

Concatenating, padding and reading where indices point are one thing here: pieces, each with strides
along the axes of the result. Slices, which rolling is put together of, are views already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.codegen_reads import Piece, Read, Walker
from ruda.backends.cuda.faults import Form
from ruda.backends.cuda.prim.pointing import Pointing, along, by_index, refuse_empty, rows
from ruda.core.dtypes import uint8
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of

_POINTING = {"index": by_index, "take_along_axis": along, "embedding": rows}
# A result is put together of so many pieces at most: each is a comparison for each element.
_MOST_PIECES = 4


class Bound(NamedTuple):
    """``low <= place on axis < low + own``."""

    axis: int
    low: int
    own: int


class Source(NamedTuple):
    """One piece: which operand, its strides along the result's axes, the offset of place 0."""

    operand: int
    strides: Shape
    base: int
    bounds: tuple[Bound, ...] = ()
    pointing: Pointing | None = None


class Reading(NamedTuple):
    """How a row reads; ``fill`` is the operand that is the value beside the pieces."""

    sources: tuple[Source, ...]
    fill: int | None = None

    @property
    def form(self) -> Form | None:
        """What the host knows of the indices, if there are any."""
        pointing = self.sources[0].pointing
        return None if pointing is None else pointing.form


def reading_of(plan: Any) -> Reading | None:
    """How the row of ``plan`` reads; None for other rows and for what no region does."""
    find, out = _READINGS.get(plan.op.name), plan.out
    if find is None or out is None or not out.size or not out.contiguous:
        return None
    if any("storage" in (s.dtype.kind, out.dtype.kind) for s in plan.specs):
        return None
    return find(plan)


def _pointed(plan: Any) -> Reading | None:
    x, index = plan.specs
    if x.weak or index.weak or plan.out.dtype is not x.dtype:
        return None
    axes = (0,) if plan.op.name == "embedding" else plan.attrs[0]
    pointing = _POINTING[plan.op.name](plan.op.name, x.shape, x.strides, index, axes)
    if refuse_empty(pointing) is not None or pointing.shape != plan.out.shape:
        return None
    return Reading((Source(0, pointing.other, 0, (), pointing),))


def _padded(plan: Any) -> Reading | None:
    (x, value), (widths,) = plan.specs, plan.attrs
    if not value.weak or plan.out.dtype.itemsize > 8 or not x.size:
        return None
    bounds = tuple(
        Bound(axis, low, n)
        for axis, (n, (low, high)) in enumerate(zip(x.shape, widths, strict=True))
        if low or high
    )
    base = -sum(bound.low * x.strides[bound.axis] for bound in bounds)
    return Reading((Source(0, x.strides, base, bounds),), 1) if bounds else None


def _joined(plan: Any) -> Reading | None:
    (axis,), start, sources = plan.attrs, 0, []
    for i, spec in enumerate(plan.specs):
        own = spec.shape[axis]
        if spec.size:
            base = -start * spec.strides[axis]
            sources.append(Source(i, spec.strides, base, (Bound(axis, start, own),)))
        start += own
    if not 2 <= len(sources) <= _MOST_PIECES:
        return None
    return Reading(tuple(sources))


_READINGS: dict[str, Callable[[Any], Reading | None]] = {
    **dict.fromkeys(_POINTING, _pointed),
    "pad_constant": _padded,
    "concat": _joined,
}


class Walks:
    """The walkers of all readings of a region: specs that are as large as the result."""

    def __init__(self, client: Any, shape: Shape) -> None:
        self.client, self.shape = client, shape
        self.specs: list[Spec] = []
        # Of what is read there, which has to lie in whole packs; 1 for places alone.
        self.sizes: list[int] = []

    def number(self, strides: Shape, size: int = 1) -> int:
        """The walker with these strides."""
        spec = spec_of(self.client, self.shape, uint8, strides)
        for k, known in enumerate(self.specs):
            if known is spec and self.sizes[k] == size:
                return k
        self.specs.append(spec)
        self.sizes.append(size)
        return len(self.specs) - 1


class Placed:
    """A reading in a region: its walkers, and the numbers that its pieces take, in order."""

    def __init__(self, walks: Walks, reading: Reading, step: int, plan: Any) -> None:
        self.reading, self.step, self.plan = reading, step, plan
        self.at: list[tuple[int, tuple[int, ...], int | None]] = []
        self.numbers: list[int] = []
        # What has to be whole packs, as far as neighbours along the last axis are read together.
        self.whole: list[int] = []
        self.by_elements = False
        for source in reading.sources:
            self._place(walks, source)

    def _place(self, walks: Walks, source: Source) -> None:
        rank, pointing = len(walks.shape), source.pointing
        at = walks.number(source.strides, self.plan.specs[source.operand].dtype.itemsize)
        units = (tuple(int(i == b.axis) for i in range(rank)) for b in source.bounds)
        bounds = tuple(walks.number(unit) for unit in units)
        spot = None if pointing is None else walks.number(pointing.spot)
        self.at.append((at, bounds, spot))
        self.numbers.append(source.base)
        for bound in source.bounds:
            self.numbers += [bound.low, bound.own]
            if bound.axis == rank - 1:
                self.whole += [bound.low, bound.own]
        self.whole.append(source.base)
        if pointing is not None:
            self.numbers += [pointing.apart, *pointing.lengths, *pointing.steps]
            self.whole += pointing.steps
            shown = [s for s, n in zip(pointing.spot, walks.shape, strict=True) if n > 1]
            self.by_elements |= bool(shown) and shown[-1] != 0

    def read(self, sources: tuple[int, ...], walkers: tuple[Walker, ...]) -> Read:
        """The class of this reading; ``sources`` are the inputs of the region it reads."""
        pieces = []
        for source, (at, bounds, spot) in zip(self.reading.sources, self.at, strict=True):
            own = self.plan.specs[source.operand].dtype
            piece = Piece(
                f"i{sources[source.operand]}",
                own,
                walkers[at],
                tuple(walkers[b] for b in bounds),
            )
            if source.pointing is not None and spot is not None:
                form = source.pointing.form
                piece = Piece(
                    piece.data,
                    own,
                    walkers[at],
                    (),
                    f"i{sources[1]}",
                    walkers[spot],
                    len(source.pointing.lengths),
                    form.wraps,
                )
            pieces.append(piece)
        fill = self.reading.fill
        return Read(self.step, tuple(pieces), "" if fill is None else f"i{sources[fill]}")
