"""Reductions read through a reshape that has joined the very axes that they reduce."""

from __future__ import annotations

from typing import Any

from ruda.fusion.graph import Graph, Instruction, Value

_FOLDS = ("sum", "mean", "max", "min")


def see_through(graph: Graph) -> None:
    """Let reductions over the leading axis read what a reshape has made that axis of."""
    makers = graph.makers()
    for instruction in graph.instructions:
        plan = instruction.plan
        if plan is None or plan.op.name not in _FOLDS or plan.attrs[0] != (0,) or plan.attrs[1]:
            continue
        base = _reshaped(makers.get(instruction.inputs[0]))
        if base is not None:
            _fold_more(instruction, base)


def _reshaped(view: Instruction | None) -> Value | None:
    """The dense value that ``view`` shows in another shape."""
    if view is None or view.plan is None or not view.plan.shares or view.op != "reshape":
        return None
    base = view.inputs[0]
    return base if base.spec is not None and base.spec.contiguous else None


def _fold_more(instruction: Instruction, base: Value) -> None:
    plan, shape = instruction.plan, instruction.inputs[0].spec.shape  # type: ignore[union-attr]
    kept = shape[1:]
    lead = len(base.spec.shape) - len(kept)  # type: ignore[union-attr]
    if lead < 1 or base.spec.shape[lead:] != kept:  # type: ignore[union-attr]
        return
    attrs: tuple[Any, ...] = (tuple(range(lead)), *plan.attrs[1:])
    other = plan.op.lookup((base.spec,), attrs)
    if other.out is not plan.out:
        return
    instruction.inputs, instruction.plan, instruction.run = (base,), other, other.run
