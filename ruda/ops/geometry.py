"""Where a view row starts inside its operand: what a plan does not say and a trace must know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import mul
from typing import Any

import numpy as np

from ruda.core.shapes import extent


def view_offset(plan: Any, values: Sequence[Any]) -> int:
    """Elements between the first element of the operand and the first of the view.

    ``values`` are the operands that go by value (starts, an offset). The row's reference is asked,
    on memory that is reserved and never touched.
    """
    spec = plan.specs[0]
    if spec.size == 0 or plan.out.size == 0:
        return 0
    low, high = extent(spec.shape, spec.strides)
    # Raw bytes of the right size: NumPy does not stride over every dtype of ml_dtypes.
    memory = np.empty(high - low, f"V{spec.dtype.itemsize}")
    size = memory.itemsize
    steps = tuple(s * size for s in spec.strides)
    probe = np.lib.stride_tricks.as_strided(memory[-low:], spec.shape, steps)
    shown = plan.op.numpy(probe, *values, *plan.attrs)
    return (_address(shown) - _address(probe)) // size


def fast_offset(plan: Any) -> int | Callable[[Any], int]:
    """``view_offset`` without asking the reference: a number, or a function of the one value."""
    spec = plan.specs[0]
    if spec.size == 0 or plan.out.size == 0:
        return 0
    name = plan.op.name
    if name == "slice":
        return _slice_offset(spec.strides, len(plan.attrs[0]))
    if name == "as_strided":
        return int
    if len(plan.specs) > 1:
        return lambda *values: view_offset(plan, values)
    return view_offset(plan, ())


def _slice_offset(strides: Sequence[int], rank: int) -> Callable[[Any], int]:
    """The inner product of strides and starts, which are ``rank`` numbers for the first axes."""
    if rank == 1:
        first = strides[0]
        return lambda starts: starts[0] * first
    return lambda starts: sum(map(mul, starts, strides))


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
