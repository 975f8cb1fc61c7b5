"""Products end in what is done to their results alone, where the library does that as well."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ruda.fusion.graph import Graph, Value
from ruda.fusion.passes.flow import Flow
from ruda.fusion.passes.regions import region_of


def fuse_ends(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Let a ``linear`` whose result only a ``relu`` reads do that too."""
    if not hasattr(client, "ends_in_relu"):
        return
    flow = Flow(graph)
    shown = {value.memory for value in wanted}
    for instruction in list(graph.instructions):
        if instruction.plan is None or instruction.op != "linear":
            continue
        value = instruction.outputs[0]
        readers = flow.users.get(value, [])
        alone = len(readers) == 1 and readers[0].op == "relu" and value not in shown
        if alone and client.ends_in_relu(instruction.plan):
            part = flow.part(instruction)
            flow.join(part, flow.part(readers[0]))
            part.made = region_of(part.instructions(), readers[0].outputs.__contains__, client)
    flow.settle()
