"""One instruction for several: what goes in, what each step reads, what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from ruda.fusion.graph import Instruction, Value
from ruda.fusion.lines import Lines
from ruda.fusion.passes.partition import Part, Partition
from ruda.fusion.region import Region, Step


def region_of(
    members: Sequence[Instruction],
    kept: Callable[[Value], bool],
    client: Any,
    bind: Callable[[Region, Sequence[Value]], Callable[..., Any]] | None = None,
) -> Instruction:
    """The instruction that does what ``members`` do in their order; ``kept`` results leave it.

    ``bind`` makes its ``run`` where the client's own way of doing regions is not meant.
    """
    inputs, numbers = _numbered(members)
    steps = [Step(m.plan, tuple(numbers[_place(m, v, numbers)] for v in m.inputs)) for m in members]
    made = [value for member in members for value in member.outputs]
    places = tuple(k for k, value in enumerate(made) if kept(value))
    region = Region(steps, _specs(members, inputs), places)
    region.run = client.bind_region(region) if bind is None else bind(region, inputs)
    line = Lines.joined((member.op, member.line) for member in members)
    outputs = [made[k] for k in places]
    instruction = Instruction(region.op.name, region.run, inputs, outputs, line)
    instruction.plan = region
    return instruction


def joined(partition: Partition, part: Part, shown: Set[Value], client: Any) -> Instruction:
    """The instruction that ``part`` becomes; what others read, or is ``shown``, leaves it."""

    def kept(value: Value) -> bool:
        return value in shown or partition.outside_users(part, value)

    return region_of(part.instructions(), kept, client)


def _place(member: Instruction, value: Value, numbers: dict[Any, int]) -> Any:
    """What ``value`` is numbered by: a Python scalar is one operand for each step that takes it."""
    return value if value in numbers else (id(member), id(value))


def _numbered(members: Sequence[Instruction]) -> tuple[list[Value], dict[Any, int]]:
    """The inputs, and the number of each input and, from there on, of each result."""
    made = {value for member in members for value in member.outputs}
    inputs: list[Value] = []
    numbers: dict[Any, int] = {}
    for member in members:
        for value in member.inputs:
            # A Python scalar is passed as what the step computes in.
            key = value if value.spec is not None else (id(member), id(value))
            if value not in made and key not in numbers:
                numbers[key] = len(inputs)
                inputs.append(value)
    results = (value for member in members for value in member.outputs)
    numbers.update((value, len(inputs) + k) for k, value in enumerate(results))
    return inputs, numbers


def _specs(members: Sequence[Instruction], inputs: Sequence[Value]) -> tuple[Any, ...]:
    """The specs of the inputs; a Python scalar's is the one it has in its user's plan."""
    found: dict[int, Any] = {}
    for member in members:
        for value, spec in zip(member.inputs, member.plan.specs, strict=True):
            found.setdefault(id(value), spec)
    return tuple(found[id(value)] for value in inputs)
