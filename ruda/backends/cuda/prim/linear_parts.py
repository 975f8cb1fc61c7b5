"""What both ways to a linear map's cross-entropy with its gradients have in common.

A plan's sizes, products and kernels are known before the first call; a call has its operands, its
outputs, and what is known of each row.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from ruda.backends.cuda.blas import cublaslt, gemm, layout
from ruda.backends.cuda.memory import allocate, allocate_piece, handle_over
from ruda.backends.cuda.prim.cross_entropy import Into
from ruda.core.dtypes import DType, compute_of, int64
from ruda.core.spec import Spec, is_absent, spec_of
from ruda.ops import cross_entropy_rows, linear_cross_entropy_rows
from ruda.ops.arith import add, divide
from ruda.ops.cast import astype
from ruda.ops.counting import counts
from ruda.ops.create import zeros
from ruda.ops.join import concat
from ruda.ops.reduce import sum
from ruda.ops.select import where
from ruda.tensor.tensor import RudaTensor, wrap

# Multiplications from which on a product is large, and the kernels of cuBLASLt for logits and for
# the gradient of the weight that are then quicker on an H200 than those that it proposes first:
# whole steps took 44.9 ms in place of 45.8, and with sums in the half type 41.2 in place of 41.5.
_LARGE = 1 << 35
_LOGITS: cublaslt.Kernels = ((197, 5), (197, 3), (20, 3), (184, 5))
_WEIGHT: cublaslt.Kernels = ((29, 3),)


def fitting(room: int, length: int, itemsize: int) -> int:
    """How many rows of ``length`` elements ``room`` has, whole tiles of a product of them."""
    count = max(1, room // (length * itemsize))
    return count - count % 128 if count > 128 else count


def cut(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a range."""
    return ((i, min(i + size, stop)) for i in range(start, stop, size))


def _piece(client: Any, spec: Spec) -> Any:
    """Memory in steps of 2 MiB, not of the size classes; a graph has its own, as it is planned."""
    return (allocate if client.order.planned else allocate_piece)(client.pool, spec)


def _ready(client: Any, spec: Spec) -> tuple[Spec, Callable[[Any], Any] | None]:
    """A matrix that the libraries take as it lies, and what makes a dense copy of any other."""
    if layout.side(spec.shape, spec.strides) is not None and spec.ndim == 2:
        return spec, None
    return spec_of(client, spec.shape, spec.dtype), lambda h: client.dense_copy(spec, h)


class Known:
    """What is known of a plan beforehand."""

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
        self.losses = functools.cache(self._losses)

    def _product(self, x: Spec, y: Spec, out: DType, bias: bool, adds: bool) -> Callable[..., None]:
        shape = x.shape[0], y.shape[1]
        beside = spec_of(self.client, y.shape[1:], self.wide) if bias else None
        made = spec_of(self.client, shape, out)
        precision, kernels = self.plan.precision, self._kernels(x, y, out)
        return gemm.into(self.client, self.name, x, y, made, precision, beside, adds, kernels)

    def _kernels(self, x: Spec, y: Spec, out: DType) -> cublaslt.Kernels:
        """Which ones to prefer for a product of half types."""
        large = x.size * y.shape[1] >= _LARGE and self.client.driver.arch == "sm_90a"
        if not large or not self.kind.is_half:
            return ()
        if out is self.wide:
            return _LOGITS if x.strides[1] == y.strides[0] == 1 else ()
        return _WEIGHT if x.strides[0] == 1 else ()

    def _losses(self, rows: int, dx: Spec | None = None, over: bool = False) -> Into:
        """Losses and log-sum-exps of some rows, and the gradient in their logits as ``dx``."""
        client, joint = self.client, dx is not None
        logits = spec_of(client, (rows, self.classes), self.wide)
        given = [spec_of(client, (rows,), self.wide)] * joint
        given += [logits, spec_of(client, (rows,), int64)]
        name, attrs = cross_entropy_rows.NAME + "_joint" * joint, self.plan.attrs[:-1]
        quick = self.kind.is_half
        return Into(client, linear_cross_entropy_rows.NAME, name, given, dx, attrs, over, quick)


class Call(ABC):
    """One call: its operands, its outputs, and what is known of each row so far."""

    def __init__(self, known: Known, handles: Any) -> None:
        self.known, self.client = known, known.client
        specs = known.plan.specs
        tensors: list[Any] = [
            None if h is None else wrap(s, h) for s, h in zip(specs, handles, strict=True)
        ]
        target, bias, count = tensors[2:]
        self.x, self.w = (
            h if make is None else make(h)
            for (_, make), h in zip(known.ready, handles[:2], strict=True)
        )
        self.bias = None if bias is None else astype(bias, known.wide)
        self.count = None if count is None else astype(count, known.wide)
        factor: Any = 1.0 if count is None else divide(1, self.count)
        none = zeros((), dtype=known.wide, device=target.device)
        self.dy = where(counts(target, known.plan.attrs[0]), factor, none)
        self.target = astype(target, int64)
        self.loss, self.lse = self.of_rows(), self.of_rows()
        self.bias_sums: list[RudaTensor] = []
        self.outs = [_piece(self.client, spec) for spec in known.plan.out]

    def run(self) -> Any:
        """The outputs."""
        self.fill()
        total = sum(self.loss)
        if self.count is not None:
            total = divide(total, self.count)
        last = self.outs[3]
        if self.bias_sums:
            last = astype(concat(self.bias_sums), last.spec.dtype).handle
        return total.handle, self.outs[1], self.outs[2], last

    @abstractmethod
    def fill(self) -> None:
        """Note losses, and write the gradients."""

    def of_rows(self, times: int = 1) -> RudaTensor:
        """Memory for a number of each row, or for several, row by row each."""
        spec = spec_of(self.client, (times * self.known.rows,), self.known.wide)
        return wrap(spec, allocate(self.client.pool, spec))

    def room(self, rows: int, columns: int, dtype: DType) -> Any:
        """A handle of memory for a matrix."""
        return _piece(self.client, spec_of(self.client, (rows, columns), dtype))

    def logits(self, out: int, rows: tuple[int, int], classes: tuple[int, int]) -> None:
        """Write the logits of some rows in some classes."""
        known, bias, (start, stop), (low, end) = self.known, self.bias, rows, classes
        x, y = self.part(0, stop - start), self.part(1, end - low, turned=True)
        own = known.product(x, y, known.wide, bias is not None, False)
        beside = () if bias is None else (at_of(bias, low),)
        own(self.at(0, start), self.at(1, low), out, *beside)

    def sum_bias(self, at: int, shape: tuple[int, int], adds: bool, step: int = 0) -> None:
        """Note the sum over rows of gradients in logits, where the bias wants it."""
        if not self.known.wanted[2]:
            return
        spec = self.dense(*shape, step=step)
        dx = wrap(spec, handle_over(None, at, spec))
        found = sum(dx, axis=0, dtype=self.known.wide)
        if adds:
            found = add(self.bias_sums.pop(), found)
        self.bias_sums.append(found)

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

    def dense(self, rows: int, columns: int, turned: bool = False, step: int = 0) -> Spec:
        """The spec of gradients in logits, whose rows are ``step`` elements apart if not dense."""
        shape, strides = (rows, columns), (step or columns, 1)
        shape, strides = (shape[::-1], strides[::-1]) if turned else (shape, strides)
        return spec_of(self.client, shape, self.known.kind, strides)


def at_of(numbers: RudaTensor, place: int) -> int:
    """The address of one of ``numbers``, which lie densely."""
    return int(numbers.handle.address + place * numbers.dtype.itemsize)
