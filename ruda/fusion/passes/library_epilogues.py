"""Epilogues of the library: a product ends in the relu or gelu behind it, where it has that."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.partition import Partition
from ruda.fusion.passes.regions import joined


def fuse_library_epilogues(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Let products do a ``relu`` that alone reads them, or a ``gelu``, or begin its gradient."""
    if not hasattr(client, "ends_in_relu"):
        return
    partition = Partition(graph)
    shown = {value.memory for value in wanted}
    for instruction in list(graph.instructions):
        if instruction.plan is None or instruction.op not in ("linear", "matmul"):
            continue
        found = _relu(partition, instruction, shown, client) or _gelu(
            partition, instruction, shown, client
        )
        if found is not None:
            _join(partition, instruction, found, shown, client)
    partition.settle()


def _join(
    partition: Partition, instruction: Instruction, end: Instruction, shown: Set[Value], client: Any
) -> None:
    part = partition.part(instruction)
    partition.join(part, partition.part(end))
    part.made = joined(partition, part, shown | set(end.outputs), client)


def _relu(
    partition: Partition, instruction: Instruction, shown: Set[Value], client: Any
) -> Instruction | None:
    value = instruction.outputs[0]
    readers = partition.users.get(value, [])
    alone = len(readers) == 1 and readers[0].op == "relu" and value not in shown
    able = alone and instruction.op == "linear" and client.ends_in_relu(instruction.plan)
    return readers[0] if able else None


def _gelu(
    partition: Partition, instruction: Instruction, shown: Set[Value], client: Any
) -> Instruction | None:
    """The gelu of the product's result, or the gradient of one that takes it in."""
    value = instruction.outputs[0]
    readers = partition.users.get(value, [])
    ends = [r for r in readers if r.op in ("gelu_tanh", "gelu_tanh_backward")]
    ends = [r for r in ends if r.inputs[0] is value]
    if len(ends) != 1 or value.memory is not value:
        return None
    (end,), keeps = ends, len(readers) > 1 or value in shown
    # A kernel of elementwise operators that reads the result anyway does the gelu for nothing.
    after = [r for v in end.outputs for r in partition.users.get(v, ())]
    if any(r.plan is not None and client.fuses(r.plan) for r in after):
        return None
    able = client.ends_in_gelu(instruction.plan, end.plan, keeps)
    return (
        end
        if able and partition.joinable(partition.part(instruction), partition.part(end))
        else None
    )
