"""Optimizer steps: in place, and all tensors of a group in one launch."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ruda.backends.cuda.codegen_updates import LEAST, MOST, THREADS, Update, source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import map as maps
from ruda.backends.cuda.prim.tables import Replayed, chunk_of, hold, parts_of, room, send
from ruda.backends.cuda.prim.update_formulas import formula_of
from ruda.core.dtypes import FLOAT
from ruda.core.spec import Spec, is_absent, spec_of

_BLOCKS_PER_MULTIPROCESSOR = 8


class Class:
    """What the plans of one class have in common: where their operands are, and the kernels."""

    def __init__(self, plan: Any) -> None:
        args, specs = plan.op.args, plan.specs
        flags = dict(zip(plan.op.attrs, plan.attrs, strict=True))
        formula = formula_of(plan.op.name, flags, not is_absent(specs[-1]))
        self.first = args.index("step" if formula.counted else "lr")
        self.held = (0, *range(2, self.first))
        self.step = self.first if formula.counted else None
        rest = range(self.first + formula.counted, len(args))
        self.scalars = tuple(i for i in rest if not is_absent(specs[i]))
        decay = "none"
        if len(args) - 1 in self.scalars and not formula.takes_decay:
            decay = (
                "decoupled" if flags.get("decoupled", plan.op.name == "lion_step") else "coupled"
            )
        self.update = Update(
            plan.op.name,
            formula.formula,
            specs[0].dtype,
            specs[1].dtype,
            None if self.step is None else specs[self.step].dtype,
            tuple((args[i], None if specs[i].weak else specs[i].dtype) for i in self.scalars),
            decay,
            tuple(v for k, v in flags.items() if k != "maximize"),
            bool(flags["maximize"]),
        )
        self.values = tuple((i, specs[i].weak) for i in self.scalars)

    def words(self, handles: Sequence[Any], outs: Sequence[Any], n: int) -> list[int]:
        """The words of one tensor; ``outs`` are handles of parameter, state and step."""
        out = [handles[i].address for i in self.held]
        out += [outs[j].address for j in range(len(self.held))]
        if self.step is not None:
            out += [handles[self.step].address, outs[-1].address]
        for i, weak in self.values:
            out.append(_bits(handles[i]) if weak else handles[i].address)
        out.append(n)
        return out


def _bits(value: Any) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def supported(plan: Any) -> bool:
    """Whether a kernel makes this step: real dtypes of 16 bits and more."""
    specs = plan.specs
    return specs[0].dtype in FLOAT and specs[1].dtype in FLOAT


def bind(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The step into fresh memory."""
    if not supported(plan):
        return None
    step = bind_into(client, plan)

    def run(*handles: Any) -> Any:
        outs = tuple([allocate(client.pool, spec) for spec in plan.out])
        step(handles, outs)
        return outs

    return run


def bind_into(client: Any, plan: Any) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """The step from operands to targets, which may be the operands themselves."""
    made = Class(plan)
    n = plan.specs[0].size
    sparse = [i for i in range(made.first) if not plan.specs[i].contiguous]
    packs = [(i, _packing(client, plan.specs[i])) for i in sparse]
    chunk = chunk_of(client, [n], LEAST, MOST)
    blocks = min(-(-n // chunk), client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR)

    # Not before it is called: a plan that is one of many is never launched alone.
    @functools.cache
    def launchers() -> tuple[Any, Any]:
        update, count = made.update, None
        name, widths = f"{update.name}_one", (update.words, 1, 1, 1)
        end, text = [struct.pack("<q", chunk)], source(update)
        launch = Launcher(client, text, name, blocks, THREADS, widths, end) if n else None
        if made.step is not None:
            spec, out = plan.specs[made.step], plan.out[-1]
            count = maps.bind_into(client, out, "count", "x + T(1)", ("x",), (spec,), (spec.dtype,))
        return launch, count

    def step(handles: Sequence[Any], outs: Sequence[Any]) -> None:
        if packs:
            handles = list(handles)
            for i, pack in packs:
                handles[i] = pack(handles[i])
        launch, count = launchers()
        if launch is not None:
            launch(*made.words(handles, outs, n), handles[1].address, 0, 0)
        if count is not None and made.step is not None:
            count(outs[-1].address, handles[made.step])

    return step


def _packing(client: Any, spec: Spec) -> Callable[[Any], Any]:
    """What makes a dense copy of an operand."""
    return client.copier(spec_of(client, spec.shape, spec.dtype), spec)


class Many:
    """The steps of many tensors of one class: a table of them on the device, kept between runs."""

    def __init__(self, client: Any, plans: Sequence[Any]) -> None:
        self.client, self.made = client, Class(plans[0])
        self.sizes = [plan.specs[0].size for plan in plans]
        update = self.made.update
        chunk = chunk_of(client, self.sizes, LEAST, MOST)
        self.chunks, blocks = parts_of(client, self.sizes, chunk)
        self.table = np.zeros((len(plans), update.words), np.uint64)
        self.grads: list[int] = []
        self.on_device = [room(client, size) for size in (self.table.nbytes, 8 * len(plans))]
        self.replayed = Replayed(client)
        self.known: list[Any] = [None] * len(plans)
        # Whether the table on the device is an older one, and whether it is a graph's for good.
        self.changed = True
        self.fixed = False
        text, name = source(update), update.name
        counted = update.step is not None
        # How many blocks have read the counts of steps; the last one sets it back.
        self.arrived = [room(client, 4)] if counted and blocks else []
        for held in self.arrived:
            client.fill_zero(held.address, 4)
        self.launch = self.count = None
        if blocks:
            tensors = [struct.pack("<Q", len(plans))] * counted
            end, widths = [*tensors, struct.pack("<q", chunk)], (1,) * (5 + counted)
            self.launch = Launcher(client, text, f"{name}_many", blocks, THREADS, widths, end)
        elif counted:
            groups, fixed = -(-len(plans) // THREADS), [struct.pack("<Q", len(plans))]
            self.count = Launcher(client, text, f"{name}_count", groups, THREADS, (1, 1), fixed)

    def settle(self, handles: Sequence[Any], targets: Sequence[Any]) -> None:
        """Take down where everything but the gradients lies, and the scalars."""
        known = self.known
        for i, operands in enumerate(handles):
            # Handles are what they were as long as they are the same objects, but for the gradient.
            now = (*operands[:1], *operands[2:], *targets[i])
            if known[i] != now:
                known[i], self.changed = now, True
                self.table[i] = self.made.words(operands, targets[i], self.sizes[i])

    def step(self, grads: list[int], scale: int, keep: int) -> None:
        """Queue the steps; what has not changed since the last run stays on the device.

        ``grads`` are addresses, ``scale`` and ``keep`` those of a double and a bool, or 0.
        """
        if self.fixed:
            self._part()
        # A compiled step has its own: sent once, before its graph runs.
        self.fixed = self.client.branching
        replayed = not self.fixed and bool(self.replayed)
        hold(self.client, *self.on_device, *self.arrived, self.chunks)
        if self.fixed:
            arrays = self.table.copy(), np.array(grads, np.uint64)
            self.client.first += zip(self.on_device, arrays, strict=True)
            self._launch(scale, keep)
            return
        if replayed or self.changed:
            self.changed = False
            send(self.client, self.on_device[0], self.table)
        if replayed or grads != self.grads:
            self.grads = grads
            send(self.client, self.on_device[1], np.array(grads, np.uint64))
        self._launch(scale, keep)

    def _part(self) -> None:
        """Leave the tables to the graph that reads them, and begin new ones."""
        self.on_device = [room(self.client, held.spec.nbytes) for held in self.on_device]
        self.changed, self.grads = True, []

    def _launch(self, scale: int, keep: int) -> None:
        table, where = (held.address for held in self.on_device)
        if self.launch is not None:
            arrived = [held.address for held in self.arrived]
            self.launch(table, where, self.chunks.address, scale, keep, *arrived)
        if self.count is not None:
            self.count(table, keep)


class Steps:
    """The launches for tensors of several classes, each with the places of its tensors."""

    def __init__(self, groups: Sequence[tuple[Many, list[int]]]) -> None:
        self.groups = groups

    def __call__(
        self, handles: Sequence[Any], targets: Sequence[Any], scale: int = 0, keep: int = 0
    ) -> None:
        """Queue the steps with these operands."""
        self.settled(handles, targets)([h[1].address for h in handles], scale, keep)

    def settled(
        self, handles: Sequence[Any], targets: Sequence[Any]
    ) -> Callable[[list[int], int, int], None]:
        """The steps with these operands and any gradients, given by their addresses."""
        for many, places in self.groups:
            many.settle([handles[i] for i in places], [targets[i] for i in places])
        if len(self.groups) == 1:
            return self.groups[0][0].step

        def step(grads: list[int], scale: int, keep: int) -> None:
            for many, places in self.groups:
                many.step([grads[i] for i in places], scale, keep)

        return step


def bind_many(client: Any, plans: Sequence[Any]) -> Steps | None:
    """The steps of all plans, one launch for each class; None where some tensor is not dense."""
    if plans[0].op.name not in KERNELS or not all(map(supported, plans)):
        return None
    if not all(s.contiguous for plan in plans for s in plan.specs[: Class(plan).first]):
        return None
    classes: dict[Update, list[int]] = {}
    for i, plan in enumerate(plans):
        classes.setdefault(Class(plan).update, []).append(i)
    return Steps([(Many(client, [plans[i] for i in at]), at) for at in classes.values()])


_ROWS = "sgd momentum adamw adan lion rmsprop adagrad adadelta amsgrad nadam radam"
KERNELS = {f"{name}_step": bind for name in _ROWS.split()}
