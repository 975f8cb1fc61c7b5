"""The gradients of a linear map under cross-entropy, each group of rows added to the weight's.

Each product runs once. Logits are in float32 until one kernel has read them and written their
gradient, rounded once. The weight's gradient holds what groups before have given; in a half type it
is rounded once a group.

Where the kernel keeps a row, the gradient lies over the logits that it comes from, in the first
half of each row for a half type. While nothing is in the weight's gradient yet, its memory holds
the logits of the first group, whose gradients lie densely: it may be up to twice as large. Where
rows are too long to be kept, a group's gradients are beside the logits of a chunk.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ruda.backends.cuda.prim.linear_parts import Call, Known, at_of, cut, fitting
from ruda.core.dtypes import uint8
from ruda.core.spec import spec_of

# Bytes for the logits of a group and their gradients; the part of a chunk of logits beside these.
_ROOM, _CHUNK = 498 << 20, 0.4
# Rows of a product: of fewer it is slow.
_FEWEST = 512


class Group(NamedTuple):
    """Rows of a group, how many logits are there at a time, and where.

    They lie where their gradient does ("over"), in the gradient of the weight, or beside.
    """

    start: int
    stop: int
    chunk: int
    place: Literal["over", "weight", "beside"]


def _even(rows: int, most: int, place: Literal["over", "beside"], chunk: int = 0) -> list[Group]:
    """Groups of up to ``most`` rows that are alike."""
    size = -(-rows // -(-rows // most))
    size = min(most, -(-size // 8) * 8)
    return [Group(i, j, min(j - i, chunk or j - i), place) for i, j in cut(0, rows, size)]


class Grouped(Known):
    """What is known of a plan beforehand."""

    def __init__(self, client: Any, plan: Any) -> None:
        super().__init__(client, plan)
        one = spec_of(client, (1, self.classes), self.kind)
        self.groups = self._groups(self.losses(1, one).keeps)
        # Elements from row to row of a gradient that lies over logits.
        self.step = self.classes * self.wide.itemsize // self.kind.itemsize

    @property
    def is_one(self) -> bool:
        """Whether there is one group, so that nothing is added."""
        return len(self.groups) == 1

    def _groups(self, over: bool) -> list[Group]:
        rows, classes, wide = self.rows, self.classes, self.wide.itemsize
        width = self.kind.itemsize
        if not over:
            chunk = fitting(int(_ROOM * _CHUNK), classes, wide)
            most = fitting(int(_ROOM * (1 - _CHUNK)), classes, width)
            return _even(rows, most, "beside", chunk)
        most = max(1, _ROOM // (classes * wide))
        most -= most % 8 if most > 8 else 0
        # As many rows of logits are as large as the gradient of the weight.
        borrowed = self.high * width // wide
        if rows <= most or not self.wanted[1] or borrowed < _FEWEST or width == wide:
            return _even(rows, most, "over")
        others = max(0, -(-rows // most) - wide // width)
        first = rows - others * most
        rest = [Group(i, j, most, "over") for i, j in cut(first, rows, most)]
        return [Group(0, first, min(first, borrowed), "weight"), *rest]

    def nbytes(self, place: str) -> int:
        """What is needed for the logits that lie beside, or else for those over and gradients."""
        if place == "beside":
            rows = [g.chunk for g in self.groups if g.place == place]
            return max(rows, default=0) * self.classes * self.wide.itemsize
        row = {"over": self.step, "weight": self.classes, "beside": self.classes}
        elements = max((g.stop - g.start) * row[g.place] for g in self.groups)
        return elements * self.kind.itemsize


class Groups(Call):
    """One call."""

    known: Grouped

    def fill(self) -> None:
        """Note losses, and write the gradients."""
        known, width = self.known, self.known.kind.itemsize
        room, beside = (self.room(1, known.nbytes(p), uint8) for p in ("over", "beside"))
        logits = {"over": room, "weight": self.outs[2], "beside": beside}
        for start, stop, chunk, place in known.groups:
            step = known.step if place == "over" else known.classes
            for i, j in cut(start, stop, chunk):
                out = room.address + (i - start) * step * width
                self.descend(out, logits[place].address, (i, j), step, place == "over")
            self.multiply(room.address, start, stop, step)
            self.sum_bias(room.address, (stop - start, known.classes), start > 0, step)

    def descend(self, out: int, logits: int, rows: tuple[int, int], step: int, over: bool) -> None:
        """Note the losses of some rows, and write the gradients in their logits."""
        (start, stop), classes = rows, self.known.classes
        self.logits(logits, rows, (0, classes))
        run = self.known.losses(stop - start, self.dense(stop - start, classes, step=step), over)
        found = (at_of(t, start) for t in (self.loss, self.lse, self.dy))
        run(out, *found, logits, at_of(self.target, start))

    def multiply(self, at: int, start: int, stop: int, step: int) -> None:
        """What follows from the gradients in the logits of a group."""
        known, n, classes = self.known, stop - start, self.known.classes
        if known.wanted[0]:
            dx, w = self.dense(n, classes, step=step), self.part(1, classes)
            own = known.product(dx, w, known.kind, False, False)
            first = start * known.high * known.kind.itemsize
            own(at, self.w.address, self.outs[1].address + first)
        if known.wanted[1]:
            turned = self.dense(n, classes, turned=True, step=step)
            own = known.product(turned, self.part(0, n), known.kind, False, start > 0)
            own(at, self.at(0, start), self.outs[2].address)
