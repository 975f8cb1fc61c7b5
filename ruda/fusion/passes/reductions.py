"""Reductions along the last axes become one with the elementwise operators around them.

What makes the elements, reductions of the same elements, what is computed from their results and
what reads those along the rows again: a softmax or a norm that is written out is one kernel.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.partition import Part, Partition
from ruda.fusion.passes.prologues import is_prologue, read_apart
from ruda.fusion.passes.regions import joined

_MOST_STEPS, _MOST_READ = 24, 5


def fuse_reductions(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Let each reduction that ``client`` has a row kernel for take over its surroundings."""
    if not hasattr(client, "folds_of"):
        return
    partition = Partition(graph)
    shown = {value.memory for value in wanted}
    found: list[_Joining] = []
    for instruction in list(graph.instructions):
        facts = _facts(client, instruction)
        if facts is None or len(partition.part(instruction).members) > 1:
            continue
        found.append(_Joining(partition, client, instruction, facts))
        found[-1].grow()
    # One that was alone may have been taken by another.
    for joining in _with_siblings([j for j in found if partition.part(j.fold) is j.part]):
        joining.make(shown)
    partition.settle()


def _with_siblings(found: list[_Joining]) -> list[_Joining]:
    """Those that are left where each took over the ones that read the same elements."""
    left: list[_Joining] = []
    for joining in found:
        if not any(other.adopts(joining) for other in left):
            left.append(joining)
    return left


def _facts(client: Any, instruction: Instruction) -> Any:
    plan = instruction.plan
    return None if plan is None or plan.op.kind == "region" else client.folds_of(plan)


class _Joining:
    """One reduction and what joins it."""

    def __init__(self, partition: Partition, client: Any, fold: Instruction, facts: Any) -> None:
        self.partition, self.client, self.facts = partition, client, facts
        self.fold, self.part = fold, partition.part(fold)
        shape = facts.shape
        # ``axes`` are those of a row, which is folded or, where rows are added up, stays.
        folded = {i for i in range(len(shape)) if (i in facts.axes) is not facts.down}
        # Whether shapes that lack the folded axes broadcast to those that have ones for them.
        self.aligned = folded == set(range(len(folded)))
        # With the folded axes and without them.
        self.rows = {
            tuple(1 if i in folded else n for i, n in enumerate(shape)),
            tuple(n for i, n in enumerate(shape) if i not in folded),
        }

    def grow(self) -> None:
        """Join what can be joined, as long as there is something."""
        while self._grow():
            pass

    def adopts(self, other: _Joining) -> bool:
        """Join all of ``other``, if both read the same elements of the same rows."""
        if other.facts != self.facts or self._elements().isdisjoint(other._elements()):
            return False
        return self._join_all(other.part)

    def _elements(self) -> set[Value]:
        """The tensors of the elements' shape that are read."""
        return {v for m in self.part.instructions() for v in m.inputs if self._is_full(v)}

    def make(self, shown: Set[Value]) -> None:
        """Let the part be one instruction."""
        # Down columns one launch does what are two otherwise.
        if len(self.part.members) == 1 and not (self.facts.down and self.aligned):
            return
        self.part.made = joined(self.partition, self.part, shown, self.client)

    def _grow(self) -> bool:
        members = self.part.instructions()
        values = [v for m in members for v in (*m.outputs, *m.inputs)]
        readers = (user for v in values for user in self.partition.users.get(v, ()))
        if any(self._join(user) for user in readers if self._follows(user, members)):
            return True
        inputs = (v for m in members for v in m.inputs)
        makers = ((v, self.partition.home.get(v)) for v in inputs)
        alone = ((v, p.members[0][1]) for v, p in makers if p is not None and len(p.members) == 1)
        return any(self._join(i) for v, i in alone if self._is_full(v) or self._is_like(i))

    def _follows(self, user: Instruction, members: list[Instruction]) -> bool:
        """Whether it reads a result, or is a reduction of what another one reads."""
        made = {v for m in members for v in m.outputs}
        return any(v in made for v in user.inputs) or self._is_like(user)

    def _is_like(self, instruction: Instruction) -> bool:
        """Whether it is a reduction of the same rows."""
        return bool(_facts(self.client, instruction) == self.facts)

    def _is_full(self, value: Value) -> bool:
        return value.spec is not None and value.spec.shape == self.facts.shape

    def _suits(self, step: Instruction) -> bool:
        plan = step.plan
        if plan is None or plan.out is None or plan.out.__class__ is tuple or plan.shares:
            return False
        if self._is_like(step):
            return True
        shape = plan.out.shape
        if shape != self.facts.shape and shape not in self.rows:
            return False
        return bool(self.client.joins_folds(plan, self.facts))

    def _reads_again(self, member: Instruction, made: set[Value]) -> bool:
        """Whether it computes elements from folded values, which are there too late."""
        folded = any(v in made and not self._is_full(v) for v in member.inputs)
        return folded and self._is_full(member.outputs[0])

    def _is_whole(self, value: Value) -> bool:
        """Whether it has all axes of the elements, folded ones as ones perhaps."""
        return value.spec is not None and value.spec.ndim == len(self.facts.shape)

    def _reads_one_way(
        self, member: Instruction, made: set[Value], members: list[Instruction]
    ) -> bool:
        """Whether its operands mean the same rows to it as to whoever makes or reads them too.

        Without its folded axes a shape broadcasts to other axes than with ones for these.
        """
        if self._is_like(member):
            return True
        whole = self._is_whole(member.outputs[0])
        for value in member.inputs:
            if value.spec is None or value.spec.size == 1 or self._is_full(value):
                continue
            if value in made and self._is_whole(value) is not whole:
                return False
            others = (m for m in members if value in m.inputs and not self._is_like(m))
            if any(self._is_whole(m.outputs[0]) is not whole for m in others):
                return False
        return True

    def _join(self, step: Instruction) -> bool:
        part = self.partition.part(step)
        if part is self.part or len(part.members) > 1 or not self._suits(step):
            return False
        return self._join_all(part)

    def _join_all(self, part: Part) -> bool:
        members = [i for _, i in (*self.part.members, *part.members)]
        made = {v for m in members for v in m.outputs}
        # What a member makes is read as it is, not through a view, whose elements lie elsewhere.
        if any(v.memory in made and v not in made for m in members for v in m.inputs):
            return False
        # Any of them: what joins may be the reduction whose result a member has read all along.
        if self.facts.down and any(self._reads_again(m, made) for m in members):
            return False
        if not self.aligned and not all(self._reads_one_way(m, made, members) for m in members):
            return False
        if not read_apart(members, self.client):
            return False
        read = {v for m in members for v in m.inputs if v not in made}
        large = sum(map(self._is_full, read)) + any(is_prologue(m, self.client) for m in members)
        if len(members) > _MOST_STEPS or large > _MOST_READ:
            return False
        if not self.partition.joinable(self.part, part):
            return False
        self.partition.join(self.part, part)
        return True
