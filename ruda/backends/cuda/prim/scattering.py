"""A scatter as data: the tensors it is of, where they point, its dimensions collapsed."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ruda.backends.cuda.geometry import collapsed
from ruda.backends.cuda.prim.pointing import Pointing, is_wide
from ruda.core.shapes import Shape, broadcast_strides, contiguous_strides
from ruda.core.spec import Spec


class Work(NamedTuple):
    """One scatter: the output, values and index as specs, where they point, and how they combine.

    ``mode`` is None for put. ``whole`` says that places select whole slices, so that the index is
    the same for all of a place's values. ``dropped`` is an index that is left out.
    """

    client: Any
    op: str
    mode: str | None
    out: Spec
    value: Spec
    pointing: Pointing
    whole: bool
    based: bool
    dropped: int | None = None

    @property
    def index(self) -> Spec:  # type: ignore[override]
        """The spec of the index tensors."""
        return self.pointing.form.index

    @property
    def wide(self) -> bool:
        """Whether offsets need 64 bits."""
        return is_wide(self.out, self.value, self.index)

    @property
    def limit(self) -> int:
        """How many slots there are."""
        return math.prod(self.pointing.lengths) if self.whole else self.out.size

    @property
    def slots(self) -> Shape:
        """What a place on each axis adds to the number of a slot."""
        return contiguous_strides(self.pointing.lengths) if self.whole else self.pointing.steps

    @property
    def line(self) -> Shape:
        """What a coordinate adds to the number of a slot."""
        return tuple(0 for _ in self.pointing.shape) if self.whole else self.pointing.other

    def shown(self) -> Shape:
        """The strides of the values along the shape that is written."""
        if self.value.weak:
            return (0,) * len(self.pointing.shape)
        return broadcast_strides(self.op, self.value.shape, self.value.strides, self.pointing.shape)


class Dims(NamedTuple):
    """The dimensions of a work, collapsed: strides in values, index, output, slots, and numbers."""

    sizes: Shape
    value: Shape
    spot: Shape
    other: Shape
    line: Shape
    number: Shape

    @property
    def place(self) -> int | None:
        """The dimension of places; None where there is one place alone."""
        return next((d for d, k in enumerate(self.number) if k), None)


def dims_of(work: Work) -> Dims:
    p = work.pointing
    own = [work.shown(), p.spot, p.other, work.line, p.number]
    sizes, strides = collapsed(p.shape, own)
    return Dims(sizes, *strides)
