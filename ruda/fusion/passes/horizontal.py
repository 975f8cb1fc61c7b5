"""One row on many tensors of state is one launch: the casts of all weights under autocast."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.partition import Partition
from ruda.fusion.passes.regions import region_of


def fuse_horizontally(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Join the operators of one row and one pair of dtypes that read state alone."""
    if not hasattr(client, "joins_siblings"):
        return
    families: dict[Any, list[Instruction]] = {}
    for instruction in graph.instructions:
        plan = instruction.plan
        if plan is None or plan.out is None or plan.out.__class__ is tuple or plan.shares:
            continue
        of_state = all(v.kind == "state" for v in instruction.inputs) and instruction.inputs
        if plan.op.kind != "region" and of_state and client.joins_siblings(plan):
            key = plan.op, plan.attrs, plan.specs[0].dtype, plan.out.dtype
            families.setdefault(key, []).append(instruction)
    if not any(len(members) > 1 for members in families.values()):
        return
    partition = Partition(graph)
    for members in families.values():
        part = partition.part(members[0])
        for other in members[1:]:
            partition.join(part, partition.part(other))
        if len(members) > 1:
            part.made = region_of(part.instructions(), lambda value: True, client)
    partition.settle()
