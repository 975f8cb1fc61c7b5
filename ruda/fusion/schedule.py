"""The schedule of a graph: operators run right before their first reader, if that lowers the peak.

Eager code makes a mask or a table at its top and reads it at its end; the graph makes it when it is
read, unless more memory of its operands would have to be kept for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.liveness import Profile


def live_bytes(graph: Graph, wanted: Sequence[Value], updates: Any = None) -> int:
    """The most bytes of results that are in use at a time when ``graph`` runs in its order."""
    overwritten = frozenset() if updates is None else updates.overwritten
    return Profile(graph.instructions, wanted, absent=overwritten).peak


def lower_peak(graph: Graph, wanted: Sequence[Value]) -> None:
    """Put operators right before their first reader where that lowers the peak."""
    before, order = live_bytes(graph, wanted), graph.instructions
    graph.instructions = _late(order, wanted)
    if live_bytes(graph, wanted) >= before:
        graph.instructions = order


def _late(order: Sequence[Instruction], wanted: Sequence[Value]) -> list[Instruction]:
    number = {instruction: i for i, instruction in enumerate(order)}
    # Before which operator of the order each one goes: itself, or its first reader.
    place = dict(number)
    made = {value for instruction in order for value in instruction.outputs}
    first: dict[Value, int] = {}
    last = dict.fromkeys((v.memory for v in wanted), len(order))
    # From the end on, so that what only waits for an operator goes with it.
    for instruction in reversed(order):
        readers = [first[v] for v in instruction.outputs if v in first]
        held = {v.memory for v in instruction.inputs if v.memory in made}
        kept = sum(m.nbytes for m in held if last.get(m, -1) < min(readers, default=0))
        if readers and kept <= sum(v.nbytes for v in instruction.outputs if v.memory is v):
            place[instruction] = min(readers)
        at = place[instruction]
        for value in instruction.inputs:
            for shown in (value, value.memory):
                first[shown] = min(first.get(shown, at), at)
            last[value.memory] = max(last.get(value.memory, -1), at)
    return sorted(order, key=lambda instruction: (place[instruction], number[instruction]))
