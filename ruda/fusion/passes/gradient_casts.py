"""An optimizer's row reads a gradient as it came, without the cast to a wider dtype between."""

from __future__ import annotations

from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.algebra import widens


def read_uncast_gradients(graph: Graph, client: Any) -> None:
    """Let rows ``..._step`` read the operand of a widening cast in place of its result."""
    if not hasattr(client, "joins_siblings"):
        return
    makers = graph.makers()
    graph.instructions = [_direct(i, makers) for i in graph.instructions]


def _direct(instruction: Instruction, makers: dict[Value, Instruction]) -> Instruction:
    plan = instruction.plan
    if plan is None or plan.op.kind == "region" or not plan.op.name.endswith("_step"):
        return instruction
    if plan.op.args[1:2] != ("g",):
        return instruction
    cast = makers.get(instruction.inputs[1])
    if cast is None or not widens(cast.plan) or not cast.plan.specs[0].contiguous:
        return instruction
    given = cast.plan.specs[0]
    other = plan.op.lookup((plan.specs[0], given, *plan.specs[2:]), plan.attrs)
    if other.out != plan.out:
        return instruction
    inputs = (instruction.inputs[0], cast.inputs[0], *instruction.inputs[2:])
    return instruction.but(other, inputs=inputs)
