"""CUDA C of map kernels from the expressions of the operator table.

A kernel is made per class (operator, dtypes, which operands are by value, rank after collapsing),
never per shape: sizes and strides are arguments. Rank 0 is the flat case: every operand is
row-major and of the output's shape, or a single element, and is read 16 bytes at a time. With
``count`` the last dimension is read and written by packs; with ``tile`` it is turned in shared
memory, for operands that lie densely along another one, with both by packs on either side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ruda.backends.cuda.codegen_steps import QUICK, THREADS, expression, is_light, is_quick
from ruda.backends.cuda.codegen_templates import FLAT, MANY, PACKED, PAIRED, STRIDED, TILED
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType


@dataclass(frozen=True)
class Operand:
    """One operand of a map: its name in the expression, its dtype in memory and while computing.

    ``form`` is "dense", "single" (one element in memory), "value" (a scalar passed by value),
    "strided", or what a strided one is along the last dimension: "run" (by packs), "same" (one
    element for a pack), "turned" (through a tile).
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
    count: int = 0
    tile: int = 0
    header: str = ""

    @property
    def name(self) -> str:
        """The name of the kernel: readable, and different for different classes."""
        forms = {"dense": "d", "single": "s", "value": "v", "strided": "n"}
        forms |= {"run": "p", "same": "o", "turned": "t"}
        parts = "_".join(f"{code_of(o.dtype)}{forms[o.form]}" for o in self.operands)
        width = "_wide" * self.wide + "_put" * self.scatters
        width += f"_by{self.count}" * (self.count > 0) + f"_tile{self.tile}" * (self.tile > 0)
        return f"{self.op}_{parts}_{code_of(self.out)}_r{self.rank}{width}"


def is_light_map(kernel: Map) -> bool:
    """Whether ``kernel`` goes by packs, and waits for memory and not for instructions."""
    return (kernel.rank == 0 or kernel.count > 0) and is_light(kernel.expr, _compute(kernel))


HEADER = """#include "ruda/earlier.cuh"
#include "ruda/math.cuh"
template <class E, int N> struct alignas(sizeof(E) * N) Pack { E at[N]; };

"""
# Kernels that only move memory have registers left for a second pack in flight.
_MOVES = ("x",)


def source(*kernels: Map) -> str:
    """The CUDA C of one program with these kernels, each in a namespace of its own."""
    parts = (f"namespace in_{k.name} {{\n{body(k)}}}\n" for k in kernels)
    return _headers(kernels) + "\n".join(parts)


def _headers(kernels: Iterable[Map]) -> str:
    """What stands before all kernels of a program."""
    more = sorted({k.header for k in kernels if k.header})
    quick = any(is_quick(k.expr, k.out, _compute(k)) for k in kernels)
    before = "".join(f'#include "{name}"\n' for name in more)
    return before + HEADER + f'#include "{QUICK}"\n' * quick


def body(kernel: Map) -> str:
    """The function of ``kernel`` and what it needs beside the header."""
    if kernel.rank == 0:
        return _flat(kernel)
    if kernel.tile:
        return _paired(kernel) if kernel.count else _tiled(kernel)
    return _packed(kernel) if kernel.count else _strided(kernel)


def _compute(kernel: Map) -> str:
    """The type that the expression calls ``T``."""
    return computed(kernel.operands[0].computed) if kernel.operands else computed(kernel.out)


def _parameters(kernel: Map) -> list[str]:
    return [f"{stored(kernel.out)}* __restrict__ out", *_given(kernel.operands)]


def _given(operands: Iterable[Operand]) -> list[str]:
    """The parameters of operands: a scalar by value, or where the elements lie."""
    out = []
    for o in operands:
        if o.form == "value":
            out.append(f"const {computed(o.computed)} {o.name}_value")
        else:
            out.append(f"const {stored(o.dtype)}* __restrict__ {o.name}_data")
    return out


def _function(kernel: Map) -> list[str]:
    """The expression as a device function of values already converted."""
    arguments = ", ".join(f"{computed(o.computed)} {o.name}" for o in kernel.operands)
    expr = expression(kernel.expr, kernel.out, _compute(kernel))
    return [
        f"typedef {_compute(kernel)} T;",
        f"__device__ __forceinline__ {stored(kernel.out)} apply({arguments}) {{",
        f"    return to<{stored(kernel.out)}>({expr});",
        "}",
    ]


def vector(kernel: Map) -> int:
    """Elements of one thread's step: 16 bytes of the widest operand that is read densely."""
    dense = (o.dtype.itemsize for o in kernel.operands if o.form == "dense")
    return max(1, 16 // max(kernel.out.itemsize, *dense, 1))


def _flat(kernel: Map) -> str:
    """One dimension, ``n`` elements: vectors while they last, then the rest one by one."""
    dense = [o for o in kernel.operands if o.form == "dense"]
    deep, count = 2 if kernel.expr in _MOVES else 1, vector(kernel)
    declared = (f"        Pack<{stored(o.dtype)}, {count}> {o.name}_pack[{deep}];" for o in dense)
    packs = (
        f"            {o.name}_pack[d] = "
        f"reinterpret_cast<const Pack<{stored(o.dtype)}, {count}>*>({o.name}_data)[q];"
        for o in dense
    )
    return FLAT.format(
        **_common(kernel, "u64" if kernel.wide else "u32"),
        count=count,
        deep=deep,
        declared="\n".join(declared),
        packs="\n".join(packs),
        from_packs=_arguments(kernel, "{0}_pack[d].at[k]"),
        from_memory=_arguments(kernel, "{0}_data[i]"),
    )


# What leaves the first operand as it is, where that is also the output: nothing is moved then.
_NEUTRAL = {"multiply": "1"}


def many(kernel: Map, chunk: int) -> str:
    """The program of a flat ``kernel`` over many tensors, in parts of ``chunk`` elements."""
    dense = [o for o in kernel.operands if o.form == "dense"]
    shared = [o for o in kernel.operands if o.form != "dense"]
    count, pack = vector(kernel), "Pack<{0}, {1}>"
    kinds = {o.name: pack.format(stored(o.dtype), count) for o in dense}
    body = MANY.format(
        **_common(kernel, "i64") | {"parameters": "".join(f", {p}" for p in _given(shared))},
        words=2 + len(dense),
        chunk=chunk,
        count=count,
        pointers="\n".join(
            f"    const {stored(o.dtype)}* {o.name}_data = (const {stored(o.dtype)}*)word[{j}];"
            for j, o in enumerate(dense, 1)
        ),
        neutral=_neutral(kernel),
        joined=" | ".join(f"word[{j}]" for j in range(1 + len(dense))),
        declared="\n".join(f"        {kinds[o.name]} {o.name}_pack[2];" for o in dense),
        packs="\n".join(
            f"            {o.name}_pack[d] = "
            f"*reinterpret_cast<const {kinds[o.name]}*>({o.name}_data + q);"
            for o in dense
        ),
        from_packs=_arguments(kernel, "{0}_pack[d].at[k]"),
        from_memory=_arguments(kernel, "{0}_data[i]"),
    )
    return _headers([kernel]) + body


def _neutral(kernel: Map) -> str:
    """The test whether a block may leave its part alone."""
    value, (x, *rest) = _NEUTRAL.get(kernel.op), kernel.operands
    shared = len(rest) == 1 and rest[0].form != "dense"
    if value is None or not shared or kernel.out is not x.dtype or kernel.out.kind != "float":
        return ""
    return f"    if (out == {x.name}_data && {rest[0].name}_value == {value}) return;"


def _strided(kernel: Map) -> str:
    """``rank`` dimensions with strides for each operand; the output is row-major or scattered."""
    return STRIDED.format(
        **_common(kernel, "i64" if kernel.wide else "i32"),
        **_places(kernel, ("strided",)),
        target="out__at" if kernel.scatters else "i",
        from_memory=_arguments(kernel, "{0}_data[{0}_at]"),
    )


def _packed(kernel: Map) -> str:
    """``rank`` dimensions, the last of them by packs of ``count``."""
    place = {"run": "{0}_data + {0}_at", "dense": "{0}_data + i * {1}"}
    packs = [
        f"        const Pack<{stored(o.dtype)}, {kernel.count}> {o.name}_pack = "
        f"*reinterpret_cast<const Pack<{stored(o.dtype)}, {kernel.count}>*>"
        f"({place[o.form].format(o.name, kernel.count)});"
        for o in kernel.operands
        if o.form in place
    ]
    packs += [
        f"        const {stored(o.dtype)} {o.name}_one = {o.name}_data[{o.name}_at];"
        for o in kernel.operands
        if o.form == "same"
    ]
    return PACKED.format(
        **_common(kernel, "i64" if kernel.wide else "i32"),
        **_places(kernel, ("run", "same")),
        count=kernel.count,
        packs="\n".join(packs),
        target="out + " + ("out__at" if kernel.scatters else f"i * {kernel.count}"),
        from_packs=_arguments(kernel, "{0}_pack.at[k]", same="{0}_one"),
    )


def _tiled(kernel: Map) -> str:
    """``rank`` dimensions, 2 or more; the last two in tiles."""
    last, width = kernel.rank - 1, kernel.tile
    pad = "{1} + (sizeof({0}) < 4 ? 4 / sizeof({0}) : 1)"
    straight = f"{{0}}_data[{{0}}_at + b * at.{{0}}[{last - 1}] + a * at.{{0}}[{last}]]"
    turned = [o for o in kernel.operands if o.form == "turned"]
    tiles = (
        f"    __shared__ {stored(o.dtype)} "
        f"{o.name}_tile[{width}][{pad.format(stored(o.dtype), width)}];"
        for o in turned
    )
    loads = (
        f"                {o.name}_tile[r + row][q + lane] = {straight.format(o.name)};"
        for o in turned
    )
    return TILED.format(
        **_common(kernel, "i64" if kernel.wide else "i32"),
        **_places(kernel, ("turned", "strided", "out_")),
        tile=width,
        tiles="\n".join(tiles),
        loads="\n".join(loads),
        from_memory=_arguments(kernel, straight, turned="{0}_tile[q + lane][r + row]"),
    )


def _paired(kernel: Map) -> str:
    """As ``_tiled`` with one operand that is turned, of two bytes as the output is, in pairs."""
    turned = next(o for o in kernel.operands if o.form == "turned")
    return PAIRED.format(
        **_common(kernel, "i64" if kernel.wide else "i32"),
        **_places(kernel, ("turned", "out_")),
        given=stored(turned.dtype),
        x=turned.name,
        from_even=_arguments(kernel, "even.at[j]"),
        from_odd=_arguments(kernel, "odd.at[j]"),
    )


def _places(kernel: Map, forms: tuple[str, ...]) -> dict[str, object]:
    """The text that finds where the operands of these forms, and a scattered output, are read."""
    names = [o.name for o in kernel.operands if o.form in forms]
    names += ["out_"] * (kernel.scatters or "out_" in forms)
    return {
        "rank": kernel.rank,
        "fields": "".join(f", {name}[{kernel.rank}]" for name in names),
        "zeros": "".join(f", {name}_at = 0" for name in names),
        "steps": "\n".join(f"            {name}_at += k * at.{name}[d];" for name in names),
        "heads": "\n".join(f"        {name}_at += rest * at.{name}[0];" for name in names),
    }


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


def _arguments(kernel: Map, place: str, **places: str) -> str:
    """The arguments of ``apply``: ``place`` says where an element in memory is read from.

    ``places`` says it for some forms.
    """
    parts = []
    for o in kernel.operands:
        if o.form in ("value", "single"):
            parts.append(f"{o.name}_value")
        else:
            found = places.get(o.form, place).format(o.name)
            parts.append(f"to<{computed(o.computed)}>({found})")
    return ", ".join(parts)
