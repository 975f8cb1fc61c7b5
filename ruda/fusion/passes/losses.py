"""A cross-entropy and its gradient are one row, which reads the logits once.

What the gradient is multiplied by has to be known before: a constant, a number that was made
earlier, one over the number of targets that count. That number is a result of the mean of the
losses, but needs the targets alone.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.passes.partition import Partition
from ruda.ops import cross_entropy_joint
from ruda.ops.cross_entropy_rows import NAME
from ruda.tensor.dispatch import OPS

_LOSS, _GRADIENT, _MEAN = NAME, f"{NAME}_backward", "mean_where_counted"


def join_losses(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Let each gradient of a cross-entropy come with the losses, where ``client`` can."""
    if not hasattr(client, "rows_of"):
        return
    makers = graph.makers()
    pairs = [(b, makers.get(b.inputs[3])) for b in graph.instructions if b.op == _GRADIENT]
    found = [(f, b) for b, f in pairs if f is not None and _are_one(f, b)]
    if not found:
        return
    losses = {f.outputs[0] for f, _ in found}
    graph.instructions = [_counted_apart(i, makers, losses) for i in graph.instructions]
    graph.prune(wanted)
    partition = Partition(graph)
    for loss, gradient in found:
        _join(partition, loss, gradient)
    partition.settle()


def _are_one(loss: Instruction, gradient: Instruction) -> bool:
    """Whether ``gradient`` is that of ``loss``, of the same operands in the same way."""
    if loss.op != _LOSS or loss.outputs[1] is not gradient.inputs[3]:
        return False
    pairs = zip(loss.inputs, (*gradient.inputs[1:3], gradient.inputs[4]), strict=True)
    same = all(a is b or (a.spec is b.spec is a.payload is b.payload is None) for a, b in pairs)
    return same and loss.plan.attrs == gradient.plan.attrs


def _counted_apart(
    step: Instruction, makers: dict[Value, Instruction], losses: Set[Value]
) -> Instruction:
    """``step``, or what a number over the count of a mean of ``losses`` is without the mean."""
    if step.plan is None or step.op != "divide":
        return step
    x, count = step.inputs
    mean = makers.get(count)
    if mean is None or mean.op != _MEAN or count is mean.outputs[0] or mean.inputs[0] not in losses:
        return step
    target = mean.inputs[1]
    if x.spec is not step.plan.out or target.spec is None:
        return step
    plan = OPS["over_counted"].lookup((x.spec, target.spec), mean.plan.attrs)
    return step.but(plan, inputs=(x, target))


def _join(partition: Partition, loss: Instruction, gradient: Instruction) -> None:
    before, after = partition.part(loss), partition.part(gradient)
    if before.made is not None or not partition.joinable(before, after):
        return
    given = gradient.plan.specs
    plan = cross_entropy_joint.ROW.lookup((*given[:3], given[4]), gradient.plan.attrs)
    # A row that cannot be kept would be read as often as by two kernels, by fewer blocks.
    keeps = getattr(plan.run, "keeps", False)
    if plan.out != (gradient.plan.out, *loss.plan.out) or not keeps:
        return
    outputs = (*gradient.outputs, *loss.outputs)
    made = loss.but(plan, inputs=(gradient.inputs[0], *loss.inputs), outputs=outputs)
    # It stands where the gradient stood: as a rule nobody reads the logits behind that.
    place = list(after.members)
    partition.join(after, before)
    after.members, after.made = place, made
