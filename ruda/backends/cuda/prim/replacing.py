"""Which kernels may write their result where an operand lies.

A thread of an elementwise kernel, and of some row kernels, has read each element before it writes
the one in its place, and no other thread reads it.
"""

from __future__ import annotations

from typing import Any

from ruda.backends.cuda.prim import region, row_region
from ruda.core.spec import Spec

# Rows whose threads read and write elements of their own alone, and write them in the last pass.
_ROWS = ("cross_entropy_backward", "cross_entropy_joint")


def places(plan: Any) -> tuple[int, ...]:
    """The operands of ``plan`` whose memory may become that of a result of as many bytes."""
    outs = plan.out if plan.out.__class__ is tuple else (plan.out,)
    if plan.shares or any(out is None for out in outs):
        return ()
    # Beside it there may be a number for each row.
    rows = max(outs, key=lambda out: out.ndim)
    if not _is_in_place(plan, rows):
        return ()
    sizes = {out.nbytes for out in outs if out.contiguous}
    dense = (not s.weak and _alike(s, rows) and s.nbytes in sizes for s in plan.specs)
    return tuple(i for i, suits in enumerate(dense) if suits)


def _is_in_place(plan: Any, out: Spec) -> bool:
    steps = plan.steps if plan.op.kind == "region" else ()
    plans = [step.plan for step in steps] or [plan]
    cores = [p for p in plans if not region.fuses(p)]
    if not cores:
        # Flat: operands of another shape or order are read by threads that do not write there.
        return all(s.weak or s.ndim == 0 or _alike(s, out) for s in plan.specs)
    alone = len(cores) == 1 and cores[0].op.name in _ROWS
    return alone and row_region.facts(cores[0]) is not None


def _alike(spec: Spec, out: Spec) -> bool:
    return spec.shape == out.shape and spec.contiguous
