"""Elementwise steps as device functions, for kernels that do several of them to one element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ruda.backends.cuda.types import computed, stored
from ruda.core.dtypes import DType


@dataclass(frozen=True)
class Step:
    """One expression: the names in it, where each comes from, and what it is computed in.

    A source is the place of an input, or of an earlier step counted on from the inputs. Arguments
    that are no operands are ``more``, as (C type, name).
    """

    op: str
    expr: str
    names: tuple[str, ...]
    sources: tuple[int, ...]
    computed: tuple[DType, ...]
    out: DType
    more: tuple[tuple[str, str], ...] = ()


# The compiler makes one rounding of a product and a sum that follows it. Within a step it may, as
# in the kernel of its operator alone; but a step adds to what another one has rounded.
ROUNDED = """
__device__ __forceinline__ float rounded(float v) { return __fadd_rn(v, -0.0f); }
__device__ __forceinline__ double rounded(double v) { return __dadd_rn(v, -0.0); }
template <class R> __device__ __forceinline__ cx<R> rounded(cx<R> v) {
    return {rounded(v.re), rounded(v.im)};
}
template <class V> __device__ __forceinline__ V rounded(V v) { return v; }
"""


def functions(steps: Sequence[Step]) -> tuple[str, list[int]]:
    """A function for each different expression, and for each step the number of its function."""
    first: dict[tuple[object, ...], int] = {}
    lines = [ROUNDED]
    same = []
    for k, step in enumerate(steps):
        key = (step.expr, step.names, step.computed, step.out, step.more)
        if key not in first:
            first[key] = k
            lines += _function(step, k)
        same.append(first[key])
    return "\n".join(lines), same


def _function(step: Step, k: int) -> list[str]:
    pairs = [(computed(dtype), name) for dtype, name in zip(step.computed, step.names, strict=True)]
    arguments = ", ".join(f"{kind} {name}" for kind, name in (*pairs, *step.more))
    kind = computed(step.computed[0]) if step.computed else computed(step.out)
    value = f"to<{stored(step.out)}>({step.expr})"
    # What has no product in it, nor calls what may have one, is rounded already.
    if "*" in step.expr or "(" in step.expr:
        value = f"rounded({value})"
    return [
        f"__device__ __forceinline__ {stored(step.out)} step{k}({arguments}) {{",
        f"    typedef {kind} T;",
        f"    return {value};",
        "}",
    ]


def argument(value: str, dtype: DType) -> str:
    """``value`` as a step takes it."""
    return f"to<{computed(dtype)}>({value})"
