"""Running a graph: a flat list of steps over registers, then one commit.

A register is used again as soon as its value is dead, and emptied at once where that value is
large, so memory is freed where eager code would free it.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.pytree import Given
from ruda.fusion.sources import Held

# A register that keeps less than this is emptied by its next value.
_LARGE = 1 << 16


class Replay:
    """The steps of a graph. ``results`` are the values that are still there after a run."""

    def __init__(self, graph: Graph, results: Iterable[Value]) -> None:
        self.registers: dict[Value, int] = {}
        self.template: list[Any] = []
        self.fetches: list[tuple[int, Any]] = []
        # (run, first input, second input or -1, None, output), and for operators of another arity
        # (run, -1, -1, getter of the inputs, output): calling with a tuple takes 120 ns longer.
        self.steps: list[tuple[Any, int, int, Any, int]] = []
        self.lines: list[Instruction] = []
        self._free: list[int] = []
        # Registers that are free and still hold something large.
        self._stale: list[int] = []
        last = _last_uses(graph, results)
        for value in graph.inputs:
            self._enter(value)
        for instruction in graph.instructions:
            for value in instruction.inputs:
                if value.kind == "constant" and value not in self.registers:
                    self._enter(value)
        for i, instruction in enumerate(graph.instructions):
            self._append(instruction, i, last)

    def _enter(self, value: Value) -> None:
        """A register for what comes from outside; it is never used for another value."""
        register = self.registers[value] = len(self.template)
        source = value.payload
        if value.kind == "constant" or isinstance(source, Held):
            self.template.append(source.handle if isinstance(source, Held) else source)
        else:
            self.template.append(None)
            self.fetches.append((register, source))

    def _append(self, instruction: Instruction, i: int, last: dict[Value, int]) -> None:
        inputs = [self.registers[value] for value in instruction.inputs]
        # Before the output gets its register, so that it may take over that of a dying input.
        for value in set(instruction.inputs):
            if value.kind == "result" and last[value] == i:
                self._release(self.registers[value], _size(value))
        outputs = instruction.outputs
        if not instruction.several:
            register = self._register(outputs[0])
            self._step(instruction, inputs, register)
            if outputs[0] not in last:
                self._release(register, _size(outputs[0]))
        else:
            whole = self._register(None)
            self._step(instruction, inputs, whole)
            for k, value in enumerate(outputs):
                if value in last:
                    self._step(instruction, [whole], self._register(value), itemgetter(k))
            self._release(whole, max(map(_size, outputs)))
        for register in self._stale:
            self.steps.append((_nothing_left, -1, -1, _nothing, register))
            self.lines.append(instruction)
        self._stale.clear()

    def _release(self, register: int, size: int) -> None:
        self._free.append(register)
        if size >= _LARGE:
            self._stale.append(register)

    def _step(self, instruction: Instruction, inputs: list[int], out: int, run: Any = None) -> None:
        places: tuple[int, int, Any]
        if 1 <= len(inputs) <= 2:
            places = (inputs[0], inputs[1] if len(inputs) == 2 else -1, None)
        else:
            places = (-1, -1, itemgetter(*inputs) if inputs else _nothing)
        self.steps.append((run or instruction.run, *places, out))
        self.lines.append(instruction)

    def _register(self, value: Value | None) -> int:
        if self._free:
            register = self._free.pop()
            if register in self._stale:
                self._stale.remove(register)
        else:
            register = len(self.template)
            self.template.append(None)
        if value is not None:
            self.registers[value] = register
        return register

    def joined(self) -> str:
        """How many operators are done in how many calls together, for people."""
        found = [
            len(members) for step in self.steps if (members := getattr(step[0], "members", ()))
        ]
        return f", {sum(found)} of them in {len(found)} call(s)" if found else ""

    def run(self, given: Given) -> list[Any]:
        """Run all steps on the arguments of a call; returns the registers."""
        slots = self.template.copy()
        for register, source in self.fetches:
            slots[register] = source.fetch(given)
        step: Any = None
        try:
            for step in self.steps:
                run, i, j, get, out = step
                if j >= 0:
                    slots[out] = run(slots[i], slots[j])
                elif i >= 0:
                    slots[out] = run(slots[i])
                else:
                    slots[out] = run(*get(slots))
        except Exception as error:
            place = next((i for i, s in enumerate(self.steps) if s is step), None)
            if place is not None:
                instruction = _culprit(step[0], self.lines[place])
                error.add_note(f"in a compiled step: {instruction.op}, at {instruction.line}")
            raise
        return slots


def _culprit(run: Any, instruction: Instruction) -> Instruction:
    """The operator that raised: one of those that ``run`` does in one call, if it does so."""
    members, failed = getattr(run, "members", ()), getattr(run, "failed", None)
    return members[failed] if members and failed is not None else instruction


def _last_uses(graph: Graph, results: Iterable[Value]) -> dict[Value, int]:
    """For each value that is used, the place of the instruction that uses it last."""
    last: dict[Value, int] = {}
    for i, instruction in enumerate(graph.instructions):
        for value in instruction.inputs:
            last[value] = i
    for value in results:
        last[value] = len(graph.instructions)
    return last


def _nothing(slots: list[Any]) -> tuple[()]:
    """The inputs of an operator without any."""
    return ()


def _nothing_left() -> None:
    """What an emptied register holds."""


def _size(value: Value) -> int:
    """Bytes of the memory that ``value`` shows."""
    spec = value.memory.spec or value.spec
    return 0 if spec is None else spec.nbytes
