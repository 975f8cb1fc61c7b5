"""Every generated map kernel compiles for every architecture, without a GPU and without spills."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import ruda
from ruda.core.devices import client
from ruda.core.dtypes import DType, compute_of
from ruda.core.errors import DTypeError, RudaError
from ruda.core.spec import spec_of
from ruda.ops.listing import load, rows

compiler = pytest.importorskip("ruda.backends.cuda.compiler")
codegen = pytest.importorskip("ruda.backends.cuda.codegen")

load()
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120")
# The compiler's own slow path for huge angles, and one function it unrolls far.
LISTED = {"__internal_trig_reduction_slowpathd": 96, "atan_f64d_f64_r0": 16}
DTYPES = (ruda.float32, ruda.float64, ruda.bfloat16, ruda.int32, ruda.complex64)


def kernels(dtype: DType, rank: int) -> Iterator[codegen.Map]:
    """A kernel of every row with an expression that takes ``dtype``; rank 0 is the flat form."""
    cpu = client("cpu")
    form = "strided" if rank else "dense"
    for name, op in rows().items():
        if op.expr is None or op.attrs or op.kind not in ("unary", "binary", "ternary"):
            continue
        dtypes = [ruda.bool if arg == "cond" else dtype for arg in op.args]
        try:
            plan = op.lookup(tuple(spec_of(cpu, (4,), d) for d in dtypes), ())
        except (DTypeError, RudaError):
            continue
        wanted = zip(op.args, dtypes, op.dtype_of_operands(plan), strict=True)
        operands = tuple(codegen.Operand(a, d, compute_of(w or d), form) for a, d, w in wanted)
        yield codegen.Map(name, op.expr, operands, plan.out.dtype, rank)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flat_kernels(dtype: DType, arch: str) -> None:
    compiles_without_spills(list(kernels(dtype, 0)), arch)


@pytest.mark.parametrize("rank", [1, 4])
def test_strided_kernels(rank: int) -> None:
    compiles_without_spills(list(kernels(ruda.float32, rank)), "sm_90a")


def compiles_without_spills(found: list[codegen.Map], arch: str) -> None:
    assert len(found) > 20
    code, log = compiler.compile_cubin(codegen.source(*found), "rows", arch)
    assert code.startswith(b"\x7fELF")
    spilt = spills(log)
    assert {k.name for k in found} <= set(spilt)
    assert {n: size for n, size in spilt.items() if size > LISTED.get(n, 0)} == {}


def spills(log: str) -> dict[str, int]:
    """Bytes that each function stores to local memory for want of registers."""
    entry = r"(?:Function properties for|Compiling entry function) '?(\w+)'?"
    found: dict[str, int] = {}
    name = ""
    for line in log.splitlines():
        named = re.search(entry, line)
        name = named.group(1) if named else name
        size = re.search(r"(\d+) bytes spill stores", line)
        if size:
            found[name] = max(found.get(name, 0), int(size.group(1)))
    return found


def test_a_kernel_that_does_not_compile_shows_its_line() -> None:
    operand = codegen.Operand("x", ruda.float32, ruda.float32, "dense")
    wrong = codegen.Map("wrong", "no_such_function(x)", (operand,), ruda.float32, 0)
    with pytest.raises(compiler.CompileError, match="no_such_function") as caught:
        compiler.compile_cubin(codegen.source(wrong), "wrong", "sm_90a")
    assert re.search(r"\d+: .*no_such_function\(x\)", str(caught.value))
