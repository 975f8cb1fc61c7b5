"""CUDA C of regions: many elementwise steps in one kernel, with one or several results.

A region is to a map what a program is to an expression. Steps run on one element after the other in
registers; each rounds to the dtype that its own result would have had in memory, so a region gives
what its steps give one by one. Classes, forms of operands and ranks are those of ``codegen``. Some
steps read at places of their own (``codegen_reads``) or draw (``codegen_draws``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ruda.backends.cuda import codegen_draws as draws
from ruda.backends.cuda import codegen_reads as reads
from ruda.backends.cuda.codegen import HEADER, Operand
from ruda.backends.cuda.codegen_draws import Draw
from ruda.backends.cuda.codegen_reads import Read, Walker
from ruda.backends.cuda.codegen_steps import THREADS, Step, functions
from ruda.backends.cuda.codegen_templates import WALKING
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType


@dataclass(frozen=True)
class Region:
    """A class of kernels: inputs, steps, and the steps whose results are written.

    An input of the form "read" is only read at places of ``reads``, whose ``walkers`` go along with
    the elements; one of the form "bits" fills there, and "none" is no parameter. Where anything is
    strided, ``count`` elements along the last axis are a pack.
    """

    inputs: tuple[Operand, ...]
    steps: tuple[Step, ...]
    kept: tuple[int, ...]
    rank: int
    wide: bool = False
    count: int = 1
    reads: tuple[Read, ...] = ()
    walkers: tuple[Walker, ...] = ()
    draws: tuple[Draw, ...] = ()

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

    @property
    def index(self) -> str:
        """The C type of offsets."""
        return ("i64" if self.wide else "i32") if self.rank else ("u64" if self.wide else "u32")


def vector(region: Region) -> int:
    """Elements of one thread's step: 16 bytes of the widest dense operand or result."""
    sizes = [o.dtype.itemsize for o in region.inputs if o.form == "dense"]
    return max(1, 16 // max(*sizes, *(d.itemsize for d in region.outs), 1))


def source(region: Region) -> str:
    """The CUDA C of the program with this kernel alone."""
    headers = reads.HEADER * bool(region.reads) + draws.HEADER * bool(region.draws)
    parts = [reads.FUNCTIONS] if region.reads else []
    parts += [draws.FUNCTIONS] if region.draws else []
    parts += [_functions(region)[0], _flat(region) if region.rank == 0 else _strided(region)]
    return headers + HEADER + "\n".join(parts)


def _functions(region: Region) -> tuple[str, dict[int, int]]:
    """The functions of the steps that are expressions, and for each of these which one it is."""
    reading = {read.step for read in region.reads}
    chosen = [k for k in range(len(region.steps)) if k not in reading]
    text, same = functions([region.steps[k] for k in chosen])
    return text, dict(zip(chosen, same, strict=True))


def _body(region: Region, place: str, indent: str, word: str = "0") -> list[str]:
    """The steps in order; ``place`` says where an element of an input in memory is read from."""
    lines, same = [], _functions(region)[1]
    drawing = {draw.step: draw for draw in region.draws}
    for k, step in enumerate(region.steps):
        if k not in same:
            lines.append(f"{indent}const {stored(step.out)} t{k} = t{k}_read.at[{word}];")
            continue
        own = drawing.get(k)
        taken = step.sources[: len(step.computed)]
        pairs = zip(taken, step.computed, strict=True)
        arguments = [_argument(region, source_, computed(dtype), place) for source_, dtype in pairs]
        arguments += [] if own is None else draws.arguments(own, word)
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
    if operand.form in ("same", "strided"):
        return f"to<{kind}>({operand.name}_one)"
    return f"to<{kind}>({place.format(operand.name)})"


def _parameters(region: Region) -> str:
    out = [f"{stored(d)}* __restrict__ o{j}" for j, d in enumerate(region.outs)]
    for o in region.inputs:
        if o.form == "value":
            out.append(f"const {computed(o.computed)} {o.name}_value")
        elif o.form == "bits":
            out.append(f"const u64 {o.name}_bits")
        elif o.form != "none":
            out.append(f"const {stored(o.dtype)}* __restrict__ {o.name}_data")
    for draw in region.draws:
        out += draws.parameters(draw)
    for read in region.reads:
        out += reads.parameters(read)
    return ", ".join(out)


def _singles(region: Region) -> str:
    line = "    const {kind} {name}_value = to<{kind}>(*{name}_data);"
    singles = (o for o in region.inputs if o.form == "single")
    return "\n".join(line.format(kind=computed(o.computed), name=o.name) for o in singles)


def _words(region: Region, count: int, first: str, indent: str) -> list[str]:
    """The random words of a pack, for each step that draws."""
    return [text for draw in region.draws for text in draws.lines(draw, count, first, indent)]


_FLAT = """
// Results and dense inputs: n elements. 16-byte accesses where all addresses allow them.
extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, {index} n, u32 aligned) {{
    wait_for_earlier();
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
    loads = [f"        {_pack(o, count, 'p')}" for o in dense]
    loads += [f"        Pack<{stored(d)}, {count}> r{j};" for j, d in enumerate(region.outs)]
    loads += _words(region, count, f"(u64)p * {count}", " " * 8)
    packed = _body(region, "{0}_pack.at[k]", " " * 12, "k")
    packed += [f"            r{j}.at[k] = t{k};" for j, k in enumerate(region.kept)]
    plain = _words(region, 1, "i", " " * 8) + _body(region, "{0}_data[i]", " " * 8)
    plain += [f"        o{j}[i] = t{k};" for j, k in enumerate(region.kept)]
    return _FLAT.format(
        **_common(region),
        count=count,
        loads="\n".join(loads),
        packed="\n".join(packed),
        stores="\n".join(_stores(region, count, "p")),
        plain="\n".join(plain),
    )


def _pack(operand: Operand, count: int, number: str) -> str:
    """A pack of an operand that lies as the result does."""
    kind = f"Pack<{stored(operand.dtype)}, {count}>"
    place = f"reinterpret_cast<const {kind}*>({operand.name}_data)[{number}]"
    return f"const {kind} {operand.name}_pack = {place};"


def _stores(region: Region, count: int, number: str) -> list[str]:
    return [
        f"        reinterpret_cast<Pack<{stored(d)}, {count}>*>(o{j})[{number}] = r{j};"
        for j, d in enumerate(region.outs)
    ]


_STRIDED = (
    WALKING
    + """{body}
    }}
}}
"""
)


def _strided(region: Region) -> str:
    walking = [o.name for o in region.inputs if o.form in _WALKED]
    names = [*walking, *(w.name for w in region.walkers if w.form in _WALKED)]
    numbers = sum(piece.numbers for read in region.reads for piece in read.pieces)
    fields = [f"{name}[{region.rank}]" for name in names]
    fields += [f"number[{numbers}]"] * (numbers > 0)
    return _STRIDED.format(
        **_common(region),
        function="",
        rank=region.rank,
        fields="".join(f", {field}" for field in fields),
        zeros="".join(f", {name}_at = 0" for name in names),
        steps="\n".join(f"            {name}_at += k * at.{name}[d];" for name in names),
        heads="\n".join(f"        {name}_at += rest * at.{name}[0];" for name in names),
        body="\n".join(_strided_body(region)),
    )


_WALKED = ("strided", "run", "same")


def _strided_body(region: Region) -> list[str]:
    count, first, lines = region.count, 0, []
    for o in region.inputs:
        kind, place = stored(o.dtype), f"{o.name}_data + {o.name}_at"
        if o.form == "dense":
            lines.append(f"        {_pack(o, count, 'i')}")
        elif o.form == "run":
            kind = f"Pack<{kind}, {count}>"
            pack = f"*reinterpret_cast<const {kind}*>({place})"
            lines.append(f"        const {kind} {o.name}_pack = {pack};")
        elif o.form in ("same", "strided"):
            lines.append(f"        const {kind} {o.name}_one = *({place});")
    for read in region.reads:
        out = region.steps[read.step].out
        lines += reads.lines(read, out, count, first, region.index)
        first += sum(piece.numbers for piece in read.pieces)
    lines += _words(region, count, f"(u64)i * {count}", " " * 8)
    lines += [f"        Pack<{stored(d)}, {count}> r{j};" for j, d in enumerate(region.outs)]
    lines += ["#pragma unroll", f"        for (int k = 0; k < {count}; ++k) {{"]
    lines += _body(region, "{0}_pack.at[k]", " " * 12, "k")
    lines += [f"            r{j}.at[k] = t{k};" for j, k in enumerate(region.kept)]
    return [*lines, "        }", *_stores(region, count, "i")]


def _common(region: Region) -> dict[str, object]:
    return {
        "name": region.name,
        "threads": THREADS,
        "parameters": _parameters(region),
        "singles": _singles(region),
        "index": region.index,
    }
