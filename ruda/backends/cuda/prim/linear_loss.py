"""The sum of a linear map's cross-entropies together with its gradients.

Rows are taken in chunks, whose logits exist in float32 for as long as it takes to write the
gradient in them, once rounded. What then becomes of the gradient depends on the weight's:

- Where its partial sums may be rounded, or there is one, each group of rows is added to it: three
  products in all.
- Else it is made a block of classes at a time from all rows. Until the block is due the gradients
  in its logits wait in the memory of that very block, which holds them for as many rows as a row of
  the weight has elements, and some more wait in extra memory. Of all others the logits are computed
  a second time: a quarter of a product for 8192 rows of 4096 elements and 128256 classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ruda.backends.cuda.blas import gemm, layout
from ruda.backends.cuda.memory import allocate, allocate_piece, handle_over
from ruda.backends.cuda.prim import class_gradient
from ruda.core.dtypes import DType, compute_of, float16, int64
from ruda.core.mode import recording
from ruda.core.spec import Spec, is_absent, spec_of
from ruda.ops.arith import add, divide, multiply, subtract
from ruda.ops.cast import astype
from ruda.ops.counting import counts
from ruda.ops.create import zeros
from ruda.ops.getitem import getitem
from ruda.ops.join import concat
from ruda.ops.reduce import sum
from ruda.ops.select import where
from ruda.ops.table import TABLE
from ruda.tensor.tensor import RudaTensor, wrap

# Bytes: logits of a chunk, their gradients of a group of rows that is added or that waits, the
# gradients of all rows in a block of classes, and logits that are computed again.
_LOGITS, _GROUP, _BLOCK, _AGAIN = 1 << 28, 1 << 29, 1 << 27, 1 << 25
_WAITING = 480 << 20
# A product without a bias that overwrites.
_BARE = False, False


def _fitting(room: int, length: int, itemsize: int) -> int:
    """How many rows of ``length`` elements ``room`` has, whole tiles of a product of them."""
    count = max(1, room // (length * itemsize))
    return count - count % 128 if count > 128 else count


def _cut(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    return ((i, min(i + size, stop)) for i in range(start, stop, size))


class _Sum:
    """What is known of a plan beforehand: sizes, products and kernels."""

    def __init__(self, client: Any, plan: Any) -> None:
        self.client, self.plan = client, plan
        hidden, weight, _, bias, _ = plan.specs
        self.name, self.kind, self.wide = plan.op.name, hidden.dtype, compute_of(hidden.dtype)
        (self.rows, self.high), self.classes = hidden.shape, weight.shape[0]
        self.ready = [_ready(client, spec) for spec in (hidden, weight)]
        self.specs = [spec for spec, _ in self.ready]
        self.bias = None if is_absent(bias) else spec_of(client, bias.shape, self.wide)
        self.wanted = plan.attrs[-1]
        self.product = functools.cache(self._product)
        self.gradient = functools.cache(self._gradient)
        self.group = _fitting(_GROUP, self.classes, self.kind.itemsize)
        self.chunk = _fitting(_LOGITS, self.classes, self.wide.itemsize)
        block = min(_fitting(_BLOCK, self.rows, self.kind.itemsize), self.classes)
        self.blocks = list(_cut(0, self.classes, block))
        self.again = _fitting(_AGAIN, block, self.wide.itemsize)

    def _product(self, x: Spec, y: Spec, out: DType, bias: bool, adds: bool) -> Callable[..., None]:
        shape = x.shape[0], y.shape[1]
        beside = spec_of(self.client, y.shape[1:], self.wide) if bias else None
        made = spec_of(self.client, shape, out)
        return gemm.into(self.client, self.name, x, y, made, self.plan.precision, beside, adds)

    def _gradient(self, rows: int, classes: int, step: int) -> Callable[..., None]:
        client = self.client
        logits = spec_of(client, (rows, classes), self.wide, (step, 1))
        beside = [spec_of(client, (rows,), dtype) for dtype in (int64, *(self.wide,) * 4)]
        out = spec_of(client, (rows, classes), self.kind)
        return class_gradient.into(client, (logits, *beside), out)

    def __call__(self, *handles: Any) -> Any:
        with recording(False):
            return _Call(self, handles).run()

    @property
    def adds(self) -> bool:
        """Whether the weight's gradient is a sum over groups of rows."""
        precision = self.plan.precision
        rounds = not self.kind.is_half or (precision is not None and precision.half_reduction)
        return rounds or self.rows <= self.group or not self.wanted[1]


class _Rows(NamedTuple):
    """Some rows: from which to which, and where their log-sum-exps and slopes lie."""

    start: int
    stop: int
    lse: int
    slope: int
    held: Any

    def part(self, start: int, stop: int, itemsize: int) -> _Rows:
        """Some of them."""
        step = (start - self.start) * itemsize
        return _Rows(start, stop, self.lse + step, self.slope + step, self.held)


class _Place(NamedTuple):
    """What a writer wants of a handle."""

    address: int


def _ready(client: Any, spec: Spec) -> tuple[Spec, Callable[[Any], Any] | None]:
    """A matrix that the libraries take as it lies, and what makes a dense copy of any other."""
    if layout.side(spec.shape, spec.strides) is not None and spec.ndim == 2:
        return spec, None
    return spec_of(client, spec.shape, spec.dtype), lambda h: client.dense_copy(spec, h)


class _Call:
    """One call: its operands, the outputs, and what is known of each row so far."""

    def __init__(self, known: _Sum, handles: Any) -> None:
        self.known, self.client = known, known.client
        specs = known.plan.specs
        tensors = [None if h is None else wrap(s, h) for s, h in zip(specs, handles, strict=True)]
        target, bias, count = tensors[2:]
        self.x, self.w = (
            h if make is None else make(h)
            for (_, make), h in zip(known.ready, handles[:2], strict=True)
        )
        self.bias = None if bias is None else astype(bias, known.wide)
        ignore, smoothing, _, _ = known.plan.attrs
        self.count = None if count is None else astype(count, known.wide)
        factor: Any = 1.0 if count is None else divide(1, self.count)
        none = zeros((), dtype=known.wide, device=target.device)
        self.dy = where(counts(target, ignore), factor, none)
        self.share = multiply(self.dy, 1 - smoothing)
        self.flat = multiply(self.dy, smoothing / known.classes)
        self.target, self.places = target, {0: astype(target, int64)}
        self.losses: list[RudaTensor] = []
        self.bias_sums: list[RudaTensor] = []
        self.outs = [allocate(self.client.pool, spec) for spec in known.plan.out]

    def run(self) -> Any:
        """The outputs."""
        if self.known.adds:
            self.by_groups()
        else:
            self.by_blocks()
        total = sum(concat(self.losses))
        if self.count is not None:
            total = divide(total, self.count)
        last = self.outs[3]
        if self.bias_sums:
            last = astype(concat(self.bias_sums), last.spec.dtype).handle
        return total.handle, self.outs[1], self.outs[2], last

    def by_groups(self) -> None:
        """Each group of rows gives its gradient and adds to that of the weight."""
        known = self.known
        rows, high, classes = known.rows, known.high, known.classes
        count = min(known.group, rows)
        room = allocate_piece(self.client.pool, self.dense(count, classes))
        width, at = known.kind.itemsize, room.address
        for start, stop in _cut(0, rows, count):
            for i, j in _cut(start, stop, known.chunk):
                self.keep(i, j, [(0, classes, at + (i - start) * classes * width)])
            n = stop - start
            if known.wanted[0]:
                own = known.product(
                    self.dense(n, classes), self.part(1, classes), known.kind, *_BARE
                )
                own(at, self.w.address, self.outs[1].address + start * high * width)
            if known.wanted[1]:
                turned = self.dense(n, classes, turned=True)
                own = known.product(turned, self.part(0, n), known.kind, False, start > 0)
                own(at, self.at(0, start), self.outs[2].address)
            self.sum_bias(room.address, n, classes, adds=start > 0)

    def by_blocks(self) -> None:
        """The gradient of the weight a block of classes at a time, each from all rows."""
        known, pool = self.known, self.client.pool
        rows, high, width = known.rows, known.high, known.kind.itemsize
        inside = min(rows, high)
        beside = min(rows - inside, _fitting(_WAITING, known.classes, width))
        kept, own = inside + beside, self.outs[2].address
        extra = allocate_piece(pool, self.dense(beside, known.classes))
        for base, first, last in ((own, 0, inside), (extra.address, inside, kept)):
            count = last - first if first else high
            for i, j in _cut(first, last, known.chunk):
                self.keep(
                    i,
                    j,
                    [
                        (low, end, base + (low * count + (i - first) * (end - low)) * width)
                        for low, end in known.blocks
                    ],
                )
        lse = [self.measured(i, j)[1] for i, j in _cut(kept, rows, known.chunk)]
        again = self.levels(kept, rows, concat(lse)) if lse else None
        total = allocate(pool, spec_of(self.client, (rows, high), known.wide))
        for low, end in known.blocks:
            room = allocate(pool, self.dense(rows, end - low))
            self.move(room.address, own + low * high * width, inside * (end - low))
            at = room.address + inside * (end - low) * width
            self.move(at, extra.address + low * beside * width, beside * (end - low))
            if again is not None:
                self.complete(room.address, again, low, end)
            self.finish(room.address, low, end, total)
            del room
        if known.wanted[0]:
            self.client.writer(self.outs[1].spec, total.spec)(self.outs[1].address, total)

    def complete(self, at: int, rows: _Rows, low: int, end: int) -> None:
        """Write the gradients in the logits of the last rows, which are computed again."""
        known, n = self.known, end - low
        for i, j in _cut(rows.start, rows.stop, known.again):
            logits = self.logits(i, j, low, end)
            part = rows.part(i, j, known.wide.itemsize)
            self.descend(at + i * n * known.kind.itemsize, logits.address, n, part, low, end)
            del logits

    def finish(self, at: int, low: int, end: int, total: Any) -> None:
        """What follows from the gradients in the logits of all rows in a block of classes."""
        known, n, rows = self.known, end - low, self.known.rows
        if known.wanted[0]:
            own = known.product(self.dense(rows, n), self.part(1, n), known.wide, False, low > 0)
            own(at, self.at(1, low), total.address)
        turned = self.dense(rows, n, turned=True)
        own = known.product(turned, self.part(0, rows), known.kind, *_BARE)
        target = self.outs[2].address + low * known.high * known.kind.itemsize
        own(at, self.x.address, target)
        self.sum_bias(at, rows, n, adds=False)

    def move(self, target: int, source: int, count: int) -> None:
        """Copy gradients in logits."""
        if count:
            flat = spec_of(self.client, (count,), self.known.kind)
            self.client.writer(flat, flat)(target, _Place(source))

    def sum_bias(self, at: int, rows: int, classes: int, adds: bool) -> None:
        """Note the sum over ``rows`` of gradients in logits, where the bias wants it."""
        if not self.known.wanted[2]:
            return
        spec = self.dense(rows, classes)
        dx = wrap(spec, handle_over(None, at, spec))
        found = sum(dx, axis=0, dtype=self.known.wide)
        if adds:
            found = add(self.bias_sums.pop(), found)
        self.bias_sums.append(found)

    def keep(self, start: int, stop: int, blocks: list[tuple[int, int, int]]) -> None:
        """Write the gradients in the logits of some rows, each block of classes at its address."""
        known = self.known
        logits, lse = self.measured(start, stop)
        rows = self.levels(start, stop, lse)
        for low, end, at in blocks:
            source = logits.address + low * known.wide.itemsize
            self.descend(at, source, known.classes, rows, low, end)

    def levels(self, start: int, stop: int, lse: RudaTensor) -> _Rows:
        """Rows of which ``lse`` is known."""
        z_loss, width = self.known.plan.attrs[2], self.known.wide.itemsize
        if not z_loss:
            slope = self.dy.handle.address + start * width
            return _Rows(start, stop, lse.handle.address, slope, lse)
        dy = getitem(self.dy, slice(start, stop))
        slopes = add(dy, multiply(multiply(dy, lse), 2 * z_loss))
        return _Rows(start, stop, lse.handle.address, slopes.handle.address, (lse, slopes))

    def descend(self, out: int, logits: int, step: int, rows: _Rows, low: int, end: int) -> None:
        """Write gradients in logits, whose rows are ``step`` elements apart, at ``out``."""
        width, at = self.known.wide.itemsize, rows.start
        if low not in self.places:
            self.places[low] = subtract(self.places[0], low)
        run = self.known.gradient(rows.stop - at, end - low, step)
        place = self.places[low].handle.address + at * 8
        share, flat = (t.handle.address + at * width for t in (self.share, self.flat))
        run(out, logits, place, rows.lse, rows.slope, share, flat)

    def measured(self, start: int, stop: int) -> tuple[Any, RudaTensor]:
        """Logits of some rows in all classes, and the log-sum-exp; their losses are noted."""
        known = self.known
        out = self.logits(start, stop, 0, known.classes)
        target, rates = getitem(self.target, slice(start, stop)), known.plan.attrs[:-1]
        logits = wrap(out.spec, out)
        loss, lse = TABLE["cross_entropy"].call(logits, target, None, 1, *rates)
        self.losses.append(loss)
        return out, lse

    def logits(self, start: int, stop: int, low: int, end: int) -> Any:
        """A handle of the logits of some rows in some classes."""
        known, bias = self.known, self.bias
        spec = spec_of(self.client, (stop - start, end - low), known.wide)
        out = allocate(self.client.pool, spec)
        x, y = self.part(0, stop - start), self.part(1, end - low, turned=True)
        own = known.product(x, y, known.wide, bias is not None, False)
        beside = () if bias is None else (bias.handle.address + low * known.wide.itemsize,)
        own(self.at(0, start), self.at(1, low), out.address, *beside)
        return out

    def at(self, which: int, row: int) -> int:
        """The address of a row of the hidden states (0) or of the weight (1)."""
        handle, spec = (self.x, self.w)[which], self.known.specs[which]
        return int(handle.address + row * spec.strides[0] * spec.dtype.itemsize)

    def part(self, which: int, rows: int, turned: bool = False) -> Spec:
        """The spec of some rows of the hidden states (0) or of the weight (1)."""
        spec = self.known.specs[which]
        shape, strides = (rows, spec.shape[1]), spec.strides
        shape, strides = (shape[::-1], strides[::-1]) if turned else (shape, strides)
        return spec_of(self.client, shape, spec.dtype, strides)

    def dense(self, rows: int, columns: int, turned: bool = False) -> Spec:
        """The spec of gradients in logits."""
        shape, strides = (rows, columns), (columns, 1)
        shape, strides = (shape[::-1], strides[::-1]) if turned else (shape, strides)
        return spec_of(self.client, shape, self.known.kind, strides)


def _bound(client: Any, plan: Any) -> Callable[..., Any] | None:
    """None where there is nothing to multiply, and for a dtype that small gradients vanish in."""
    hidden, weight = plan.specs[:2]
    if not hidden.size or not weight.size or hidden.dtype is float16:
        return None
    return _Sum(client, plan)


KERNELS = {"linear_cross_entropy_sum": _bound}
