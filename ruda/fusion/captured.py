"""A traced step as one thing that the device repeats by itself: on CUDA a graph.

Everything that differs between calls lies at fixed places: arguments are copied into slots, Python
scalars into a page, state stays where it is and is overwritten at the end. What leaves the step is
copied out, so that the next replay may overwrite it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ruda.fusion.branches import branch
from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.replay import Replay
from ruda.fusion.state import Held
from ruda.fusion.tree import Given
from ruda.fusion.updates import Updates, in_place


class Uncapturable(Exception):
    """The step has to be replayed operator by operator; the text says why."""


class Captured:
    """A capture of ``graph``. ``writes`` are pairs of a handle of state and its next value."""

    def __init__(
        self,
        client: Any,
        graph: Graph,
        wanted: Sequence[Value],
        writes: Sequence[tuple[Any, Value]],
    ) -> None:
        self.client = client
        self.calculations = [i for i in graph.instructions if i.plan is None]
        self.fixed: dict[Value, Value] = {}
        self.arguments: list[tuple[Any, Any, Any]] = []
        self.states: list[tuple[Any, int]] = []
        self._place_scalars(graph)
        self._place_inputs(graph)
        found = in_place(client, graph, wanted, writes)
        # Kept, as its kernels look at tables of addresses that are its own.
        self.updates = updates = Updates(client, found, writes)
        inner = Graph()
        inside = [i for i in graph.instructions if i.plan is not None and i not in found]
        aside = branch(inside)
        inner.instructions = [self._fixed(i, i in aside) for i in inside]
        rest = [(t, v) for t, v in writes if v not in updates.overwritten]
        kept = [v for v in wanted if v not in updates.overwritten]
        needed = [*kept, *(v for _, v in rest), *updates.inputs]
        # Kept as well: its operators own memory that their captured kernels work in.
        self.replay = replay = Replay(inner, [self.fixed.get(v, v) for v in needed])

        def queue() -> list[Any]:
            if self.page is not None:
                self.page.declare()
            slots = replay.run(None)  # type: ignore[arg-type]
            # Before the plain writes: a state that an update reads may be the target of one.
            updates.run(lambda value: look(slots, value))
            for target, value in rest:
                client.write(target.spec, target, value.spec, look(slots, value))
            return slots

        def look(slots: list[Any], value: Value) -> Any:
            value = self.fixed.get(value, value)
            register = replay.registers.get(value)
            return value.payload if register is None else slots[register]

        self.graph, slots = client.capture(queue)
        made = {v for v in kept if v.spec is not None}
        self.static = {v: look(slots, v) for v in made | {v.memory for v in made}}

    def _place_scalars(self, graph: Graph) -> None:
        """A place in the page for each scalar that an operator takes."""
        given = [v for v in graph.inputs if v.kind == "scalar"]
        known = {*given, *(i.outputs[0] for i in self.calculations)}
        used = (v for i in graph.instructions if i.plan is not None for v in i.inputs)
        self.numbers = [v for v in dict.fromkeys(used) if v in known]
        self.page = self.client.page(len(self.numbers)) if self.numbers else None
        for i, value in enumerate(self.numbers):
            self.fixed[value] = Value("constant", None, self.page.slots[i])
        self.scalars = given

    def _place_inputs(self, graph: Graph) -> None:
        for value in graph.inputs:
            source = value.payload
            if value.kind == "scalar":
                continue
            if isinstance(source, Held):
                self.states.append((source.handle, self.client.address(source.handle)))
                self.fixed[value] = Value("constant", value.spec, source.handle)
                continue
            slot = self.client.slot(value.spec)
            self.arguments.append((slot, value.spec, source))
            self.fixed[value] = Value("constant", value.spec, slot)

    def _fixed(self, instruction: Instruction, aside: bool) -> Instruction:
        """``instruction`` on the fixed places, reading its scalars from the page."""
        places = tuple(i for i, v in enumerate(instruction.inputs) if v in self.numbers)
        run = instruction.run
        if places:
            run = self.client.paged(instruction.plan, places)
            if run is None:
                raise Uncapturable(f"{instruction.op} takes a number that changes by value")
        run = self.client.watched(instruction.plan, run)
        if aside:
            run = self.client.beside(run)
        inputs = [self.fixed.get(v, v) for v in instruction.inputs]
        made = Instruction(instruction.op, run, inputs, instruction.outputs)
        made.plan, made.line = instruction.plan, instruction.line
        return made

    def fits(self) -> bool:
        """Whether all state is where it was."""
        address = self.client.address
        return all(address(handle) == at for handle, at in self.states)

    def run(self, given: Given) -> Callable[[Value], Any]:
        """One replay; returns what finds the values that leave it."""
        client = self.client
        for slot, spec, source in self.arguments:
            client.write(spec, slot, spec, source.fetch(given))
        numbers = self._numbers(given)
        if self.page is not None:
            self.page.store([numbers[v] for v in self.numbers])
        self.graph.replay()
        made: dict[Value, Any] = {}

        def look(value: Value) -> Any:
            if value.spec is None:
                return numbers.get(value, value.payload)
            return self._outside(value, given, made)

        return look

    def _numbers(self, given: Given) -> dict[Value, Any]:
        numbers = {value: value.payload.fetch(given) for value in self.scalars}
        for calculation in self.calculations:
            operands = (numbers.get(v, v.payload) for v in calculation.inputs)
            numbers[calculation.outputs[0]] = calculation.run(*operands)
        return numbers

    def _outside(self, value: Value, given: Given, made: dict[Value, Any]) -> Any:
        """A handle of ``value`` that no replay overwrites."""
        found = made.get(value)
        if found is not None:
            return found
        if value.kind == "constant":
            return value.payload
        if value.kind != "result":
            found = value.payload.fetch(given)
        elif value.memory is value:
            found = self.client.copied(self.static[value], value.spec)
        else:
            root = self._outside(value.memory, given, made)
            shown, base = self.static[value], self.static[value.memory]
            found = self.client.shown(root, value.spec, shown, base)
        made[value] = found
        return found
