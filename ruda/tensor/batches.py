"""Many calls of one row that differ in their tensors alone, made ready once and run as one.

The row keeps its meaning, a call at a time; how many launches a batch takes is up to the client.
An optimizer step is what this is for: from step to step only the gradients are other tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ruda.core.mode import MODE
from ruda.tensor.dispatch import Op
from ruda.tensor.launch import operands_of
from ruda.tensor.mutation import update_all
from ruda.tensor.operands import operand
from ruda.tensor.tensor import RudaTensor


class Overwrite(NamedTuple):
    """A call of ``op`` whose outputs overwrite ``targets``, which may be among its operands."""

    op: Op
    targets: Sequence[RudaTensor]
    values: Sequence[Any]
    attrs: tuple[Any, ...] = ()

    def run(self) -> None:
        """Make this call alone, traced or recorded if need be."""
        update_all(self.targets, self.op, self.values, self.attrs)


def overwrite_each(
    op: Op, targets: Sequence[RudaTensor], operands: Sequence[Any], attrs: tuple[Any, ...] = ()
) -> None:
    """Overwrite each of ``targets`` with ``op`` of its operands, in one launch where that can be.

    A list among ``operands`` has a tensor for each target, which may be that target; anything else
    is one that all share.
    """
    if not targets:
        return
    if _is_plain() and _in_one(op, targets, operands, attrs):
        return
    for i, target in enumerate(targets):
        values = [v[i] if v.__class__ is list else v for v in operands]
        target.assign(op.call(*values, *attrs))


def _in_one(op: Op, targets: Sequence[RudaTensor], operands: Sequence[Any], attrs: Any) -> bool:
    """Have the client do it at once; False where it does not.

    That is also where one call could see what another has written: in turn that means something.
    """
    bind = getattr(targets[0].spec.client, "bind_each", None)
    if bind is None:
        return False
    handles = [t.handle for t in targets]
    roots = [h.root or h for h in handles]
    if len(set(roots)) < len(roots):
        return False
    columns: list[Any] = []
    given: list[Any] = []
    specs = tuple([t.spec for t in targets])
    for value in operands:
        if value is targets:
            columns.append(specs)
            given.append(handles)
        elif value.__class__ is list:
            columns.append(tuple([v.spec for v in value]))
            given.append([v.handle for v in value])
            if not set(roots).isdisjoint([h.root or h for h in given[-1]]):
                return False
        else:
            found = operand(op.name, value, targets[0].spec.client)
            if found is None:
                return False
            columns.append(found[0])
            given.append(found[1])
    run = bind(op, specs, tuple(columns), attrs)
    if run is None:
        return False
    run(handles, given)
    for root in roots:
        root.version += 1
    return True


class Batch:
    """Calls of one row on one device, off the tape, ready for other tensors at one operand's place.

    All else stays what it was: tensors and scalars are those of the calls.
    """

    __slots__ = ("again", "handles", "holes", "kept", "place", "roots", "run_all", "targets")

    def __init__(self, calls: Sequence[Overwrite], plans: Sequence[Any], place: int) -> None:
        # Keeps tensors alive, whose handles never change; those at the place may go.
        self.kept = [
            (call.targets, [v for i, v in enumerate(call.values) if i != place]) for call in calls
        ]
        self.place = place
        self.holes = [plan.specs[place] for plan in plans]
        self.handles = [
            [v.handle if v.__class__ is RudaTensor else v for v in call.values] for call in calls
        ]
        for operands in self.handles:
            operands[place] = None
        self.targets = [[t.handle for t in call.targets] for call in calls]
        self.roots = [h.root or h for written in self.targets for h in written]
        self.run_all = _bound(plans)
        settled = getattr(self.run_all, "settled", None)
        self.again = None if settled is None else settled(self.handles, self.targets, place)

    def fits(self, values: Sequence[RudaTensor]) -> bool:
        """Whether ``values`` have the specs that the plans were made for, and it may run now."""
        return [v.spec for v in values] == self.holes and _is_plain()

    @property
    def scales(self) -> bool:
        """Whether ``run`` takes a scale and a condition."""
        return self.again is not None

    def run(
        self,
        values: Sequence[RudaTensor],
        scale: RudaTensor | None = None,
        keep: RudaTensor | None = None,
    ) -> None:
        """All calls, with ``values`` for the operands at the place.

        Where the client ``scales``, these are taken times ``scale``, a 0-d float64 tensor, and
        nothing happens where ``keep``, a 0-d bool tensor, is False.
        """
        given = [v.handle for v in values]
        if self.again is not None:
            self.again(given, *(None if t is None else t.handle for t in (scale, keep)))
        else:
            self._run_anew(given)
        for root in self.roots:
            root.version += 1

    def _run_anew(self, given: Sequence[Any]) -> None:
        """The calls as any others; ``given`` is not kept, it may be all of a model's gradients."""
        try:
            for operands, handle in zip(self.handles, given, strict=True):
                operands[self.place] = handle
            self.run_all(self.handles, self.targets)
        finally:
            for operands in self.handles:
                operands[self.place] = None


def batch_of(calls: Sequence[Overwrite], place: int) -> Batch | None:
    """A batch of ``calls``, or None where they are to be made one by one.

    That is under a tracer, a recorder or the tape, and where an output is no overwrite of its
    target as it is. Raises what planning the calls raises.
    """
    if not _is_plain():
        return None
    plans = []
    for op, targets, values, attrs in calls:
        operands = operands_of(op, values, targets[0].spec.client)
        if None in operands:
            return None
        plan = op.lookup(tuple([spec for spec, _, _ in operands]), attrs)
        if any(t.spec is not out for t, out in zip(targets, plan.out, strict=True)):
            return None
        plans.append(plan)
    return Batch(calls, plans, place)


def _is_plain() -> bool:
    mode = MODE.get()
    return not mode.grad and mode.tracer is None and mode.recorder is None


def _bound(plans: Sequence[Any]) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """The client's function of all plans, or its function of each in turn."""
    client = plans[0].specs[0].client
    bind = getattr(client, "bind_many", None)
    found: Callable[..., None] | None = None if bind is None else bind(plans)
    if found is not None:
        return found

    def in_turn(handles: Sequence[Any], targets: Sequence[Any]) -> None:
        for plan, operands, written in zip(plans, handles, targets, strict=True):
            client.update_all(plan, operands, written)

    return in_turn
