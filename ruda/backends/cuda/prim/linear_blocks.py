"""The gradients of a linear map under cross-entropy, each block of classes from all rows at once.

That of the weight is then one product a block, whose sums are in float32 and rounded once. But what
is known of a row comes from all of its classes: they are gone through twice.

First the logits of a chunk of rows in all classes give losses and log-sum-exps, and the gradients
in the logits of as many blocks of classes as there is memory for are kept. Then each block adds to
the gradient of the hidden states and gives that of its weights. Of the blocks that were not kept
the logits are computed again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.memory import Place
from ruda.backends.cuda.prim import class_gradient
from ruda.backends.cuda.prim.linear_parts import Call, Known, at_of, cut
from ruda.backends.cuda.prim.linear_places import Sizes, places
from ruda.core.dtypes import int64, uint8
from ruda.core.spec import spec_of
from ruda.ops.arith import add, multiply, subtract
from ruda.ops.getitem import getitem
from ruda.tensor.tensor import RudaTensor


class Arranged(Known):
    """What is known of a plan beforehand."""

    def __init__(self, client: Any, plan: Any) -> None:
        super().__init__(client, plan)
        width, wide = self.kind.itemsize, self.wide.itemsize
        total = self.rows * self.high * wide * self.wanted[0]
        self.places = places(Sizes(self.rows, self.high, self.classes, width, wide, total))
        self.gradient = functools.cache(self._gradient)

    def _gradient(self, rows: int, classes: int, step: int) -> Callable[..., None]:
        """``step`` is from row to row of the logits."""
        client = self.client
        logits = spec_of(client, (rows, classes), self.wide, (step, 1))
        beside = [spec_of(client, (rows,), dtype) for dtype in (int64, *(self.wide,) * 4)]
        out = spec_of(client, (rows, classes), self.kind)
        return class_gradient.into(client, (logits, *beside), out)


class Blocks(Call):
    """One call."""

    known: Arranged

    def __init__(self, known: Arranged, handles: Any) -> None:
        super().__init__(known, handles)
        self.places = found = known.places
        _, smoothing, _, _ = known.plan.attrs
        self.share = multiply(self.dy, 1 - smoothing)
        self.flat = multiply(self.dy, smoothing / known.classes)
        # Which class of each block is the target.
        self.own_class = [subtract(self.target, low) for low, _ in found.blocks]
        self.extra = self.room(1, found.extra + found.front, uint8)
        self.total = self.extra.address + found.extra

    def fill(self) -> None:
        """Note losses, and write the gradients."""
        known, found = self.known, self.places
        for start, stop, at in found.chunks:
            self.keep(start, stop, self.extra.address + at)
        slope = self.slope(0, known.rows)
        for i in range(len(found.blocks)):
            if i >= found.kept:
                self.complete(i, slope)
            self.finish(i)
        if known.wanted[0]:
            total = spec_of(self.client, (known.rows, known.high), known.wide)
            write = self.client.writer(self.outs[1].spec, total)
            write(self.outs[1].address, Place(self.total))

    def home(self, block: int) -> int:
        """The address of the gradients in the logits of a block."""
        found, known = self.places, self.known
        if found.beside <= block < found.kept:
            return int(self.outs[1].address)
        if block >= found.inside:
            return int(self.extra.address)
        elements = found.start + known.rows * found.blocks[block][0]
        return int(self.outs[2].address + elements * known.kind.itemsize)

    def slope(self, start: int, stop: int) -> RudaTensor:
        """What the probabilities of some rows are multiplied by; their log-sum-exps are known."""
        rows, z_loss = slice(start, stop), self.known.plan.attrs[2]
        dy = getitem(self.dy, rows)
        if not z_loss:
            return dy
        return add(dy, multiply(multiply(dy, getitem(self.lse, rows)), 2 * z_loss))

    def keep(self, start: int, stop: int, logits: int) -> None:
        """Note the losses of some rows, and keep gradients in their logits."""
        known, found = self.known, self.places
        self.logits(logits, (start, stop), (0, known.classes))
        run = known.losses(stop - start)
        run(at_of(self.loss, start), at_of(self.lse, start), logits, at_of(self.target, start))
        slope = self.slope(start, stop)
        for block in range(found.kept):
            source = logits + found.blocks[block][0] * known.wide.itemsize
            self.descend(block, (start, stop), source, at_of(slope, 0), known.classes)

    def complete(self, block: int, slope: RudaTensor) -> None:
        """Write the gradients in the logits of a block that was not kept."""
        known, (low, end) = self.known, self.places.blocks[block]
        logits = self.extra.address + known.rows * (end - low) * known.kind.itemsize
        logits += -logits % 256
        for i, j in cut(0, known.rows, self.places.again):
            self.logits(logits, (i, j), (low, end))
            self.descend(block, (i, j), logits, at_of(slope, i), end - low)

    def descend(
        self, block: int, rows: tuple[int, int], logits: int, slope: int, step: int
    ) -> None:
        """Write gradients in the logits of some rows, which are ``step`` apart, in a block."""
        (start, stop), (low, end) = rows, self.places.blocks[block]
        out = self.home(block) + start * (end - low) * self.known.kind.itemsize
        run = self.known.gradient(stop - start, end - low, step)
        own, lse = at_of(self.own_class[block], start), at_of(self.lse, start)
        run(out, logits, own, lse, slope, at_of(self.share, start), at_of(self.flat, start))

    def finish(self, block: int) -> None:
        """What follows from the gradients in the logits of all rows in a block of classes."""
        known, (low, end) = self.known, self.places.blocks[block]
        at, n, rows = self.home(block), end - low, known.rows
        if known.wanted[0]:
            own = known.product(self.dense(rows, n), self.part(1, n), known.wide, False, low > 0)
            own(at, self.at(1, low), self.total)
        turned = self.dense(rows, n, turned=True)
        own = known.product(turned, self.part(0, rows), known.kind, False, False)
        own(at, self.x.address, self.outs[2].address + low * known.high * known.kind.itemsize)
        self.sum_bias(at, (rows, n), adds=False)
