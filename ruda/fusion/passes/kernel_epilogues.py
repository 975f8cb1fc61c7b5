"""Epilogues of our own kernel: activations, their gradients, masks, sums behind small products.

Where a device multiplies small matrices by a kernel of its own, that kernel can go on with its
results while they are in registers. What rows and reductions have taken over is left to them.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.partition import Part, Partition
from ruda.fusion.passes.regions import joined

# A thread ends a few elements at a time, and has few registers left.
_MOST_STEPS, _MOST_READ, _MOST_WRITTEN = 8, 3, 3


def fuse_kernel_epilogues(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Let each product that ``client`` has a kernel of its own for take over what follows it."""
    if not hasattr(client, "ends_steps"):
        return
    partition = Partition(graph)
    shown = {value.memory for value in wanted}
    for instruction in list(graph.instructions):
        if not client.ends_steps(instruction.plan) or len(partition.part(instruction).members) > 1:
            continue
        part = partition.part(instruction)
        while _behind(partition, part, instruction, shown, client):
            pass
        if len(part.members) > 1:
            part.made = joined(partition, part, shown, client)
    partition.settle()


def _behind(
    partition: Partition, part: Part, core: Instruction, shown: Set[Value], client: Any
) -> bool:
    """Join one reader of what ``part`` makes."""
    made = [value for _, member in part.members for value in member.outputs]
    for user in [user for value in made for user in partition.users.get(value, ())]:
        other = partition.part(user)
        able = other is not part and len(other.members) == 1 and user.plan is not None
        if not able or not client.ends_in_step(core.plan, user.plan):
            continue
        if _fits(partition, part, user, shown) and partition.joinable(part, other):
            partition.join(part, other)
            return True
    return False


def _fits(partition: Partition, part: Part, user: Instruction, shown: Set[Value]) -> bool:
    core = part.instructions()[0]
    members = [*part.instructions(), user]
    made = {v for m in members for v in m.outputs}
    read = {v for m in members if m is not core for v in m.inputs if v not in made}
    inside = set(map(id, members))
    written = [
        v
        for v in made
        if v in shown or any(id(u) not in inside for u in partition.users.get(v, ()))
    ]
    few = len(read) <= _MOST_READ and len(written) <= _MOST_WRITTEN
    return few and len(members) <= _MOST_STEPS + 1
