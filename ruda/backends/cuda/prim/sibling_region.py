"""Regions of operators that have nothing in common but their row: one launch for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import each


def joins(plan: Any) -> bool:
    """Whether ``plan`` can be one of many: a row of one dense operand."""
    if plan.out.__class__ is tuple or not plan.specs:
        return False
    op, (x, *more) = plan.op, plan.specs
    mapped = op.kind == "cast" or (op.kind == "unary" and op.expr is not None and not op.attrs)
    dense = not more and not x.weak and x.contiguous and plan.out.contiguous
    return bool(mapped and dense and x.dtype.is_inexact and plan.out.dtype.is_inexact)


def are_siblings(region: Any) -> bool:
    """Whether the steps of a region are of one row and none reads another."""
    count, steps = len(region.specs), region.steps
    if len(steps) < 2 or len({(step.plan.op, step.plan.attrs) for step in steps}) > 1:
        return False
    if not all(joins(step.plan) for step in steps):
        return False
    kinds = {(step.plan.specs[0].dtype, step.plan.out.dtype) for step in steps}
    return len(kinds) == 1 and all(s < count for step in steps for s in step.sources)


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of a region's inputs to those of its results."""
    first = region.steps[0].plan
    outs = tuple(step.plan.out for step in region.steps)
    given = tuple(step.plan.specs[0] for step in region.steps)
    places = [step.sources[0] for step in region.steps]
    launch = each.bind(client, first.op, outs, (given,), first.attrs)
    assert launch is not None

    def run(*handles: Any) -> tuple[Any, ...]:
        made = tuple([allocate(client.pool, out) for out in outs])
        launch(made, [[handles[i] for i in places]])
        return tuple([made[k] for k in region.kept])

    return run
