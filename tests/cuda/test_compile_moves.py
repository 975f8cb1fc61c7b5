"""Reductions, copies over views and factories compile without spills, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

import ruda
from ruda.core.devices import client
from ruda.core.dtypes import DType
from ruda.core.spec import Spec, spec_of
from ruda.ops.listing import load
from ruda.tensor.dispatch import OPS
from tests.cuda.test_compile import ARCHITECTURES, spills

compiler = pytest.importorskip("ruda.backends.cuda.compiler")
reduce = pytest.importorskip("ruda.backends.cuda.prim.reduce")
reduce_shape = pytest.importorskip("ruda.backends.cuda.prim.reduce_shape")
maps = pytest.importorskip("ruda.backends.cuda.prim.map")
create = pytest.importorskip("ruda.backends.cuda.prim.create")

from ruda.backends.cuda import codegen, source  # noqa: E402
from ruda.backends.cuda.geometry import by_packs, by_tiles, layout_of  # noqa: E402
from ruda.backends.cuda.prim.formulas import conversion  # noqa: E402

load()
UNITS = 132
# Long and short runs, one output and many, odd lengths, columns wide and odd.
REDUCED = (
    ((1 << 24,), (0,)),
    ((1 << 20, 32), (1,)),
    ((1 << 16, 33), (1,)),
    ((1 << 16, 64, 32), (0, 2)),
    ((1 << 14, 1 << 14), (0,)),
    ((1 << 14, 1001), (0,)),
)
ATTRIBUTES = {"sum": (None,), "prod": (None,), "var": (1.0,), "vector_norm": (3.0,)}


def check(name: str, text: str, arch: str) -> None:
    code, log = compiler.compile_cubin(text, name, arch)
    assert code.startswith(b"\x7fELF")
    assert {n: size for n, size in spills(log).items() if size} == {}
    assert name in spills(log)


def reductions(op: str, dtype: DType) -> dict[str, str]:
    """Sources by name: one for each class of launch that ``REDUCED`` has, and the join."""
    found: dict[str, str] = {}
    for shape, axes in REDUCED:
        if op == "argmax" and len(axes) > 1:
            continue
        x = spec_of(client("cpu"), shape, dtype)
        typed = reduce.typed_of(OPS[op].lookup((x,), (axes, False, *ATTRIBUTES.get(op, ()))))
        joined = reduce_shape.axes_of(x, axes, typed.fold.ordered)
        shaped = reduce_shape.shape_of(joined, dtype.itemsize, typed.state, UNITS)
        found |= dict([reduce.kernel_of(typed, shaped), reduce.parts_kernel_of(typed)])
    return found


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_sums(arch: str) -> None:
    for name, text in reductions("sum", ruda.float32).items():
        check(name, text, arch)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["max", "argmax", "var", "logsumexp", "vector_norm", "prod"])
@pytest.mark.parametrize("dtype", [ruda.float32, ruda.bfloat16, ruda.float64], ids=str)
def test_other_reductions(op: str, dtype: DType) -> None:
    for name, text in reductions(op, dtype).items():
        check(name, text, "sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        ("sum", "int8"),
        ("argmax", "int8"),
        ("any", "bool"),
        ("var", "complex64"),
        ("sum", "bfloat16"),
    ],
)
def test_reductions_of_other_types(op: str, dtype: str) -> None:
    for name, text in reductions(op, getattr(ruda, dtype)).items():
        check(name, text, "sm_90a")


def moves(dtype: DType) -> list[Any]:
    """Classes of copies: by packs from a row, a column, a permuted tensor; through tiles."""
    cpu, size = client("cpu"), dtype.itemsize
    found = []
    for shape, strides, out in (
        ((64,), (1,), (100, 64)),
        ((100, 1), (1, 1), (100, 64)),
        ((5, 7, 64), (64, 320, 1), (5, 7, 64)),
        ((100, 200), (1, 100), (100, 200)),
        ((9, 20, 30), (600, 1, 20), (9, 20, 30)),
    ):
        specs: tuple[Spec, ...] = (spec_of(cpu, shape, dtype, strides),)
        target = spec_of(cpu, out, dtype)
        layout = layout_of(specs, target)
        best = by_packs(layout, (size, size)) or by_tiles(layout, (size, size)) or layout
        arguments = ("copy", "x", ("x",), specs, (dtype,), target)
        found.append(maps.kernel_of(*arguments, best, False))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_copies(arch: str) -> None:
    kernels = [k for d in (ruda.float32, ruda.bfloat16, ruda.complex128) for k in moves(d)]
    assert {k.count for k in kernels} >= {0, 4, 8} and {k.tile for k in kernels} == {0, 32, 64}
    code, log = compiler.compile_cubin(codegen.source(*kernels), "copies", arch)
    assert code.startswith(b"\x7fELF")
    assert {k.name for k in kernels} <= set(spills(log))
    assert not any(spills(log).values())


def test_conversions() -> None:
    dtypes = (ruda.float8_e4m3, ruda.float8_e5m2, ruda.float4_e2m1, ruda.float32, ruda.bfloat16)
    kernels = []
    for given in dtypes:
        for out in dtypes:
            expr = conversion(given, out)
            if expr is not None:
                operand = codegen.Operand("x", given, given, "dense")
                name = f"{given}_to_{out}"
                header = "ruda/fp8.cuh"
                kernels.append(codegen.Map(name, expr, (operand,), out, 0, header=header))
    log = compiler.compile_cubin(codegen.source(*kernels), "conversions", "sm_90a")[1]
    assert {k.name for k in kernels} <= set(spills(log)) and not any(spills(log).values())


@pytest.mark.parametrize(
    ("value", "out"),
    [("counted(i, at)", "i32"), ("spaced(i, at)", "half"), ("line_of_complex(i, at)", "c64")],
)
def test_factories(value: str, out: str) -> None:
    text = source.instance(create.__file__, NAME="made", OUT=out, VALUE=value)
    check("made", text, "sm_90a")
