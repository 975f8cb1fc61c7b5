"""Whether copies of arguments and results would cost a captured step more than it saves.

A graph saves launches. Where arguments and results are so large that copying them takes longer than
launching all operators, launches hide behind the work, and a graph would save nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.sources import Argument

# Bytes that are copied in a second, each read and written; seconds to launch one operator.
_COPIED, _LAUNCH = 2e12, 2e-5


def copies_outweigh_launches(graph: Graph, wanted: Iterable[Value]) -> bool:
    """Whether copies of arguments and results take longer than launches of the operators."""
    given = {v for v in graph.inputs if isinstance(v.payload, Argument)}
    made = {v.memory for v in wanted if v.memory.kind == "result"}
    nbytes = sum(v.spec.nbytes for v in given | made if v.spec is not None)
    return nbytes / _COPIED > _LAUNCH * sum(map(_is_launched, graph.instructions))


def _is_launched(instruction: Instruction) -> bool:
    return instruction.plan is not None and not instruction.plan.shares
