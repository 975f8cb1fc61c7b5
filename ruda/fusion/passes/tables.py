"""The gradient of a table that is looked up is added to that which the table has otherwise.

Where embeddings and the head of a model share their weight, the head's product has a gradient for
all rows, the lookup for a few: these are added to that, where it lies, instead of to zeros.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ruda.core.dtypes import bfloat16, float32
from ruda.fusion.graph import Graph, Instruction, Value
from ruda.tensor.dispatch import OPS

# Elements from which on a sort of the places was seen to be less than a pass over the table.
_LEAST = 1 << 22


def add_to_tables(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Make of a sum with ``embedding_backward`` a sum at the places that it names."""
    if not hasattr(client, "replaces"):
        return
    shown = {value.memory for value in wanted}
    made = {v: i for i in graph.instructions for v in i.outputs}
    readers: dict[Value, list[Instruction]] = {}
    for instruction in graph.instructions:
        for value in dict.fromkeys(instruction.inputs):
            readers.setdefault(value, []).append(instruction)
    work = _Tables(client, shown, made, readers)
    instead: dict[Instruction, Instruction | None] = {}
    for instruction in graph.instructions:
        if instruction.op == "add" and instruction.plan is not None:
            instead |= work.joined(instruction)
    if instead:
        after = (instead.get(i, i) for i in graph.instructions)
        graph.instructions = [i for i in after if i is not None]
        graph.prune(wanted)


class _Tables:
    """Who makes and who reads each value."""

    def __init__(
        self,
        client: Any,
        shown: Set[Value],
        made: dict[Value, Instruction],
        readers: dict[Value, list[Instruction]],
    ) -> None:
        self.client, self.shown, self.made, self.readers = client, shown, made, readers

    def joined(self, total: Instruction) -> dict[Instruction, Instruction | None]:
        """What takes the place of which instruction; nothing where ``total`` stays as it is."""
        makers = [self.made.get(value) for value in total.inputs]
        for k, table in enumerate(makers):
            if table is None or table.op != "embedding_backward" or not self._is_alone(table):
                continue
            base = total.inputs[1 - k]
            # A row of padding has no gradient here, and has one there.
            if table.plan.attrs[1] >= 0 or base.spec is not total.plan.out:
                continue
            plan = self._plan(base, table)
            if plan is None or 0 not in self.client.replaces(plan):
                continue
            product = self._product(makers[1 - k])
            if product is None and not self._is_last(base, makers[1 - k]):
                continue
            return {total: total.but(plan, inputs=(base, *table.inputs)), **(product or {})}
        return {}

    def _plan(self, base: Value, table: Instruction) -> Any:
        """The sum of ``base`` and what ``table`` would add up; None where it is too small."""
        assert base.spec is not None
        if base.spec.size < _LEAST or base.spec.dtype is not float32:
            return None
        specs = (base.spec, *table.plan.specs)
        return OPS["index_add"].lookup(specs, ((0,),)) if table.plan.out is base.spec else None

    def _is_alone(self, maker: Instruction) -> bool:
        """Whether what ``maker`` makes is read once, and not shown."""
        (value,) = maker.outputs
        return len(self.readers.get(value, ())) == 1 and value not in self.shown

    def _is_last(self, base: Value, maker: Instruction | None) -> bool:
        """Whether the sum may lie where ``base`` lies, which no kernel would compute on the way."""
        if maker is None or base.memory is not base or not self._is_alone(maker):
            return False
        return maker.plan is None or not self.client.fuses(maker.plan)

    def _product(self, cast: Instruction | None) -> dict[Instruction, Instruction | None] | None:
        """A product of bfloat16 that was cast for the sum alone, in float32 from the start."""
        if cast is None or cast.plan is None or cast.plan.op.kind != "cast":
            return None
        product = self.made.get(cast.inputs[0])
        if product is None or product.op != "matmul" or product.plan.out.dtype is not bfloat16:
            return None
        if not (self._is_alone(product) and self._is_alone(cast)):
            return None
        plan = product.plan
        other = OPS["matmul_as"].lookup(plan.specs, (float32,), precision=plan.precision)
        return {product: product.but(other, outputs=cast.outputs), cast: None}
