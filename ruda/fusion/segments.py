"""Runs of operators that a client does in one call, for devices that do not capture a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import groupby
from typing import Any

from ruda.fusion.graph import Instruction, Value
from ruda.fusion.passes.regions import region_of
from ruda.fusion.sources import Held


def join(
    client: Any, instructions: Sequence[Instruction], wanted: Sequence[Value]
) -> list[Instruction]:
    """``instructions`` with one in the place of each run that ``client`` does in one call.

    ``wanted`` are the values that somebody else needs.
    """
    plans = [i.plan for i in instructions if i.plan is not None]
    if not hasattr(client, "bind_segment") or not client.worthwhile(plans):
        return list(instructions)
    users: dict[Value, list[Instruction]] = {}
    for instruction in instructions:
        for value in instruction.inputs:
            users.setdefault(value, []).append(instruction)
    out: list[Instruction] = []
    for fits, found in groupby(instructions, lambda instruction: _fits(client, instruction)):
        members = list(found)
        if not fits or not client.worthwhile([m.plan for m in members]):
            out += members
        else:
            out += _joined(client, members, users, set(wanted))
    return out


def _fits(client: Any, instruction: Instruction) -> bool:
    plan = instruction.plan
    if plan is None or plan.op.kind == "region" or plan.out is None:
        return False
    pairs = zip(instruction.inputs, plan.specs, strict=True)
    if any(s.weak and v.kind != "constant" for v, s in pairs):
        return False
    return client.joins(plan)  # type: ignore[no-any-return]


def _joined(
    client: Any,
    members: list[Instruction],
    users: dict[Value, list[Instruction]],
    wanted: Set[Value],
) -> Iterator[Instruction]:
    """The one instruction, and behind it the views that others take of what it makes."""
    inside = set(members)
    leaving = {
        v
        for m in members
        for v in m.outputs
        if v in wanted or any(u not in inside for u in users.get(v, ()))
    }
    views, missing = [], set(leaving)
    for member in reversed(members):
        if member.plan.shares and member.outputs[0] in missing:
            views.append(member)
            missing.update(member.inputs)
    again = {v for view in views for v in view.inputs}
    own = {m for m in members if not m.plan.shares or _read(m, users, inside)}
    made = [m for m in members if m in own]
    kept = {v for m in made for v in m.outputs if not m.plan.shares and v in (leaving | again)}

    def bind(region: Any, inputs: Sequence[Value]) -> Any:
        values = {
            i: v.payload
            for i, (v, s) in enumerate(zip(inputs, region.specs, strict=True))
            if s.weak
        }
        held = {i for i, v in enumerate(inputs) if isinstance(v.payload, Held)}
        held |= {i for i, v in enumerate(inputs) if v.kind == "constant"}
        return client.bind_segment(region, values, held)

    whole = region_of(made, kept.__contains__, client, bind)
    whole.run.members = made  # type: ignore[attr-defined]
    yield whole
    yield from reversed(views)


def _read(view: Instruction, users: dict[Value, list[Instruction]], inside: Set[Any]) -> bool:
    """Whether an operator of the run reads what a view shows."""
    return any(u in inside for u in users.get(view.outputs[0], ()))
