"""The gradients of a linear map under cross-entropy, each block of classes from all rows at once.

That of the weight is then one product a block, whose sums are in float32 and rounded once. But what
is known of a row comes from all of its classes: they are gone through twice.

First the logits of a chunk of rows give losses and log-sum-exps, a part of the classes at a time,
and the gradients in the logits of as many blocks of classes as there is memory for are kept. Then
each block adds to the gradient of the hidden states and gives that of its weights. Of the blocks
that were not kept the logits are computed again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.memory import Place
from ruda.backends.cuda.prim import class_gradient, linear_statistics
from ruda.backends.cuda.prim.linear_chunks import Chunk, chunks, home
from ruda.backends.cuda.prim.linear_parts import Call, Known, at_of, cut
from ruda.backends.cuda.prim.linear_places import Sizes, places
from ruda.core.dtypes import int64, uint8
from ruda.core.spec import spec_of
from ruda.ops.arith import multiply, subtract


class Arranged(Known):
    """What is known of a plan beforehand."""

    def __init__(self, client: Any, plan: Any) -> None:
        super().__init__(client, plan)
        width, wide = self.kind.itemsize, self.wide.itemsize
        total = self.rows * self.high * wide * self.wanted[0]
        self.sizes = Sizes(self.rows, self.high, self.classes, width, wide, total)
        self.places = places(self.sizes)
        self.chunks = list(chunks(self.sizes, self.places))
        # Numbers of each row of a part: with smoothing also the sum of its logits.
        self.kinds = 3 if plan.attrs[1] else 2
        self.parts = max(len(chunk.parts) for chunk in self.chunks)
        self.gradient = functools.cache(self._gradient)
        self.statistics = functools.cache(self._statistics)
        self.joined = functools.cache(self._joined)

    def _gradient(self, rows: int, classes: int, step: int) -> Callable[..., None]:
        """``step`` is from row to row of the logits."""
        client = self.client
        logits = spec_of(client, (rows, classes), self.wide, (step, 1))
        beside = [spec_of(client, (rows,), dtype) for dtype in (int64, *(self.wide,) * 4)]
        out = spec_of(client, (rows, classes), self.kind)
        return class_gradient.into(client, (logits, *beside), out)

    def _statistics(self, rows: int, classes: int, low: int) -> Callable[..., None]:
        """Of logits in ``classes`` from class ``low`` on."""
        logits = spec_of(self.client, (rows, classes), self.wide)
        smooth = self.kinds > 2
        return linear_statistics.part(self.client, logits, low, smooth, self.kind.is_half)

    def _joined(self, rows: int, parts: int) -> Callable[..., None]:
        """Of all parts of the classes."""
        shape, attrs = (rows, parts), self.plan.attrs[:3]
        whole = linear_statistics.whole
        return whole(self.client, self.name, shape, self.classes, self.rows, self.wide, attrs)


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
        handles = {"extra": self.extra, "hidden": self.outs[1], "weight": self.outs[2]}
        self.rooms = {room: int(handle.address) for room, handle in handles.items()}
        self.slope = self.of_rows()
        self.kinds = [self.of_rows(known.parts) for _ in range(known.kinds)]

    def fill(self) -> None:
        """Note losses, and write the gradients."""
        known, found = self.known, self.places
        for chunk in known.chunks:
            self.keep(chunk)
        for i in range(len(found.blocks)):
            if i >= found.kept:
                self.complete(i)
            self.finish(i)
        if known.wanted[0]:
            total = spec_of(self.client, (known.rows, known.high), known.wide)
            write = self.client.writer(self.outs[1].spec, total)
            write(self.outs[1].address, Place(self.total))

    def home(self, block: int) -> int:
        """The address of the gradients in the logits of a block."""
        room, at = home(self.known.sizes, self.places, block)
        return self.rooms[room] + at

    def keep(self, chunk: Chunk) -> None:
        """Note the losses of some rows, and keep gradients in their logits."""
        known, (start, stop, parts) = self.known, chunk
        rows, width = stop - start, known.wide.itemsize
        first = [at_of(kind, start) for kind in self.kinds]
        target, dy = at_of(self.target, start), at_of(self.dy, start)
        for i, part in enumerate(parts):
            logits = self.rooms[part.room] + part.at
            self.logits(logits, (start, stop), (part.low, part.end))
            run = known.statistics(rows, part.end - part.low, part.low)
            run(*(at + i * known.rows * width for at in first), logits, target)
        outs = (at_of(t, start) for t in (self.loss, self.lse, self.slope))
        known.joined(rows, len(parts))(*outs, *first, target, dy)
        for part in parts:
            for block in range(part.first, part.last):
                low = self.places.blocks[block][0] - part.low
                source = self.rooms[part.room] + part.at + low * width
                self.descend(block, (start, stop), source, part.end - part.low)

    def complete(self, block: int) -> None:
        """Write the gradients in the logits of a block that was not kept."""
        known, (low, end) = self.known, self.places.blocks[block]
        logits = self.extra.address + known.rows * (end - low) * known.kind.itemsize
        logits += -logits % 256
        for i, j in cut(0, known.rows, self.places.again):
            self.logits(logits, (i, j), (low, end))
            self.descend(block, (i, j), logits, end - low)

    def descend(self, block: int, rows: tuple[int, int], logits: int, step: int) -> None:
        """Write gradients in the logits of some rows, which are ``step`` apart, in a block."""
        (start, stop), (low, end) = rows, self.places.blocks[block]
        out = self.home(block) + start * (end - low) * self.known.kind.itemsize
        run = self.known.gradient(stop - start, end - low, step)
        beside = self.own_class[block], self.lse, self.slope, self.share, self.flat
        run(out, logits, *(at_of(each, start) for each in beside))

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
