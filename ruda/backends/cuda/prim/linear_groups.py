"""The gradients of a linear map under cross-entropy, each group of rows added to the weight's.

Each product runs once. Logits are in float32 for a chunk of rows at a time, until one kernel has
read them and written their gradient, rounded once. The weight's gradient holds what groups before
have given; in a half type it is rounded once a group.
"""

from __future__ import annotations

from ruda.backends.cuda.prim.linear_parts import Call, at_of, cut, fitting
from ruda.core.spec import Spec

# Bytes: gradients in the logits of a group, and the logits of a chunk.
_GROUP, _CHUNK = 288 << 20, 192 << 20


def is_one(hidden: Spec, weight: Spec) -> bool:
    """Whether there is one group, so that nothing is added."""
    return hidden.shape[0] <= fitting(_GROUP, weight.shape[0], hidden.dtype.itemsize)


class Groups(Call):
    """One call."""

    def fill(self) -> None:
        """Note losses, and write the gradients."""
        known = self.known
        rows, classes, width = known.rows, known.classes, known.kind.itemsize
        count = min(fitting(_GROUP, classes, width), rows)
        step = min(fitting(_CHUNK, classes, known.wide.itemsize), count)
        room, front = self.room(count, classes, known.kind), self.room(step, classes, known.wide)
        for start, stop in cut(0, rows, count):
            for i, j in cut(start, stop, step):
                self.logits(front.address, (i, j), (0, classes))
                self.descend(room.address + (i - start) * classes * width, front.address, i, j)
            self.multiply(room.address, start, stop)
            self.sum_bias(room.address, stop - start, classes, adds=start > 0)

    def descend(self, out: int, logits: int, start: int, stop: int) -> None:
        """Note the losses of some rows, and write the gradients in their logits."""
        run = self.known.losses(stop - start, True)
        found = at_of(self.loss, start), at_of(self.lse, start), at_of(self.dy, start)
        run(out, *found, logits, at_of(self.target, start))

    def multiply(self, at: int, start: int, stop: int) -> None:
        """What follows from the gradients in the logits of a group."""
        known, n, classes = self.known, stop - start, self.known.classes
        if known.wanted[0]:
            own = known.product(
                self.dense(n, classes), self.part(1, classes), known.kind, False, False
            )
            step = start * known.high * known.kind.itemsize
            own(at, self.w.address, self.outs[1].address + step)
        if known.wanted[1]:
            turned = self.dense(n, classes, turned=True)
            own = known.product(turned, self.part(0, n), known.kind, False, start > 0)
            own(at, self.at(0, start), self.outs[2].address)
