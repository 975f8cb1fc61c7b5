"""The mean of losses over the targets that count, in one launch where they are not too many."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import iinfo

# A single block adds them up: more of them take longer than the launches of several kernels.
_MOST = 1 << 17


def bind(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``mean_where_counted`` of float32 and float64 that lie densely."""
    (loss, target), (ignored,) = plan.specs, plan.attrs
    dense = loss.contiguous and target.contiguous
    if not dense or loss.size > _MOST or loss.dtype.name not in ("float32", "float64"):
        return None
    limits = iinfo(target.dtype)
    fits = limits.min <= ignored <= min(limits.max, 2**63 - 1)
    if not fits and ignored > 2**63 - 1:
        return None
    name = f"mean_where_counted_{code_of(loss.dtype)}_{code_of(target.dtype)}"
    settings = {"NAME": name, "X": stored(loss.dtype), "I": stored(target.dtype)}
    by_value = loss.size, ignored if fits else 0, not fits
    fixed = [struct.pack(f, v) for f, v in zip("qqI", by_value, strict=True)]
    launch = Launcher(client, instance(__file__, **settings), name, 1, 1024, (1,) * 4, fixed)

    def run(losses: Any, targets: Any) -> Any:
        mean, count = (allocate(client.pool, spec) for spec in plan.out)
        launch(mean.address, count.address, losses.address, targets.address)
        return mean, count

    return run


KERNELS = {"mean_where_counted": bind}
