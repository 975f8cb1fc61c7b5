"""Prologues of elementwise groups: gathers, padding and random draws that their operands come from.

Such an operator reads memory where its indices, widths or parts say, or reads nothing at all, so it
can run wherever its result is used. A group that reads the result makes it itself; if anything else
needs it, the group writes it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.fusion.graph import Instruction, Value

# Scalars that may change from call to call: a kernel finds them where the draw is noted.
_NOTED = ("seed", "draw")


def is_prologue(instruction: Instruction, client: Any) -> bool:
    """Whether ``client`` can run ``instruction`` inside of the kernel that reads its result."""
    plan = instruction.plan
    if plan is None or plan.op.kind == "region" or not hasattr(client, "leads"):
        return False
    return bool(client.leads(plan)) and is_settled(instruction)


def read_apart(members: Sequence[Instruction], client: Any) -> bool:
    """Whether at most one member is a prologue, of operands that lie in memory for it alone."""
    prologues = [m for m in members if is_prologue(m, client)]
    if len(prologues) > 1:
        return False
    made = {v for m in members for v in m.outputs}
    own = {v for m in prologues for v in m.inputs}
    others = {v for m in members if m not in prologues for v in m.inputs}
    return not any(v in made or v.memory in made or v in others for v in own)


def is_settled(instruction: Instruction) -> bool:
    """Whether no scalar that a kernel is given by value alone changes from call to call."""
    op = instruction.plan.op
    if op.expr is not None or op.kind in ("cast", "copy"):
        return True
    pairs = zip(op.args, instruction.inputs, strict=False)
    return all(
        value.spec is not None or value.kind == "constant" or name in _NOTED
        for name, value in pairs
    )


def take_prologues(
    groups: list[Any],
    home: dict[Value, Any],
    client: Any,
    most: tuple[int, int],
) -> list[Any]:
    """Let each group of elementwise operators take over its prologues; returns the groups left.

    A group has at most ``most`` steps and operands. ``home`` has the group that makes each value.
    """
    alone = {g.bit: g for g in groups if len(g.members) == 1 and is_prologue(g.members[0], client)}
    if not alone:
        return groups
    gone: set[int] = set()
    for group in groups:
        if not group.shape or group.bit in gone:
            continue
        for value in [v for m in group.members for v in m.inputs]:
            prologue = home.get(value)
            if prologue is None or prologue.bit not in alone or prologue.bit in gone:
                continue
            left = [g for g in groups if g.bit not in gone]
            if _suits(group, prologue, most) and not _is_between(group, prologue, left):
                _merge(group, prologue, left)
                gone.add(prologue.bit)
                home.update((v, group) for v in prologue.members[0].outputs)
    return [g for g in groups if g.bit not in gone]


def _suits(group: Any, prologue: Any, most: tuple[int, int]) -> bool:
    first = prologue.members[0]
    if first.plan.out.shape != group.shape:
        return False
    members: Sequence[Instruction] = [first, *group.members]
    made = {v for m in members for v in m.outputs}
    read = {v for m in members for v in m.inputs if v not in made}
    if len(members) > most[0] or len(read) > most[1]:
        return False
    # What it reads lies in memory already, and what it makes is read as it is.
    if any(v in made or v.memory in made for v in first.inputs):
        return False
    return not any(v.memory in made and v not in made for m in members for v in m.inputs)


def _is_between(group: Any, prologue: Any, groups: list[Any]) -> bool:
    """Whether something has to run after one of the two and before the other."""
    if prologue.before & group.bit:
        return True
    return any(g.before & prologue.bit and group.before & g.bit for g in groups if g is not group)


def _merge(group: Any, prologue: Any, groups: list[Any]) -> None:
    # It reads nothing that the others make, so it can stand in front of them.
    group.members.insert(0, prologue.members[0])
    group.before = (group.before | prologue.before) & ~(prologue.bit | group.bit)
    for other in groups:
        if other is not group and other.before & (prologue.bit | group.bit):
            other.before = other.before & ~prologue.bit | group.bit | group.before
