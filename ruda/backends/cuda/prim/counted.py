"""Means over the targets that count, in one launch where they are not too many."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType, iinfo
from ruda.core.spec import Spec

# A single block adds them up: more of them take longer than the launches of several kernels.
_MOST = 1 << 17
_OVER_COUNTED = "over_counted"
# One over the number of targets that count.
SHARE = "share_of_counted"
_FORMS = {_OVER_COUNTED: {"OVER_COUNTED": 1}, SHARE: {"SHARE": 1}}


def counting(
    client: Any, name: str, x: Spec, target: Spec, ignored: int, out: DType | None = None
) -> Launcher | None:
    """The launcher of a kernel that looks at all targets; None where it is not good at that.

    Its slots are out, of the dtype of ``x`` or another, count, x and target.
    """
    dense = x.contiguous and target.contiguous
    if not dense or target.size > _MOST or x.dtype.name not in ("float32", "float64"):
        return None
    limits = iinfo(target.dtype)
    fits = limits.min <= ignored <= min(limits.max, 2**63 - 1)
    if not fits and ignored > 2**63 - 1:
        return None
    full = f"{name}_{code_of(x.dtype)}_{code_of(target.dtype)}"
    full += "" if out in (None, x.dtype) else f"_to_{code_of(out)}"
    settings: dict[str, Any] = {"NAME": full, "X": stored(x.dtype), "I": stored(target.dtype)}
    settings |= {"OUT": stored(out or x.dtype), **_FORMS.get(name, {})}
    by_value = target.size, ignored if fits else 0, not fits
    fixed = [struct.pack(f, v) for f, v in zip("qqI", by_value, strict=True)]
    return Launcher(client, instance(__file__, **settings), full, 1, 1024, (1,) * 4, fixed)


def _mean(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``mean_where_counted`` of float32 and float64 that lie densely."""
    launch = counting(client, plan.op.name, *plan.specs, *plan.attrs)
    if launch is None:
        return None

    def run(losses: Any, targets: Any) -> Any:
        mean, count = (allocate(client.pool, spec) for spec in plan.out)
        launch(mean.address, count.address, losses.address, targets.address)
        return mean, count

    return run


def _over(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``over_counted`` of one number."""
    if plan.out.size != 1:
        return None
    launch = counting(client, plan.op.name, *plan.specs, *plan.attrs)
    if launch is None:
        return None

    def run(x: Any, targets: Any) -> Any:
        out = allocate(client.pool, plan.out)
        launch(out.address, 0, x.address, targets.address)
        return out

    return run


KERNELS = {"mean_where_counted": _mean, _OVER_COUNTED: _over}
