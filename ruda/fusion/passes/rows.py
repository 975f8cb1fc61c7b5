"""Norms, softmaxes and losses take over what is done to each element before and behind them.

An elementwise operator of the rows' shape joins the row operator that it feeds or reads. A cast
to a wider dtype is done by everyone who reads its result, so it costs nothing and its result need
not exist.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.algebra import widens
from ruda.fusion.passes.norm_relu import fuse_norm_relu
from ruda.fusion.passes.partition import Partition
from ruda.fusion.passes.prologues import read_apart
from ruda.fusion.passes.regions import joined

# What a kernel over rows can do besides: a thread has to keep all operands in registers.
_MOST_STEPS, _MOST_READ = 16, 5


def fuse_rows(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Let each operator over rows that ``client`` has a kernel for take over its surroundings."""
    if not hasattr(client, "rows_of"):
        return
    fuse_norm_relu(graph, client)
    graph.prune(wanted)
    partition = Partition(graph)
    shown = {value.memory for value in wanted}
    for instruction in list(graph.instructions):
        plan = instruction.plan
        facts = None if plan is None or plan.op.kind == "region" else client.rows_of(plan)
        if facts is None or len(partition.part(instruction).members) > 1:
            continue
        joining = _Joining(partition, client, instruction, facts)
        joining.run()
        if len(joining.part.members) > 1:
            joining.part.made = joined(partition, joining.part, shown, client)
    partition.settle()
    graph.prune(wanted)


class _Joining:
    """One row operator and what joins it."""

    def __init__(self, partition: Partition, client: Any, core: Instruction, facts: Any) -> None:
        self.partition, self.client, self.core, self.facts = partition, client, core, facts
        self.part = partition.part(core)

    def run(self) -> None:
        """Join what can be joined: casts first, what comes behind, then what comes before."""
        for place in (*self.facts.casts, *self.facts.reads):
            self._take_cast(place)
        grown = True
        while grown:
            grown = self._behind() or self._before()

    def _take_cast(self, place: int) -> None:
        """A copy of the cast that the operand comes from, if it is one to a wider dtype."""
        value = self.core.inputs[place]
        cast = self._maker(value)
        if cast is None or not widens(cast.plan) or not self._suits(cast):
            return
        number = next(n for n, i in self.part.members if i is self.core)
        copy = cast.but(outputs=(Value("result", value.spec),))
        self.partition.adopt(self.part, number - 0.5, copy)
        self.core = self.partition.redirect(self.core, place, copy.outputs[0])

    def _maker(self, value: Value) -> Instruction | None:
        """The one instruction of another part that makes ``value``."""
        part = self.partition.home.get(value)
        if part is None or part is self.part or len(part.members) > 1:
            return None
        return part.members[0][1]

    def _suits(self, step: Instruction) -> bool:
        plan = step.plan
        # One value for all of a row, which the kernel knows at its end.
        late = {v for k, v in enumerate(self.core.outputs) if k not in self.facts.writes}
        return (
            plan is not None
            and plan.out.__class__ is not tuple
            and plan.out.shape == self.facts.shape
            and late.isdisjoint(step.inputs)
            and self.client.joins_rows(self.core.plan, plan)
        )

    def _join(self, step: Instruction) -> bool:
        part = self.partition.part(step)
        if part is self.part or len(part.members) > 1 or not self._suits(step):
            return False
        if not (self._fits(step) and self.partition.joinable(self.part, part)):
            return False
        self.partition.join(self.part, part)
        return True

    def _fits(self, step: Instruction) -> bool:
        members = [*(i for _, i in self.part.members), step]
        made = {v for m in members for v in m.outputs}
        if not read_apart(members, self.client):
            return False
        read = {v for m in members for v in m.inputs if v not in made and v.spec is not None}
        large = sum(v.spec.shape == self.facts.shape for v in read)  # type: ignore[union-attr]
        return len(members) <= _MOST_STEPS and large <= _MOST_READ

    def _behind(self) -> bool:
        """Join one reader of a result of the rows' shape."""
        for _, member in self.part.members:
            outs = member.outputs
            if member is self.core:
                outs = tuple(outs[k] for k in self.facts.writes)
            for value in outs:
                if any(self._join(user) for user in self.partition.users.get(value, ())):
                    return True
        return False

    def _before(self) -> bool:
        """Join one maker of an operand of the rows' shape."""
        for _, member in self.part.members:
            inputs = member.inputs
            if member is self.core:
                inputs = tuple(inputs[i] for i in self.facts.reads)
            for value in inputs:
                maker = self._maker(value)
                if maker is not None and self._join(maker):
                    return True
        return False
