"""Common subexpressions: an operator that has run on the same values is not run again."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value


def merge_common_subexpressions(graph: Graph, wanted: Set[Value]) -> None:
    """Let users of a repeated result read the first one.

    What leaves the step keeps memory of its own, and so do the views of it. Random operators take
    the number of their draw as an operand, so no two of them are the same. What a checkpoint runs
    again is asked for twice.
    """
    owned = {value.memory for value in wanted}
    first: dict[Any, Instruction] = {}
    instead: dict[Value, Value] = {}
    kept = []
    for instruction in graph.instructions:
        instruction.follow(instead)
        found = first.setdefault(_key(instruction), instruction)
        replaceable = not any(v in wanted or v in owned for v in instruction.outputs)
        if found is instruction or not replaceable:
            kept.append(instruction)
            continue
        instead.update(zip(instruction.outputs, found.outputs, strict=True))
    graph.instructions = kept


def _key(instruction: Instruction) -> Any:
    inputs = tuple(_identity(value) for value in instruction.inputs)
    # A calculation with Python scalars has a function in place of a plan.
    what = instruction.run if instruction.plan is None else instruction.plan
    return (id(what), instruction.turn, inputs)


def _identity(value: Value) -> Any:
    if value.kind != "constant" or value.spec is not None:
        return id(value)
    # 1, 1.0 and True are equal and not the same, and neither are the two zeros.
    return (value.payload.__class__, repr(value.payload))
