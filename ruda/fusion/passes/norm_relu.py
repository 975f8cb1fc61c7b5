"""The gradient of a norm over channels does that of the relu behind the norm as well.

Which elements were above 0 follows from the norm's input, so its result is not read again, and the
gradient that the relu lets through is never in memory.
"""

from __future__ import annotations

from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.tensor.dispatch import OPS

_NORM, _MASK, _WHOLE = "standard_norm", "relu_backward", "standard_norm_relu_backward"


def fuse_norm_relu(graph: Graph, client: Any) -> None:
    """Let gradients of norms take over those of the relu that follows, where ``client`` can."""
    maker = graph.makers()
    for instruction in graph.instructions:
        if instruction.plan is None or instruction.plan.op.name != "standard_norm_backward":
            continue
        norm, mask = _behind(maker, instruction)
        if norm is not None and mask is not None:
            plans = (norm.plan, instruction.plan)
            if all(getattr(client.rows_of(plan), "sees_relu", False) for plan in plans):
                _replace(instruction, norm, mask)


def _behind(
    maker: dict[Value, Instruction], instruction: Instruction
) -> tuple[Instruction | None, Instruction | None]:
    """The norm and the gradient of the relu that reads its result, if they are these."""
    dy, x, weight, mean, var = instruction.inputs
    mask, norm = maker.get(dy), maker.get(mean)
    if mask is None or norm is None or mask.op != _MASK or norm.op != _NORM:
        return None, None
    relu = maker.get(mask.inputs[1])
    if relu is None or relu.op != "relu" or relu.inputs[0] is not norm.outputs[0]:
        return None, None
    same = norm.inputs[:2] == (x, weight) and (mean, var) == tuple(norm.outputs[1:])
    return (norm, mask) if same and mask.inputs[0].spec is dy.spec else (None, None)


def _replace(instruction: Instruction, norm: Instruction, mask: Instruction) -> None:
    _, x, weight, mean, var = instruction.inputs
    inputs = (mask.inputs[0], x, weight, norm.inputs[2], mean, var)
    given = instruction.plan.specs
    specs = (*given[:3], norm.plan.specs[2], *given[3:])
    plan = OPS[_WHOLE].lookup(specs, instruction.plan.attrs)
    instruction.inputs, instruction.plan = inputs, plan
    instruction.op, instruction.run = plan.op.name, plan.run
