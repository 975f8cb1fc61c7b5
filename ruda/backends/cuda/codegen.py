"""CUDA C of map kernels from the expressions of the operator table.

A kernel is made per class (operator, dtypes, which operands are by value, rank after collapsing),
never per shape: sizes and strides are arguments. Rank 0 is the flat case: every operand is
row-major and of the output's shape, or a single element, and is read 16 bytes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType

THREADS = 256


@dataclass(frozen=True)
class Operand:
    """One operand of a map: its name in the expression, its dtype in memory and while computing.

    ``form`` is "dense", "single" (one element in memory), "value" (a scalar passed by value) or
    "strided".
    """

    name: str
    dtype: DType
    computed: DType
    form: str


@dataclass(frozen=True)
class Map:
    """A class of map kernels."""

    op: str
    expr: str
    operands: tuple[Operand, ...]
    out: DType
    rank: int
    wide: bool = False
    scatters: bool = False

    @property
    def name(self) -> str:
        """The name of the kernel: readable, and different for different classes."""
        forms = {"dense": "d", "single": "s", "value": "v", "strided": "n"}
        parts = "_".join(f"{code_of(o.dtype)}{forms[o.form]}" for o in self.operands)
        width = "_wide" * self.wide + "_put" * self.scatters
        return f"{self.op}_{parts}_{code_of(self.out)}_r{self.rank}{width}"


HEADER = '#include "ruda/math.cuh"\n\n'


def source(*kernels: Map) -> str:
    """The CUDA C of one program with these kernels, each in a namespace of its own."""
    parts = (f"namespace in_{k.name} {{\n{body(k)}}}\n" for k in kernels)
    return HEADER + "\n".join(parts)


def body(kernel: Map) -> str:
    """The function of ``kernel`` and what it needs beside the header."""
    return _flat(kernel) if kernel.rank == 0 else _strided(kernel)


def _compute(kernel: Map) -> str:
    """The type that the expression calls ``T``."""
    return computed(kernel.operands[0].computed) if kernel.operands else computed(kernel.out)


def _parameters(kernel: Map) -> list[str]:
    out = [f"{stored(kernel.out)}* __restrict__ out"]
    for o in kernel.operands:
        if o.form == "value":
            out.append(f"const {computed(o.computed)} {o.name}_value")
        else:
            out.append(f"const {stored(o.dtype)}* __restrict__ {o.name}_data")
    return out


def _function(kernel: Map) -> list[str]:
    """The expression as a device function of values already converted."""
    arguments = ", ".join(f"{computed(o.computed)} {o.name}" for o in kernel.operands)
    return [
        f"typedef {_compute(kernel)} T;",
        f"__device__ __forceinline__ {stored(kernel.out)} apply({arguments}) {{",
        f"    return to<{stored(kernel.out)}>({kernel.expr});",
        "}",
    ]


def vector(kernel: Map) -> int:
    """Elements of one thread's step: 16 bytes of the widest operand that is read densely."""
    dense = (o.dtype.itemsize for o in kernel.operands if o.form == "dense")
    return max(1, 16 // max(kernel.out.itemsize, *dense, 1))


_FLAT = """{function}
template <class E> struct alignas(sizeof(E) * {count}) Pack {{ E at[{count}]; }};

// out and dense operands: n elements. 16-byte accesses where all addresses allow them.
extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, {index} n, u32 aligned) {{
{singles}
    const {index} start = ({index})blockIdx.x * {threads} + threadIdx.x;
    const {index} step = ({index})gridDim.x * {threads};
    const {index} packs = aligned ? n / {count} : 0;
    for ({index} p = start; p < packs; p += step) {{
{packs}
        Pack<{out}> result;
#pragma unroll
        for (int k = 0; k < {count}; ++k) result.at[k] = apply({from_packs});
        reinterpret_cast<Pack<{out}>*>(out)[p] = result;
    }}
    for ({index} i = packs * {count} + start; i < n; i += step) out[i] = apply({from_memory});
}}
"""


def _flat(kernel: Map) -> str:
    """One dimension, ``n`` elements: vectors while they last, then the rest one by one."""
    packs = [
        f"        const Pack<{stored(o.dtype)}> {o.name}_pack = "
        f"reinterpret_cast<const Pack<{stored(o.dtype)}>*>({o.name}_data)[p];"
        for o in kernel.operands
        if o.form == "dense"
    ]
    return _FLAT.format(
        **_common(kernel, "u64" if kernel.wide else "u32"),
        count=vector(kernel),
        packs="\n".join(packs),
        from_packs=_arguments(kernel, "{0}_pack.at[k]"),
        from_memory=_arguments(kernel, "{0}_data[i]"),
    )


_STRIDED = """{function}
struct Geometry {{ {index} n, size[{rank}]{fields}; }};

// Coordinates from the row-major number of an element; a stride for each operand that needs one.
extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, const Geometry at) {{
{singles}
    for ({index} i = ({index})blockIdx.x * {threads} + threadIdx.x; i < at.n;
         i += ({index})gridDim.x * {threads}) {{
        {index} rest = i{zeros};
#pragma unroll
        for (int d = {rank} - 1; d > 0; --d) {{
            const {index} whole = rest / at.size[d], k = rest - whole * at.size[d];
{steps}
            rest = whole;
        }}
{heads}
        out[{target}] = apply({from_memory});
    }}
}}
"""


def _strided(kernel: Map) -> str:
    """``rank`` dimensions with strides for each operand; the output is row-major or scattered."""
    names = [o.name for o in kernel.operands if o.form == "strided"] + ["out_"] * kernel.scatters
    return _STRIDED.format(
        **_common(kernel, "i64" if kernel.wide else "i32"),
        rank=kernel.rank,
        fields="".join(f", {name}[{kernel.rank}]" for name in names),
        zeros="".join(f", {name}_at = 0" for name in names),
        steps="\n".join(f"            {name}_at += k * at.{name}[d];" for name in names),
        heads="\n".join(f"        {name}_at += rest * at.{name}[0];" for name in names),
        target="out__at" if kernel.scatters else "i",
        from_memory=_arguments(kernel, "{0}_data[{0}_at]"),
    )


def _common(kernel: Map, index: str) -> dict[str, object]:
    """What both templates are filled with."""
    single = "    const {type} {name}_value = to<{type}>(*{name}_data);"
    singles = [
        single.format(type=computed(o.computed), name=o.name)
        for o in kernel.operands
        if o.form == "single"
    ]
    return {
        "function": "\n".join(_function(kernel)),
        "name": kernel.name,
        "threads": THREADS,
        "parameters": ", ".join(_parameters(kernel)),
        "singles": "\n".join(singles),
        "out": stored(kernel.out),
        "index": index,
    }


def _arguments(kernel: Map, place: str) -> str:
    """The arguments of ``apply``: ``place`` says where an element in memory is read from."""
    parts = []
    for o in kernel.operands:
        if o.form in ("value", "single"):
            parts.append(f"{o.name}_value")
        else:
            parts.append(f"to<{computed(o.computed)}>({place.format(o.name)})")
    return ", ".join(parts)
