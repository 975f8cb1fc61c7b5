"""Attention writes its results where, and in the order, their readers want them.

Heads are axes of attention and columns of the products around it. What puts them there otherwise,
copies in another order and the concatenation of the gradients of q, k and v, is left out.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

from ruda.core.moves import origins
from ruda.core.shapes import contiguous_strides
from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.partition import Partition
from ruda.fusion.passes.regions import joined

# The operand of attention's gradient that is its result.
_RESULT = 5


class _Chain(NamedTuple):
    """What is done to a result, one after the other, up to the last that copies."""

    steps: tuple[Instruction, ...]

    @property
    def joint(self) -> Instruction | None:
        """The concatenation among the steps."""
        return next((i for i in self.steps if i.op == "concat"), None)

    def before(self, end: Instruction) -> _Chain:
        """The chain without ``end`` and what follows it."""
        return _copying(self.steps[: self.steps.index(end)])


def place_results(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Let each operator that ``client`` can place the results of do what follows it, too."""
    if not hasattr(client, "places_results"):
        return
    shown = {value.memory for value in wanted}
    able = [i for i in graph.instructions if _is_able(i, client)]
    for instruction in able:
        _redirect(graph, instruction, shown, client)
    partition = Partition(graph)
    for instruction in [i for i in graph.instructions if _is_able(i, client)]:
        members = _members(partition, instruction, shown)
        part = partition.part(instruction)
        for member in members:
            partition.join(part, partition.part(member))
        if members:
            part.made = joined(partition, part, shown, client)
    partition.settle()


def _is_able(instruction: Instruction, client: Any) -> bool:
    plan = instruction.plan
    return plan is not None and plan.op.kind != "region" and client.places_results(plan)


def _members(
    partition: Partition, instruction: Instruction, shown: Set[Value]
) -> list[Instruction]:
    """What ``instruction`` can do as well."""
    chains = [_chain(partition.users, value, shown) for value in instruction.outputs]
    for chain in list(chains):
        joint = chain.joint
        if joint is not None and not _is_whole(joint, instruction, chains):
            chains = [c.before(joint) if joint in c.steps else c for c in chains]
    return list(dict.fromkeys(step for chain in chains for step in chain.steps))


def _is_whole(joint: Instruction, instruction: Instruction, chains: list[_Chain]) -> bool:
    """Whether all that ``joint`` puts together comes from ``instruction``, and once."""
    ends = []
    for value, chain in zip(instruction.outputs, chains, strict=True):
        if joint in chain.steps:
            place = chain.steps.index(joint)
            ends.append(chain.steps[place - 1].outputs[0] if place else value)
    return len(ends) == len(joint.inputs) and set(ends) == set(joint.inputs)


def _chain(users: dict[Value, list[Instruction]], value: Value, shown: Set[Value]) -> _Chain:
    """What is done to ``value``, by one reader at a time."""
    steps: list[Instruction] = []
    while True:
        readers = users.get(value, [])
        if len(readers) != 1 or value.memory in shown or not _moves(readers[0], steps):
            return _copying(tuple(steps))
        steps.append(readers[0])
        value = readers[0].outputs[0]


def _moves(step: Instruction, before: list[Instruction]) -> bool:
    """Whether ``step`` only moves elements; more than one concatenation is too much."""
    if step.plan is None or step.op not in ("permute", "reshape", "concat"):
        return False
    return step.op != "concat" or all(i.op != "concat" for i in before)


def _copying(steps: tuple[Instruction, ...]) -> _Chain:
    """The steps up to the last one whose result has memory of its own and can be written so."""
    while steps and (steps[-1].plan.shares or not _is_told(steps)):
        steps = steps[:-1]
    return _Chain(steps)


def _is_told(steps: tuple[Instruction, ...]) -> bool:
    """Whether strides tell where in the last result the first operand lies."""
    strides = contiguous_strides(steps[-1].outputs[0].spec.shape)  # type: ignore[union-attr]
    for step in reversed(steps):
        found = origins(step.plan, strides)
        if found is None:
            return False
        strides = found[0][0]
    return True


def _redirect(graph: Graph, maker: Instruction, shown: Set[Value], client: Any) -> None:
    """Let gradients of attention read its result where a copy in another order has it."""
    value = maker.outputs[0]
    readers = [i for i in graph.instructions if value in i.inputs]
    gradients = [i for i in readers if _reads_result(i, value, client)]
    if not gradients or len(gradients) + 1 != len(readers):
        return
    users: dict[Value, list[Instruction]] = {}
    for instruction in graph.instructions:
        for v in dict.fromkeys(instruction.inputs):
            users.setdefault(v, []).append(instruction)
    users[value] = [i for i in readers if i not in gradients]
    steps = _chain(users, value, shown).steps
    if (
        not steps
        or any(i.op == "concat" for i in steps)
        or sum(not i.plan.shares for i in steps) > 1
    ):
        return
    views = _back(steps)
    if views is None:
        return
    found = [_reading(i, views[-1].outputs[0], client) for i in gradients]
    if any(i is None for i in found):
        return
    instead = dict(zip(gradients, found, strict=True))
    place = graph.instructions.index(steps[-1]) + 1
    order = [*graph.instructions[:place], *views, *graph.instructions[place:]]
    graph.instructions = [instead.get(i) or i for i in order]


def _reads_result(instruction: Instruction, value: Value, client: Any) -> bool:
    places = [i for i, v in enumerate(instruction.inputs) if v is value]
    named = instruction.op == "attention_backward" and places == [_RESULT]
    return named and _is_able(instruction, client)


def _back(steps: tuple[Instruction, ...]) -> list[Instruction] | None:
    """Views that show the end of ``steps`` as their beginning."""
    views: list[Instruction] = []
    value = steps[-1].outputs[0]
    for step in reversed(steps):
        attr: tuple[int, ...] = step.plan.specs[0].shape
        if step.op == "permute":
            order = step.plan.attrs[0]
            attr = tuple(order.index(i) for i in range(len(order)))
        plan = step.plan.op.lookup((value.spec,), (attr,))
        if not plan.shares:
            return None
        shown = Value("result", plan.out, memory=value.memory)
        views.append(step.but(plan, inputs=(value,), outputs=(shown,)))
        value = shown
    return views


def _reading(gradient: Instruction, value: Value, client: Any) -> Instruction | None:
    """``gradient`` with ``value`` for the result of attention."""
    plan, inputs = gradient.plan, gradient.inputs
    specs = (*plan.specs[:_RESULT], value.spec, *plan.specs[_RESULT + 1 :])
    other = plan.op.lookup(specs, plan.attrs)
    if other.out != plan.out or not client.places_results(other):
        return None
    inputs = (*inputs[:_RESULT], value, *inputs[_RESULT + 1 :])
    return gradient.but(other, inputs=inputs)
