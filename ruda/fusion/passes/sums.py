"""Products add what is added to their results, where the library does that as well.

A shortcut beside a layer, or the gradient of earlier calls. It pays where the sum has to be in
memory anyway: an elementwise kernel that alone reads it would have read both.
"""

from __future__ import annotations

from collections.abc import Set
from itertools import pairwise
from typing import Any, NamedTuple

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.flow import Flow
from ruda.fusion.passes.regions import region_of


def fuse_sums(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Let each product that a sum alone reads add the other operand, if that is there before."""
    if not hasattr(client, "ends_in_sum"):
        return
    flow = Flow(graph)
    shown = {value.memory for value in wanted}
    places = {id(i): k for k, i in enumerate(graph.instructions)}
    made = {v: i for i in graph.instructions for v in i.outputs}
    for instruction in list(graph.instructions):
        if instruction.plan is None or instruction.op not in ("linear", "matmul"):
            continue
        if len(flow.part(instruction).members) > 1:
            continue
        steps = _Search(flow, shown, client, places, made).end(instruction)
        if steps:
            _join(flow, instruction, steps, client)
    flow.settle()
    graph.prune(wanted)


def _join(flow: Flow, product: Instruction, steps: tuple[Instruction, ...], client: Any) -> None:
    part, total = flow.part(product), steps[-1]
    for step in steps:
        flow.join(part, flow.part(step))
    part.made = region_of(part.instructions(), lambda value: value in total.outputs, client)


class _Search(NamedTuple):
    """Who reads what, and where makers stand."""

    flow: Flow
    shown: Set[Value]
    client: Any
    places: dict[int, int]
    made: dict[Value, Instruction]

    def end(self, product: Instruction) -> tuple[Instruction, ...]:
        """What ``product`` can end in: perhaps a cast, and a sum; nothing where it cannot."""
        step = self._reader(product)
        cast = step if step is not None and step.plan.op.kind == "cast" else None
        total = step if cast is None else self._reader(cast)
        if total is None or total.op != "add" or total.plan.op.kind == "region":
            return ()
        steps = (total,) if cast is None else (cast, total)
        place = total.inputs.index((cast or product).outputs[0])
        if not self._is_there(total.inputs[1 - place], product) or not self._is_kept(total):
            return ()
        if not self.client.ends_in_sum(product.plan, total.plan, place):
            return ()
        # One after the other: nothing else leads from the product to the sum.
        parts = [self.flow.part(each) for each in (product, *steps)]
        return steps if all(self.flow.joinable(*pair) for pair in pairwise(parts)) else ()

    def _reader(self, maker: Instruction) -> Instruction | None:
        """The one instruction that reads what ``maker`` makes, once."""
        (value,) = maker.outputs
        readers = self.flow.users.get(value, [])
        if len(readers) != 1 or value in self.shown or value.memory is not value:
            return None
        reader = readers[0]
        alone = len(self.flow.part(reader).members) == 1 and reader.inputs.count(value) == 1
        return reader if alone and reader.plan is not None else None

    def _is_there(self, value: Value, product: Instruction) -> bool:
        """Whether ``value`` is in memory before the product stands: nothing is put off for it."""
        maker = self.made.get(value.memory)
        if maker is None:
            return True
        # What this sum alone reads is rather computed where it is read.
        fusible = maker.plan is not None and self.client.fuses(maker.plan)
        alone = fusible and len(self.flow.users[value]) == 1 and value not in self.shown
        return self.places[id(maker)] < self.places[id(product)] and not alone

    def _is_kept(self, total: Instruction) -> bool:
        """Whether the sum has to be in memory, whoever computes it."""
        (value,) = total.outputs
        readers = self.flow.users.get(value, [])
        if value in self.shown or len(readers) != 1:
            return True
        plan = readers[0].plan
        return plan is None or not (self.client.fuses(plan) or self.client.rows_of(plan))
