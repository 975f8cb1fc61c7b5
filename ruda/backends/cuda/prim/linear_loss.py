"""The sum of a linear map's cross-entropies together with its gradients.

Rows are taken in chunks, whose logits exist in float32 for as long as it takes to write the
gradient in them, once rounded. What then becomes of the gradient depends on the weight's: where its
partial sums may be rounded, or there is one, each group of rows is added to it, three products in
all. Else it is made a block of classes at a time from all rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.prim.linear_blocks import Arranged, Blocks
from ruda.backends.cuda.prim.linear_groups import Grouped, Groups
from ruda.backends.cuda.prim.linear_parts import Call
from ruda.core.dtypes import float16
from ruda.core.mode import recording


def _bound(client: Any, plan: Any) -> Callable[..., Any] | None:
    """None where there is nothing to multiply, and for a dtype that small gradients vanish in."""
    hidden, weight = plan.specs[:2]
    if not hidden.size or not weight.size or hidden.dtype is float16:
        return None
    groups = Grouped(client, plan)
    start: Callable[..., Call]
    if _adds(groups):
        start = functools.partial(Groups, groups)
    else:
        start = functools.partial(Blocks, Arranged(client, plan))

    def run(*handles: Any) -> Any:
        with recording(False):
            return start(handles).run()

    return run


def _adds(known: Grouped) -> bool:
    """Whether the weight's gradient is a sum over groups of rows."""
    precision = known.plan.precision
    rounds = not known.kind.is_half or (precision is not None and precision.half_reduction)
    return rounds or known.is_one or not known.wanted[1]


KERNELS = {"linear_cross_entropy_sum": _bound}
