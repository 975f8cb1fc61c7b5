"""Parts of a graph that become one: nobody waits for itself, by a search for every path."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pytest

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.lines import Line
from ruda.fusion.passes.partition import Part, Partition

LINE = Line("a.py", 1, "f")


def graph_of(rng: random.Random, count: int) -> Graph:
    """Instructions that read up to two earlier values; some results are views of others."""
    graph, made = Graph(), []
    for _ in range(count):
        inputs = rng.sample(made, min(len(made), rng.randrange(3)))
        memory = inputs[0].memory if inputs and rng.random() < 0.3 else None
        out = Value("result", None, memory=memory)
        graph.instructions.append(Instruction("any", print, inputs, (out,), LINE))
        made.append(out)
    return graph


def waits(partition: Partition, part: Part) -> set[int]:
    """The parts that ``part`` waits for, by going back."""
    found: set[int] = set()
    pending = [part]
    while pending:
        for _, instruction in pending.pop().members:
            values = [v for value in instruction.inputs for v in (value, value.memory)]
            for source in (partition.home[v] for v in values if v in partition.home):
                if id(source) not in found and source is not part:
                    found.add(id(source))
                    pending.append(source)
    return found


def between(partition: Partition, one: Part, other: Part) -> bool:
    """Whether a third part has to run after one of the two and before the other."""
    for first, second in ((one, other), (other, one)):
        behind = waits(partition, second)
        for part in partition.parts:
            if (
                part not in (one, other)
                and id(part) in behind
                and id(first) in waits(partition, part)
            ):
                return True
    return False


@pytest.mark.parametrize("seed", range(6))
def test_parts_are_joined_where_nothing_lies_between(seed: int) -> None:
    rng = random.Random(seed)
    graph = graph_of(rng, 24)
    partition = Partition(graph)
    refused = 0
    for _ in range(40):
        if len(partition.parts) < 4:
            break
        one, other = rng.sample(partition.parts, 2)
        assert partition.joinable(one, other) != between(partition, one, other)
        if partition.joinable(one, other):
            partition.join(one, other)
        else:
            refused += 1
    assert refused
    order = {id(part): place for place, part in enumerate(settled(partition))}
    assert len(order) == len(partition.parts)
    for part in partition.parts:
        assert all(order[source] < order[id(part)] for source in waits(partition, part))


def settled(partition: Partition) -> list[Part]:
    """The parts in the order that the graph has them in."""
    for part in partition.parts:
        part.made = SimpleNamespace(part=part)  # type: ignore[assignment]
    partition.settle()
    return [made.part for made in partition.graph.instructions]  # type: ignore[attr-defined]


def test_every_pair_of_a_row_without_operands_can_be_joined() -> None:
    graph = graph_of(random.Random(0), 0)
    for _ in range(5):
        graph.instructions.append(Instruction("any", print, (), (Value("result", None),), LINE))
    partition = Partition(graph)
    for one, other in itertools.combinations(list(partition.parts), 2):
        assert partition.joinable(one, other)
