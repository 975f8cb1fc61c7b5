"""Which operators of a graph may run beside the others, because nobody waits for them for long.

Gradients of weights are needed by the optimizer alone, at the end, while the gradient of what came
before is what everything else waits for. Where kernels are too small to fill a device, a second
branch of the graph costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ruda.fusion.graph import Instruction, Value

# An instruction has slack if the longest way through it is shorter than the longest by so many.
_SLACK = 4
# In a graph that is so deep, and more, results that nobody in it reads go beside the deepest one.
_DEEP = 6
# Beyond that a kernel fills the device by itself: bytes that it moves, products that it adds up.
_MOST_BYTES, _MOST_PRODUCTS = 1 << 24, 1 << 29


def branch(instructions: Sequence[Instruction]) -> dict[Instruction, int]:
    """The small instructions that are off the longest way through the graph, and their branches.

    Branch 0 has those with slack, and of those that only the end of the graph waits for products.
    Branch 1 has the rest of these: behind all of branch 0 they could make the end wait.
    """
    makers = {v: i for i in instructions for v in i.outputs}
    up: dict[Instruction, int] = {}
    down: dict[Instruction, int] = dict.fromkeys(instructions, 0)
    sources: dict[Instruction, set[Instruction]] = {}
    for i in instructions:
        sources[i] = {makers[w] for v in i.inputs for w in (v, v.memory) if w in makers}
        up[i] = max((up[s] + _cost(s) for s in sources[i]), default=0)
    for i in reversed(instructions):
        for s in sources[i]:
            down[s] = max(down[s], down[i] + _cost(i))
    total = max((up[i] + _cost(i) + down[i] for i in instructions), default=0)
    read = {s for i in instructions for s in sources[i]}
    ends = [i for i in instructions if i not in read and _cost(i)] if total > _DEEP else []
    deepest = max(reversed(ends), key=up.__getitem__, default=None)
    found = {}
    for i in filter(_is_small, instructions):
        if up[i] + _cost(i) + down[i] + _SLACK <= total:
            found[i] = 0
        elif i in ends and i is not deepest:
            found[i] = 0 if i.plan is not None and i.plan.op.bound == "compute" else 1
    return found


def _cost(instruction: Instruction) -> int:
    return 0 if instruction.plan is None or instruction.plan.shares else 1


def _is_small(instruction: Instruction) -> bool:
    plan = instruction.plan
    if plan is None or plan.shares:
        return False
    specs = [v.spec for v in (*instruction.inputs, *instruction.outputs) if v.spec is not None]
    if sum(spec.nbytes for spec in specs) > _MOST_BYTES:
        return False
    return plan.op.bound != "compute" or _products(plan, instruction.outputs) <= _MOST_PRODUCTS


def _products(plan: Any, outputs: Sequence[Value]) -> int:
    """At most so many products: of all elements of the results with a row of the first operand."""
    size = max((v.spec.size for v in outputs if v.spec is not None), default=0)
    return int(size * math.prod(plan.specs[0].shape[-1:]))
