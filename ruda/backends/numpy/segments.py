"""Which operators of a compiled step become one table of tasks, and from which work on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from ruda.backends.numpy.kernels import enabled, loaded

# Multiplications of all products of a segment from which it is one. Smaller steps run operator by
# operator, on NumPy alone, and never pay for numba.
_LEAST = 1 << 20
_PRODUCTS = ("matmul", "linear", "linear_weight_backward")


def joins(plan: Any) -> bool:
    """Whether a plan can be one of a segment."""
    if not enabled() or not _sized(plan):
        return False
    if plan.shares:
        return not plan.specs[0].weak and all(s.weak for s in plan.specs[1:])
    return _typed(plan) and bool(loaded("steps.segment", "takes")(plan))


def _sized(plan: Any) -> bool:
    """Whether nothing that is read is empty."""
    return all(s.weak or s.size for s in plan.specs)


def _typed(plan: Any) -> bool:
    """Cheap to tell, and without numba: everything of real numbers is float32."""
    outs = plan.out if plan.out.__class__ is tuple else (plan.out,)
    specs = [s for s in (*plan.specs, *outs) if not s.weak and s.dtype.is_inexact]
    return bool(specs) and all(s.dtype.name == "float32" for s in specs)


def worthwhile(plans: Sequence[Any]) -> bool:
    """Whether plans that can be a segment are to be one."""
    return sum(map(_multiplications, plans)) >= _LEAST


def _multiplications(plan: Any) -> int:
    if plan.op.name not in _PRODUCTS:
        return 0
    out = plan.out[0] if plan.out.__class__ is tuple else plan.out
    first = plan.specs[0]
    if plan.op.name == "linear_weight_backward":
        return math.prod(first.shape[:-1]) * out.size
    return first.shape[-1] * out.size if first.ndim else 0


def bind(
    region: Any, values: Mapping[int, Any], steady: Set[int]
) -> Callable[..., tuple[Any, ...]]:
    """The segment of ``region``; see ``NumpyClient.bind_segment``."""
    made: Callable[..., tuple[Any, ...]] = loaded("steps.segment", "Segment")(
        region, values, steady
    )
    return made
