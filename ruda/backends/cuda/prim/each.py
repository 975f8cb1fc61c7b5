"""An elementwise row over many tensors in one launch: what scales or bounds all gradients at once.

The tensors of a column are dense and of their target's shape; all else is a single element or a
scalar that every tensor shares. Where things lie is in a table on the device, sent when it changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ruda.backends.cuda import codegen
from ruda.backends.cuda.codegen_steps import THREADS
from ruda.backends.cuda.launch import Launcher, raw_bits
from ruda.backends.cuda.prim.tables import Replayed, hold, parts_of, room, send
from ruda.core.dtypes import compute_of
from ruda.core.spec import Spec, is_absent

CHUNK = 1 << 15
_KINDS = ("unary", "binary", "ternary", "cast")

# For each operand the specs of a column, or the one spec that all tensors share.
Columns = tuple[Any, ...]


class Each:
    """The launch for tensors of one class, and their table on the device."""

    def __init__(self, client: Any, kernel: codegen.Map, sizes: Sequence[int]) -> None:
        self.client = client
        self.chunks, blocks = parts_of(client, sizes, CHUNK)
        shared = [o for o in kernel.operands if o.form != "dense"]
        self.reads = [raw_bits(o.computed) if o.form == "value" else _address for o in shared]
        count = len(kernel.operands) - len(shared)
        self.table = np.zeros((len(sizes), 2 + count), np.uint64)
        self.table[:, -1] = sizes
        self.on_device = room(client, self.table.nbytes)
        self.known: list[list[int]] = []
        self.replayed = Replayed(client)
        # The table is that of one call until its kernel is queued.
        self.turn = threading.Lock()
        text, widths = codegen.many(kernel, CHUNK), [1] * (2 + len(shared))
        self.launch = None
        if blocks:
            self.launch = Launcher(client, text, kernel.name, blocks, THREADS, widths)

    def __call__(self, places: list[list[int]], shared: Sequence[Any]) -> None:
        """Queue it: the addresses of outputs and of each column, and what is shared."""
        if self.launch is None:
            return
        values = [v for read, h in zip(self.reads, shared, strict=True) for v in read(h)]
        with self.turn:
            hold(self.client, self.on_device, self.chunks)
            if self.replayed or places != self.known:
                self.known = places
                for j, column in enumerate(places):
                    self.table[:, j] = column
                send(self.client, self.on_device, self.table)
            self.launch(self.on_device.address, self.chunks.address, *values)


def _address(handle: Any) -> tuple[int, ...]:
    return (handle.address,)


def bind(
    client: Any, op: Any, targets: tuple[Spec, ...], columns: Columns, attrs: tuple[Any, ...]
) -> Callable[[Sequence[Any], Sequence[Any]], None] | None:
    """The launches, one for each combination of dtypes; None where a loop must do it."""
    if op.kind not in _KINDS or (op.expr is None and op.kind != "cast"):
        return None
    if not all(map(_fits, columns, (targets,) * len(columns))):
        return None
    if not all(t.contiguous and t.dtype.is_inexact for t in targets):
        return None
    classes: dict[Any, list[int]] = {}
    for i, target in enumerate(targets):
        met = tuple([c[i].dtype for c in columns if c.__class__ is tuple])
        classes.setdefault((target.dtype, met), []).append(i)
    parts = []
    for (out, _), places in classes.items():
        specs = tuple([c[places[0]] if c.__class__ is tuple else c for c in columns])
        kernel = _kernel(op, specs, columns, attrs)
        if kernel.out is not out or any(o.computed.kind == "complex" for o in kernel.operands):
            return None
        parts.append((Each(client, kernel, [targets[i].size for i in places]), places))
    return _run(parts, [c.__class__ is tuple for c in columns])


def _fits(column: Any, targets: tuple[Spec, ...]) -> bool:
    """Whether a column lies as its targets do, or what is shared is a single element."""
    if column.__class__ is not tuple:
        return not is_absent(column) and (column.weak or column.ndim == 0)
    pairs = zip(column, targets, strict=True)
    return all(not s.weak and s.contiguous and s.shape == t.shape for s, t in pairs)


def _kernel(
    op: Any, specs: tuple[Spec, ...], columns: Columns, attrs: tuple[Any, ...]
) -> codegen.Map:
    """The class of kernel for the operands of one tensor."""
    op._check(specs)
    wanted, out = op.dtype(op, specs, *attrs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,) * len(specs)
    forms = ["dense" if c.__class__ is tuple else "value" if c.weak else "single" for c in columns]
    operands = tuple(
        codegen.Operand(arg, s.dtype, compute_of(dtype or s.dtype), form)
        for arg, s, dtype, form in zip(op.args, specs, wanted, forms, strict=True)
    )
    expr = "x" if op.kind == "cast" else op.expr
    return _Many(op.name, expr, operands, out, 0)


class _Many(codegen.Map):
    """A class of kernels over many tensors."""

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return super().name + "_many"


def _run(
    parts: list[tuple[Each, list[int]]], moving: list[bool]
) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """From handles of the targets and of each operand to the launches."""

    def run(targets: Sequence[Any], operands: Sequence[Any]) -> None:
        columns = [c for c, moves in zip(operands, moving, strict=True) if moves]
        shared = [c for c, moves in zip(operands, moving, strict=True) if not moves]
        own = [h.address for h in targets]
        rest = [own if c is targets else [h.address for h in c] for c in columns]
        places = [own, *rest]
        if len(parts) == 1:
            parts[0][0](places, shared)
            return
        for each, members in parts:
            each([[column[i] for i in members] for column in places], shared)

    return run
