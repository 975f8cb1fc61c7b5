"""CUDA C of regions: many elementwise steps in one kernel, with one or several results.

A region is to a map what a program is to an expression. Steps run on one element after the other in
registers; each rounds to the dtype that its own result would have had in memory, so a region gives
what its steps give one by one. Classes, forms of operands and ranks are those of ``codegen``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ruda.backends.cuda.codegen import HEADER, THREADS, Operand
from ruda.backends.cuda.codegen_steps import Step, functions
from ruda.backends.cuda.codegen_templates import WALK
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType


@dataclass(frozen=True)
class Region:
    """A class of kernels: inputs, steps, and the steps whose results are written."""

    inputs: tuple[Operand, ...]
    steps: tuple[Step, ...]
    kept: tuple[int, ...]
    rank: int
    wide: bool = False

    @property
    def name(self) -> str:
        """Readable, and different for different classes."""
        words = "_".join(dict.fromkeys(step.op for step in self.steps))[:48]
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        return f"fused_{words}_{code_of(self.outs[0])}_r{self.rank}_{digest}"

    @property
    def outs(self) -> tuple[DType, ...]:
        """The dtypes of the results."""
        return tuple(self.steps[k].out for k in self.kept)


def vector(region: Region) -> int:
    """Elements of one thread's step: 16 bytes of the widest dense operand or result."""
    sizes = [o.dtype.itemsize for o in region.inputs if o.form == "dense"]
    return max(1, 16 // max(*sizes, *(d.itemsize for d in region.outs), 1))


def source(region: Region) -> str:
    """The CUDA C of the program with this kernel alone."""
    return HEADER + "\n".join(
        [functions(region.steps)[0], _flat(region) if region.rank == 0 else _strided(region)]
    )


def _body(region: Region, place: str, indent: str) -> list[str]:
    """The steps in order; ``place`` says where an element of an input in memory is read from."""
    lines, same = [], functions(region.steps)[1]
    for k, step in enumerate(region.steps):
        arguments = []
        for source_, dtype in zip(step.sources, step.computed, strict=True):
            arguments.append(_argument(region, source_, computed(dtype), place))
        call = f"step{same[k]}({', '.join(arguments)})"
        lines.append(f"{indent}const {stored(step.out)} t{k} = {call};")
    return lines


def _argument(region: Region, source_: int, kind: str, place: str) -> str:
    count = len(region.inputs)
    if source_ >= count:
        return f"to<{kind}>(t{source_ - count})"
    operand = region.inputs[source_]
    if operand.form in ("value", "single"):
        return f"to<{kind}>({operand.name}_value)"
    return f"to<{kind}>({place.format(operand.name)})"


def _parameters(region: Region) -> str:
    out = [f"{stored(d)}* __restrict__ o{j}" for j, d in enumerate(region.outs)]
    for o in region.inputs:
        if o.form == "value":
            out.append(f"const {computed(o.computed)} {o.name}_value")
        else:
            out.append(f"const {stored(o.dtype)}* __restrict__ {o.name}_data")
    return ", ".join(out)


def _singles(region: Region) -> str:
    line = "    const {kind} {name}_value = to<{kind}>(*{name}_data);"
    singles = (o for o in region.inputs if o.form == "single")
    return "\n".join(line.format(kind=computed(o.computed), name=o.name) for o in singles)


_FLAT = """
// Results and dense inputs: n elements. 16-byte accesses where all addresses allow them.
extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, {index} n, u32 aligned) {{
{singles}
    const {index} start = ({index})blockIdx.x * {threads} + threadIdx.x;
    const {index} step = ({index})gridDim.x * {threads};
    const {index} packs = aligned ? n / {count} : 0;
    for ({index} p = start; p < packs; p += step) {{
{loads}
#pragma unroll
        for (int k = 0; k < {count}; ++k) {{
{packed}
        }}
{stores}
    }}
    for ({index} i = packs * {count} + start; i < n; i += step) {{
{plain}
    }}
}}
"""


def _flat(region: Region) -> str:
    count = vector(region)
    dense = [o for o in region.inputs if o.form == "dense"]
    loads = [
        f"        const Pack<{stored(o.dtype)}, {count}> {o.name}_pack = "
        f"reinterpret_cast<const Pack<{stored(o.dtype)}, {count}>*>({o.name}_data)[p];"
        for o in dense
    ]
    loads += [f"        Pack<{stored(d)}, {count}> r{j};" for j, d in enumerate(region.outs)]
    stores = [
        f"        reinterpret_cast<Pack<{stored(d)}, {count}>*>(o{j})[p] = r{j};"
        for j, d in enumerate(region.outs)
    ]
    packed = _body(region, "{0}_pack.at[k]", " " * 12)
    packed += [f"            r{j}.at[k] = t{k};" for j, k in enumerate(region.kept)]
    plain = _body(region, "{0}_data[i]", " " * 8)
    plain += [f"        o{j}[i] = t{k};" for j, k in enumerate(region.kept)]
    return _FLAT.format(
        **_common(region, "u64" if region.wide else "u32"),
        count=count,
        loads="\n".join(loads),
        packed="\n".join(packed),
        stores="\n".join(stores),
        plain="\n".join(plain),
    )


_STRIDED = (
    """
struct Geometry {{ {index} n, size[{rank}]{fields}; }};

// Coordinates from the row-major number of an element; a stride for each input that needs one.
extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, const Geometry at) {{
{singles}
"""
    + WALK
    + """{body}
    }}
}}
"""
)


def _strided(region: Region) -> str:
    names = [o.name for o in region.inputs if o.form == "strided"]
    body = _body(region, "{0}_data[{0}_at]", " " * 8)
    body += [f"        o{j}[i] = t{k};" for j, k in enumerate(region.kept)]
    return _STRIDED.format(
        **_common(region, "i64" if region.wide else "i32"),
        rank=region.rank,
        fields="".join(f", {name}[{region.rank}]" for name in names),
        zeros="".join(f", {name}_at = 0" for name in names),
        steps="\n".join(f"            {name}_at += k * at.{name}[d];" for name in names),
        heads="\n".join(f"        {name}_at += rest * at.{name}[0];" for name in names),
        body="\n".join(body),
    )


def _common(region: Region, index: str) -> dict[str, object]:
    return {
        "name": region.name,
        "threads": THREADS,
        "parameters": _parameters(region),
        "singles": _singles(region),
        "index": index,
    }
