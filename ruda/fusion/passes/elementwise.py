"""Elementwise operators of one shape become one: what is read and written once is not twice.

An operator joins an earlier group unless that would make the group wait for itself: unless one of
its operands comes from a group that in turn waits for the one it would join.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.prologues import is_prologue, is_settled, take_prologues
from ruda.fusion.passes.regions import region_of

# A kernel has 4 KiB for its parameters, and few registers; a region stays well below.
_MOST_STEPS, _MOST_OPERANDS = 48, 24
# Elements of an operator that may join another it has nothing to do with.
_SMALL = 1 << 14
# How many groups of its shape an operator looks back at.
_LOOK_BACK = 8


class _Group:
    """Instructions that run as one, and as bits of a number the groups that have to run before."""

    __slots__ = ("before", "bit", "members", "shape")

    def __init__(self, number: int, shape: Any) -> None:
        self.bit = 1 << number
        self.before = 0
        self.shape = shape
        self.members: list[Instruction] = []


def fuse_elementwise(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Replace groups of two operators and more, which ``client`` has to accept one by one."""
    if not hasattr(client, "fuses"):
        return
    groups, home = _grouped(graph, client)
    groups = take_prologues(groups, home, client, (_MOST_STEPS, _MOST_OPERANDS))
    uses = _users(graph)
    fused = [(g, _fused(g, wanted, uses, client) if len(g.members) > 1 else None) for g in groups]
    graph.instructions = _in_order(fused)


def _grouped(graph: Graph, client: Any) -> tuple[list[_Group], dict[Value, _Group]]:
    """The groups, and the one that each value is made by."""
    groups: list[_Group] = []
    home: dict[Value, _Group] = {}
    open_groups: dict[Any, list[_Group]] = {}
    for instruction in graph.instructions:
        sources = {home[v].bit: home[v] for v in instruction.inputs if v in home}
        # A view shows memory that somebody wrote.
        sources |= {
            home[v.memory].bit: home[v.memory] for v in instruction.inputs if v.memory in home
        }
        shape = _shape(instruction, client)
        group = _place(open_groups.get(shape, []), sources, instruction) if shape else None
        if group is None:
            group = _Group(len(groups), shape)
            groups.append(group)
            if shape:
                recent = open_groups.setdefault(shape, [])
                recent.append(group)
                del recent[:-_LOOK_BACK]
        group.members.append(instruction)
        _follow(group, sources.values(), groups)
        home.update((value, group) for value in instruction.outputs)
    return groups, home


def _follow(group: _Group, sources: Iterable[_Group], groups: list[_Group]) -> None:
    """Note that ``sources`` run before ``group``, and so before all that follow it."""
    added = 0
    for source in sources:
        if source is not group:
            added |= source.bit | source.before
    if added & ~group.before:
        group.before |= added
        for other in groups:
            if other.before & group.bit:
                other.before |= added


def _shape(instruction: Instruction, client: Any) -> Any:
    """What regions of ``instruction`` have in common, or None if it cannot be in one."""
    plan = instruction.plan
    if plan is None or plan.out is None or plan.out.__class__ is tuple or plan.shares:
        return None
    if plan.out.size == 0 or not client.fuses(plan) or not is_settled(instruction):
        return None
    # It joins the group that needs it, once that is known.
    if is_prologue(instruction, client):
        return None
    return plan.out.shape


def _place(recent: list[_Group], sources: dict[int, _Group], instruction: Instruction) -> Any:
    """The latest group that ``instruction`` reads from, or shares an operand with.

    Small ones that have nothing in common go together as well: launching is all that they cost.
    """
    able = [g for g in recent if _fits(g, sources, instruction)]
    reading = [g for g in able if g.bit in sources]
    sharing = reading or [g for g in able if _shares(g, instruction)]
    small = instruction.plan.out.size <= _SMALL
    found = sharing or (able if small else [])
    return found[-1] if found else None


def _shares(group: _Group, instruction: Instruction) -> bool:
    """Whether both read the elements of one value."""
    shape = instruction.plan.out.shape
    whole = {v for v in instruction.inputs if v.spec is not None and v.spec.shape == shape}
    return any(v in whole for member in group.members for v in member.inputs)


def _fits(group: _Group, sources: dict[int, _Group], instruction: Instruction) -> bool:
    if len(group.members) >= _MOST_STEPS or len(_operands(group, instruction)) > _MOST_OPERANDS:
        return False
    if any(s.before & group.bit for s in sources.values() if s is not group):
        return False
    # What a checkpoint runs again is not done when it runs first.
    if instruction.turn not in (None, *(m.turn for m in group.members)):
        return False
    made = {v for m in group.members for v in m.outputs}
    # What a member makes is read as it is, not through a view, whose elements lie elsewhere.
    return all(v in made or v.memory not in made for v in instruction.inputs)


def _operands(group: _Group, more: Instruction) -> set[Value]:
    members = [*group.members, more]
    made = {v for m in members for v in m.outputs}
    return {v for m in members for v in m.inputs if v not in made}


def _users(graph: Graph) -> dict[Value, list[Instruction]]:
    users: dict[Value, list[Instruction]] = {}
    for instruction in graph.instructions:
        for value in instruction.inputs:
            users.setdefault(value, []).append(instruction)
            if value.memory is not value:
                users.setdefault(value.memory, []).append(instruction)
    return users


def _fused(
    group: _Group, wanted: Set[Value], users: dict[Value, list[Instruction]], client: Any
) -> Instruction:
    """One instruction for all members of ``group``."""
    inside = set(map(id, group.members))
    shown = {value.memory for value in wanted}

    def kept(value: Value) -> bool:
        return value in shown or any(id(user) not in inside for user in users.get(value, ()))

    return region_of(group.members, kept, client)


def _in_order(fused: list[tuple[_Group, Instruction | None]]) -> list[Instruction]:
    """All instructions such that each stands behind those it waits for, else as they stood."""
    out: list[Instruction] = []
    done = 0
    waiting = list(fused)
    while waiting:
        rest = []
        for group, instruction in waiting:
            if group.before & ~done:
                rest.append((group, instruction))
                continue
            done |= group.bit
            out += group.members if instruction is None else [instruction]
        waiting = rest
    return out
