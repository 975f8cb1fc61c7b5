"""Half operands of costly rows run what float32 has: products in parts on the pool, kernels.

A reference computes halves in float32 anyhow, but calls BLAS as it is, whose threads wait for each
other: where other programs were busy a product of 512 x 64 by 64 x 256 took 28 ms in bfloat16 and
0.4 in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy import kernels
from ruda.backends.numpy.memory import handle_of
from ruda.core.dtypes import compute_of, float32
from ruda.core.shapes import contiguous_strides
from ruda.core.spec import Spec, spec_of

_PRODUCTS = ("matmul", "linear", "linear_weight_backward")


def bind(plan: Any) -> Callable[..., Any] | None:
    """The run of the same row in float32 between casts, or None where that gains nothing."""
    op = plan.op
    if op.name not in _PRODUCTS and op.name not in kernels.IN_FLOAT32:
        return None
    floats = [s.dtype for s in plan.specs if s.dtype.is_inexact and not s.weak]
    if not any(d.is_half for d in floats) or any(compute_of(d) is not float32 for d in floats):
        return None
    wide = op.plan(tuple(map(_widened, plan.specs)), plan.attrs, precision=plan.precision)
    if op.name not in _PRODUCTS and not kernels.takes(wide):
        return None
    return _between_casts(plan, wide)


def _widened(spec: Spec) -> Spec:
    """What ``spec`` is in float32: axes lie in memory as they did, without gaps or repetition."""
    if spec.weak or not spec.dtype.is_half:
        return spec
    return spec_of(spec.client, spec.shape, float32, _dense(spec))


def _dense(spec: Spec) -> tuple[int, ...]:
    """The strides of ``spec`` where its axes in some order leave no gaps, else row-major ones."""
    order = sorted(range(spec.ndim), key=lambda axis: (-spec.strides[axis], axis))
    steps = contiguous_strides(tuple(spec.shape[axis] for axis in order))
    dense = all(spec.strides[a] == s or spec.shape[a] == 1 for a, s in zip(order, steps))
    return spec.strides if dense else contiguous_strides(spec.shape)


def _between_casts(plan: Any, wide: Any) -> Callable[..., Any]:
    """``wide.run`` on values in float32; each result is rounded once to what ``plan`` promises."""
    orders: list[Any] = [
        None if s is w else ("K" if s.strides == w.strides else "C")
        for s, w in zip(plan.specs, wide.specs, strict=True)
    ]
    several = plan.out.__class__ is tuple
    kinds = [o.dtype.numpy for o in (plan.out if several else (plan.out,))]

    def run(*handles: Any) -> Any:
        given = [
            h if order is None else handle_of(h.array.astype(np.float32, order))
            for h, order in zip(handles, orders, strict=True)
        ]
        results = wide.run(*given)
        if not several:
            return handle_of(results.array.astype(kinds[0], copy=False))
        return tuple(
            handle_of(h.array.astype(kind, copy=False))
            for h, kind in zip(results, kinds, strict=True)
        )

    return run
