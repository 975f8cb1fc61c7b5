"""The mean of cross-entropies whose gradient is known beforehand, in three launches.

One counts the targets, one makes losses and gradient, one the mean, rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.counted import SHARE, counting
from ruda.core.spec import absent_spec, spec_of
from ruda.ops.cross_entropy_joint import ROW as JOINT


def _bound(client: Any, plan: Any) -> Callable[..., Any] | None:
    """A mean over dense targets; a sum is left to the row's body."""
    (logits, target), (ignored, *rates, mean, made) = plan.specs, plan.attrs
    out, lse, share, _ = plan.out
    counts = counting(client, SHARE, share, target, ignored)
    means = counting(client, "mean_where_counted", lse, target, ignored, out.dtype)
    if not mean or counts is None or means is None:
        return None
    absent, rows = absent_spec(client), target.shape
    dy = spec_of(client, rows, share.dtype, (0,) * len(rows)) if made else absent
    attrs = logits.ndim - 1, ignored, *rates
    joint = JOINT.lookup((dy, logits, target, absent), attrs).run
    pool = client.pool

    def run(x: Any, targets: Any) -> Any:
        each = allocate(pool, share)
        counts(each.address, 0, 0, targets.address)
        dx, losses, levels = joint(each if made else None, x, targets, None)
        loss = allocate(pool, out)
        means(loss.address, 0, losses.address, targets.address)
        return loss, levels, each, dx

    return run


KERNELS = {"cross_entropy_ahead": _bound}
