"""Operators that overwrite the state they were made from: optimizer steps, as a rule.

Out of place each would fill fresh memory that is then copied over the state. They run last instead,
straight into it, those of one row together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.sources import Held


def in_place(
    client: Any, graph: Graph, wanted: Sequence[Value], writes: Sequence[tuple[Any, Value]]
) -> dict[Instruction, None]:
    """The operators with several results that nobody needs but the state they were made from.

    They run last, straight into that state: no other operator, and none of them for another's
    state, may read it later than that.
    """
    target_of = {value: target for target, value in writes}
    users: dict[Value, int] = {}
    for instruction in graph.instructions:
        for value in instruction.inputs:
            users[value] = users.get(value, 0) + 1
    for value in wanted:
        users[value] = users.get(value, 0) + (value not in target_of)
    found: dict[Instruction, Any] = {}
    for instruction in graph.instructions:
        plan = instruction.plan
        if plan is None or plan.out.__class__ is not tuple or plan.op.kind == "region":
            continue
        if any(
            v not in target_of or users.get(v) or v.memory is not v for v in instruction.outputs
        ):
            continue
        if all(client.base(target_of[v]) is v.spec for v in instruction.outputs):
            found[instruction] = None
    own = {id(target_of[v]): i for i in found for v in i.outputs}
    for instruction in list(found):
        held = [v.payload.handle for v in instruction.inputs if isinstance(v.payload, Held)]
        roots = [h if h.root is None else h.root for h in held]
        if any(own.get(id(h), instruction) is not instruction for h in roots):
            del found[instruction]
    return found


class Updates:
    """Such operators, ready to run on the values of a replay."""

    def __init__(
        self,
        client: Any,
        found: dict[Instruction, None],
        writes: Sequence[tuple[Any, Value]],
        plan_of: Callable[[Instruction], Any] = attrgetter("plan"),
    ) -> None:
        self.client = client
        self.plan_of = plan_of
        self.instructions = list(found)
        self.inputs = [v for i in found for v in i.inputs]
        self.overwritten = {v for i in found for v in i.outputs}
        target_of = {value: target for target, value in writes}
        rows: dict[Any, list[Instruction]] = {}
        for instruction in found:
            rows.setdefault((instruction.plan.op, instruction.plan.attrs), []).append(instruction)
        self.rows = [
            self._row(members, [[target_of[v] for v in i.outputs] for i in members])
            for members in rows.values()
        ]

    def _row(
        self, members: list[Instruction], targets: list[list[Any]]
    ) -> tuple[list[Sequence[Value]], Callable[..., None]]:
        """The operands to look up for a run, and what takes their handles."""
        many = self._bound(members)
        settled, place = getattr(many, "settled", None), _changing(members)
        if settled is None or place is None or hasattr(self.client, "capture"):
            return [i.inputs for i in members], lambda handles: many(handles, targets)
        fixed = [[v if k != place else None for k, v in enumerate(i.inputs)] for i in members]
        again = settled(
            [[None if v is None else _held(v) for v in row] for row in fixed], targets, place
        )
        return [[i.inputs[place] for i in members]], lambda handles: again(*handles)

    def _bound(self, members: list[Instruction]) -> Callable[..., None]:
        plans = [self.plan_of(i) for i in members]
        bind = getattr(self.client, "bind_many", None)
        many: Callable[..., None] | None = None if bind is None else bind(plans)
        if many is not None:
            return many

        def one_by_one(handles: Any, targets: Any) -> None:
            for plan, operands, written in zip(plans, handles, targets, strict=True):
                self.client.update_all(plan, operands, written)

        return one_by_one

    def run(self, look: Callable[[Value], Any]) -> None:
        """Overwrite the state; ``look`` finds operands by value."""
        for operands, update in self.rows:
            update([[look(v) for v in row] for row in operands])


def _changing(members: Sequence[Instruction]) -> int | None:
    """The one place among the operands where all else is state or a constant, or None."""
    places = {
        place
        for i in members
        for place, v in enumerate(i.inputs)
        if v.kind != "constant" and not isinstance(v.payload, Held)
    }
    return places.pop() if len(places) == 1 else None


def _held(value: Value) -> Any:
    """The handle of state or of a constant, or the constant itself."""
    return value.payload.handle if isinstance(value.payload, Held) else value.payload
