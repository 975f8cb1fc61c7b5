"""Operators whose result may lie where an operand lay that they are the last to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ruda.fusion.graph import Instruction, Value

# Less is not worth the care: a graph's memory is laid out in larger pieces.
_LEAST = 1 << 16


def donations(
    client: Any, instructions: Sequence[Instruction], kept: Iterable[Value]
) -> dict[Instruction, tuple[int, ...]]:
    """For each such operator the places of operands whose memory it may have.

    ``kept`` are the values that are read behind ``instructions``, which run in their order.
    """
    if not hasattr(client, "replaces"):
        return {}
    last = {v.memory: i for i, instruction in enumerate(instructions) for v in instruction.inputs}
    last |= dict.fromkeys((v.memory for v in kept), len(instructions))
    found = {}
    for i, instruction in enumerate(instructions):
        plan = instruction.plan
        if plan is None or plan.out is None or max(v.nbytes for v in instruction.outputs) < _LEAST:
            continue
        inputs = instruction.inputs
        memories = [v.memory for v in inputs]
        places = tuple(
            k
            for k in client.replaces(plan)
            if memories[k].kind == "result"
            and last[memories[k]] == i
            # Read through another view as well, an element would be overwritten too early.
            and memories.count(memories[k]) == 1
            and inputs[k].nbytes == memories[k].nbytes
        )
        if places:
            found[instruction] = places
    return found
