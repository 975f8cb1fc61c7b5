"""Elementwise steps as device functions, for kernels that do several of them to one element."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ruda.backends.cuda.types import computed, stored
from ruda.core.dtypes import DType
from ruda.core.spec import Spec


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


# Threads of a block, and the most blocks there may be at all and on a multiprocessor.
THREADS, _MOST, _BLOCKS_PER_MULTIPROCESSOR = 256, 2**31 - 1, 16

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


# Exact functions that have a quick one in this header.
QUICK = "ruda/quick.cuh"
_EXACT = re.compile(r"\bruda_(sigmoid|silu_backward)\(")


def is_quick(expr: str, out: DType, compute: str) -> bool:
    """Whether ``expr`` calls quick functions: its result is rounded to a half from a float."""
    return out.is_half and compute == "float" and _EXACT.search(expr) is not None


def quickened(expr: str, out: DType, compute: str) -> str:
    """``expr`` as it is computed for results of dtype ``out``, the same in every kernel."""
    return _EXACT.sub(r"quick_\1(", expr) if is_quick(expr, out, compute) else expr


# Arithmetic of integers that wraps around, and the unsigned types in which C lets it.
_WRAPS = {"x + y", "x - y", "x * y", "x * x", "-x"}
_UNSIGNED = {"i32": "u32", "i64": "u64", "u16": "u32"}
_NAME = re.compile(r"\b([xy])\b")


def expression(expr: str, out: DType, compute: str) -> str:
    """``expr`` as C of the type ``compute``, the same in every kernel.

    Overflow of a signed type cannot happen to a compiler: with ``-x`` in it, it takes the sign bit
    of ``abs(x)`` for 0, although the least integer is its own absolute value.
    """
    unsigned = _UNSIGNED.get(compute)
    if unsigned is not None and expr in _WRAPS:
        inside = _NAME.sub(rf"{unsigned}(\1)", expr)
        return f"T({inside})"
    if unsigned is not None and expr == "ruda_abs(x)":
        return f"x < T(0) ? T({unsigned}(0) - {unsigned}(x)) : x"
    return quickened(expr, out, compute)


def compared(
    expr: str, names: Sequence[str], specs: Sequence[Spec], wanted: Sequence[DType | None]
) -> str:
    """``expr`` of a comparison in which a Python number beside halves is one of them.

    Arithmetic takes it as it is and rounds once, behind.
    """
    for name, spec, dtype in zip(names, specs, wanted, strict=True):
        if spec.weak and dtype is not None and dtype.is_half:
            expr = re.sub(rf"\b{name}\b", f"to<T>(to<{stored(dtype)}>({name}))", expr)
    return expr


# Functions that take a few instructions each.
_LIGHT = {"T", "exp", "sqrt", "rsqrt", "ruda_abs", "ruda_sign", "ruda_max", "ruda_min"}
_LIGHT |= {"ruda_sigmoid", "ruda_silu_backward"}
_CALLED = re.compile(r"(\w+)\s*\(")


def is_light(expr: str, compute: str) -> bool:
    """Whether what computes ``expr`` waits for memory, not for instructions."""
    called = set(_CALLED.findall(expr))
    return called <= _LIGHT and (compute != "double" or not called)


def blocks_of(packs: int, multiprocessors: int, light: bool) -> int:
    """Blocks of ``THREADS`` for so many packs.

    A block for its packs alone where the work is light: of 2^27 numbers in bfloat16 on an H200,
    SwiGLU takes 187 us by these and 204 by 16 blocks on a multiprocessor that go on to others,
    a product with a number 129 and 140. Where it is not, all have more to prepare than to do:
    gelu takes 179 us and 163.
    """
    blocks = -(-packs // THREADS)
    return min(blocks, _MOST if light else multiprocessors * _BLOCKS_PER_MULTIPROCESSOR)


def functions(steps: Sequence[Step]) -> tuple[str, list[int]]:
    """A function for each different expression, and for each step the number of its function."""
    first: dict[tuple[object, ...], int] = {}
    quick = any(is_quick(step.expr, step.out, compute(step)) for step in steps)
    lines = [f'#include "{QUICK}"'] * quick + [ROUNDED]
    same = []
    for k, step in enumerate(steps):
        key = (step.expr, step.names, step.computed, step.out, step.more)
        if key not in first:
            first[key] = k
            lines += _function(step, k)
        same.append(first[key])
    return "\n".join(lines), same


def compute(step: Step) -> str:
    """The type that the expression calls ``T``."""
    return computed(step.computed[0]) if step.computed else computed(step.out)


def _function(step: Step, k: int) -> list[str]:
    pairs = [(computed(dtype), name) for dtype, name in zip(step.computed, step.names, strict=True)]
    arguments = ", ".join(f"{kind} {name}" for kind, name in (*pairs, *step.more))
    kind = compute(step)
    value = f"to<{stored(step.out)}>({expression(step.expr, step.out, kind)})"
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
