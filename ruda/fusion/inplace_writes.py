"""Operators that write some elements of a state, such as a cache, do so where it lies.

Out of place each would copy all of the state for the few elements that it writes, and the state
would be copied over at the end once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.sources import Held


def inplace_writes(
    client: Any, graph: Graph, wanted: Sequence[Value], writes: Sequence[tuple[Any, Value]]
) -> dict[Instruction, Any]:
    """The operators that may write into a handle of state, with that handle.

    From the state as it was to its next value there is a chain of such operators, each of which
    has all of what the one before it left; nobody reads the state later as it was in between.
    """
    readers = _Readers(graph, wanted)
    found: dict[Instruction, Any] = {}
    for target, value in writes:
        chain = _chain(client, readers, target, value)
        found.update(dict.fromkeys(chain, target))
    return found


class _Readers:
    """Who makes each value, and who reads its memory last."""

    def __init__(self, graph: Graph, wanted: Sequence[Value]) -> None:
        self.maker: dict[Value, Instruction] = {}
        self.place: dict[Instruction, int] = {}
        self.last: dict[Any, int] = {}
        for i, instruction in enumerate(graph.instructions):
            self.place[instruction] = i
            self.maker.update(dict.fromkeys(instruction.outputs, instruction))
            for value in instruction.inputs:
                self.last[_memory(value)] = i
        for value in wanted:
            self.last[_memory(value)] = len(graph.instructions)

    def overwritable(self, value: Value, instruction: Instruction) -> bool:
        """Whether nobody reads the memory of ``value`` after ``instruction``."""
        return self.last.get(_memory(value), -1) <= self.place[instruction]


def _memory(value: Value) -> Any:
    """What stands for the memory of ``value``: of state its base handle, seen from any view."""
    source = value.memory.payload
    return id(source.handle.root or source.handle) if isinstance(source, Held) else value.memory


def _chain(client: Any, readers: _Readers, target: Any, value: Value) -> list[Instruction]:
    """The operators that lead from ``target`` to ``value``, the last one first; none if not so."""
    chain: list[Instruction] = []
    spec = client.base(target)
    while value.memory is value and value.kind == "result":
        made = readers.maker[value]
        base = made.inputs[0] if made.inputs else None
        if base is None or getattr(made.run, "in_place", None) is None:
            return []
        same = base.spec is spec and value.spec is spec and not _reads(made, base)
        if not same or not readers.overwritable(base, made):
            return []
        chain.append(made)
        value = base.memory
    source = value.payload
    ends = isinstance(source, Held) and source.handle is target and target.root is None
    return chain if ends else []


def _reads(instruction: Instruction, base: Value) -> bool:
    """Whether another operand shows memory of the first."""
    return any(_memory(v) == _memory(base) for v in instruction.inputs[1:])
