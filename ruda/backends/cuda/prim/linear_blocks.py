"""The gradients of a linear map under cross-entropy, each block of classes from all rows at once.

That of the weight is then one product a block, whose sums are in float32 and rounded once. But what
is known of a row comes from all of its classes: they are gone through twice.

First the logits of a chunk of rows in all classes give losses and log-sum-exps, and the gradients
in the logits of as many blocks of classes as there is memory for are kept: in that of the weight's
own gradient, and in some more. Then each block adds to the gradient of the hidden states and gives
that of its weights. Of the blocks that were not kept the logits are computed again.

What is kept in the gradient of the weight lies at its end, so that a block's own result overwrites
what only blocks before it have needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.prim import class_gradient
from ruda.backends.cuda.prim.linear_parts import Call, Known, at_of, cut, fitting
from ruda.core.dtypes import int64, uint8
from ruda.core.spec import spec_of
from ruda.ops.arith import add, multiply, subtract
from ruda.ops.create import arange
from ruda.ops.getitem import getitem
from ruda.ops.movement import expand_dims
from ruda.tensor.tensor import RudaTensor

# Bytes: the logits of a chunk, all that is needed beside operands and gradients, the gradients of
# all rows in the logits of a block, and the logits that are computed again at a time.
_CHUNK, _ALL, _BLOCK, _AGAIN = 128 << 20, 490 << 20, 128 << 20, 64 << 20
# Classes of a block: products of fewer are slow, and of more they are hardly faster.
_FEWEST, _MOST = 1024, 4096
# Elements: what addresses of blocks are multiples of.
_STEP = 64


class Run(NamedTuple):
    """Blocks of one size whose gradients lie one behind the other: the first, and how many."""

    first: int
    count: int


class Places(NamedTuple):
    """Where the gradients in the logits of blocks of ``size`` classes are kept.

    Those before ``inside`` lie in the weight's gradient from element ``start`` on, those before
    ``kept`` in extra memory, and others nowhere.
    """

    blocks: list[tuple[int, int]]
    size: int
    inside: int
    start: int
    kept: int

    def runs(self) -> list[Run]:
        """The blocks that are kept, in runs."""
        out = []
        for first, stop in ((0, self.inside), (self.inside, self.kept)):
            whole = sum(end - low == self.size for low, end in self.blocks[first:stop])
            runs = Run(first, whole), Run(first + whole, stop - first - whole)
            out += [run for run in runs if run.count]
        return out


def places(rows: int, high: int, classes: int, size: int, room: int) -> Places:
    """Where blocks of about ``size`` classes go, with extra memory for ``room`` elements."""
    size = -(-classes // -(-classes // size))
    size = min(classes, -(-size // 8) * 8)
    blocks = list(cut(0, classes, size))
    inside, start = len(blocks), 0
    while inside:
        start = classes * high - rows * blocks[inside - 1][1]
        start -= start % _STEP
        # What a block gives ends where its own gradients begin, or before.
        if all(start + rows * low >= end * high for low, end in blocks[:inside]):
            break
        inside -= 1
    kept = min(len(blocks), inside + room // (rows * size))
    return Places(blocks, size, inside, start, kept)


class Sizes(NamedTuple):
    """Bytes in front and beside, rows of a chunk, rows whose logits are computed again together."""

    front: int
    extra: int
    chunk: int
    again: int


class Arranged(Known):
    """What is known of a plan beforehand."""

    def __init__(self, client: Any, plan: Any) -> None:
        super().__init__(client, plan)
        self.places, self.sizes = self._arranged()
        self.gradient = functools.cache(self._gradient)

    def _arranged(self) -> tuple[Places, Sizes]:
        rows, high, classes = self.rows, self.high, self.classes
        width, wide = self.kind.itemsize, self.wide.itemsize
        total = rows * high * wide * self.wanted[0]
        chunk = min(rows, fitting(max(_CHUNK, total), classes, wide))
        front = max(total, chunk * classes * wide)
        size = min(classes, _MOST, max(_FEWEST, fitting(_BLOCK, rows, width)))
        found = places(rows, high, classes, size, max(0, _ALL - front) // width)
        extra = (found.kept - found.inside) * rows * found.size * width
        if found.kept == len(found.blocks):
            return found, Sizes(front, extra, chunk, 0)
        # Gradients of a block, and logits that are computed again.
        own, logits = rows * found.size * width, rows * found.size * wide
        extra = max(extra, own + min(logits, max(_AGAIN, _ALL - front - own)))
        again = min(rows, fitting(extra - own, found.size, wide))
        return found, Sizes(front, extra, chunk, again)

    def _gradient(self, shape: tuple[int, int, int], step: int) -> Callable[..., None]:
        """For some rows of some blocks; ``step`` is from row to row of their logits."""
        client, wide = self.client, self.wide
        rows, count, size = shape
        logits = spec_of(client, shape, wide, (step, size, 1))
        place = spec_of(client, (rows, count), int64, (1, self.rows))
        beside = [spec_of(client, (rows, count), wide, (1, 0)) for _ in range(4)]
        out = spec_of(client, shape, self.kind, (size, self.rows * size, 1))
        return class_gradient.into(client, (logits, place, *beside), out)


class _Place(NamedTuple):
    """What a writer wants of a handle."""

    address: int


class Blocks(Call):
    """One call."""

    known: Arranged

    def __init__(self, known: Arranged, handles: Any) -> None:
        super().__init__(known, handles)
        self.places, self.sizes = known.places, known.sizes
        _, smoothing, _, _ = known.plan.attrs
        self.share = multiply(self.dy, 1 - smoothing)
        self.flat = multiply(self.dy, smoothing / known.classes)
        lows = multiply(arange(len(self.places.blocks), device=self.dy.device), self.places.size)
        # [blocks, rows]: which class of a block is the target.
        self.own_class = subtract(expand_dims(self.target, 0), expand_dims(lows, 1))
        self.front, self.extra = (self.room(1, n, uint8) for n in self.sizes[:2])

    def fill(self) -> None:
        """Note losses, and write the gradients."""
        known, (blocks, _, _, _, kept) = self.known, self.places
        for i, j in cut(0, known.rows, self.sizes.chunk):
            self.keep(i, j)
        slope = self.slope(0, known.rows)
        for i, (low, end) in enumerate(blocks):
            at = self.home(i) if i < kept else self.extra.address
            if i >= kept:
                self.complete(i, slope)
            self.finish(at, low, end)
        if known.wanted[0]:
            total = spec_of(self.client, (known.rows, known.high), known.wide)
            write = self.client.writer(self.outs[1].spec, total)
            write(self.outs[1].address, _Place(self.front.address))

    def home(self, block: int) -> int:
        """The address of the gradients of a block that is kept."""
        found, rows, width = self.places, self.known.rows, self.known.kind.itemsize
        low = found.blocks[block][0]
        if block < found.inside:
            return int(self.outs[2].address + (found.start + rows * low) * width)
        first = found.blocks[found.inside][0]
        return int(self.extra.address + rows * (low - first) * width)

    def slope(self, start: int, stop: int) -> RudaTensor:
        """What the probabilities of some rows are multiplied by; their log-sum-exps are known."""
        rows, z_loss = slice(start, stop), self.known.plan.attrs[2]
        dy = getitem(self.dy, rows)
        if not z_loss:
            return dy
        return add(dy, multiply(multiply(dy, getitem(self.lse, rows)), 2 * z_loss))

    def keep(self, start: int, stop: int) -> None:
        """Note the losses of some rows, and keep gradients in their logits."""
        known, found, logits = self.known, self.places, self.front.address
        self.logits(logits, (start, stop), (0, known.classes))
        run = known.losses(stop - start)
        outs = at_of(self.loss, start), at_of(self.lse, start)
        run(*outs, logits, at_of(self.target, start))
        slope = self.slope(start, stop)
        for first, count in found.runs():
            low, end = found.blocks[first]
            out = self.home(first) + start * (end - low) * known.kind.itemsize
            source = logits + low * known.wide.itemsize
            shape = stop - start, count, end - low
            self.descend(out, source, first, start, slope.handle.address, shape, known.classes)

    def complete(self, block: int, slope: RudaTensor) -> None:
        """Write the gradients in the logits of a block that was not kept, in the extra memory."""
        known, (low, end) = self.known, self.places.blocks[block]
        n, width, at = end - low, known.kind.itemsize, self.extra.address
        logits = at + known.rows * self.places.size * width
        for i, j in cut(0, known.rows, self.sizes.again):
            self.logits(logits, (i, j), (low, end))
            self.descend(at + i * n * width, logits, block, i, at_of(slope, i), (j - i, 1, n), n)

    def descend(
        self,
        out: int,
        logits: int,
        block: int,
        row: int,
        slope: int,
        shape: tuple[int, int, int],
        step: int,
    ) -> None:
        """Write gradients in the logits of some rows, from ``row`` on, in some blocks."""
        run = self.known.gradient(shape, step)
        place = at_of(self.own_class, block * self.known.rows + row)
        rest = (at_of(t, row) for t in (self.share, self.flat))
        run(out, logits, place, at_of(self.lse, row), slope, *rest)

    def finish(self, at: int, low: int, end: int) -> None:
        """What follows from the gradients in the logits of all rows in a block of classes."""
        known, n, rows = self.known, end - low, self.known.rows
        if known.wanted[0]:
            own = known.product(self.dense(rows, n), self.part(1, n), known.wide, False, low > 0)
            own(at, self.at(1, low), self.front.address)
        turned = self.dense(rows, n, turned=True)
        own = known.product(turned, self.part(0, rows), known.kind, False, False)
        own(at, self.x.address, self.outs[2].address + low * known.high * known.kind.itemsize)
        self.sum_bias(at, (rows, n), adds=False)
