"""The kernels of random numbers and windows compile for every architecture without spills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ruda
from ruda.core.dtypes import DType
from tests.cuda.test_compile import ARCHITECTURES, spills

compiler = pytest.importorskip("ruda.backends.cuda.compiler")

Kernel = tuple[str, str]
REALS = (ruda.float32, ruda.float64, ruda.bfloat16)


def random_kernels() -> Iterator[Kernel]:
    from ruda.backends.cuda.prim import categorical, dropout, random

    for dtype in REALS:
        for maker in ("Uniform", "Normal", "Exponential", "Bulk", "Box", "Tail", "Gamma"):
            yield random.text(maker, dtype)
        yield dropout.text(dtype, True)
    for dtype in (ruda.int8, ruda.int32, ruda.int64):
        yield random.text("Narrow", dtype)
        yield random.text("Broad", dtype)
    yield random.text("Below", ruda.bool)
    yield random.text("Keys", ruda.uint64)
    for data in (ruda.float32, ruda.float64):
        yield random.text("Bernoulli", ruda.bool, data)
        yield random.text("Gumbel", data, data)
        yield categorical.text(0, data)
    yield categorical.text(1, ruda.float32)


def window_kernels() -> Iterator[Kernel]:
    from ruda.backends.cuda.prim import grid_sample, pool, resample, windows

    def of(dtype: DType) -> Iterator[Kernel]:
        for op in range(5):
            yield pool.text(op, dtype)
        for op in range(2):
            yield pool.text(op, dtype, last=True)
        for op in range(3):
            yield windows.text(op, dtype)
        for terms in (0, 1, 2, 3, 4):
            yield resample.text(dtype, terms, 1)
            yield resample.text(dtype, terms, max(2, 16 // dtype.itemsize))

    for dtype in REALS:
        yield from of(dtype)
        for mode in ("nearest", "bilinear", "bicubic"):
            yield grid_sample.text(dtype, mode, 2)
        yield grid_sample.text(dtype, "bilinear", 3)
    yield pool.text(1, ruda.complex64)
    yield pool.text(3, ruda.complex64)
    yield pool.text(0, ruda.uint8)


def check(kernels: Iterator[Kernel], arch: str) -> None:
    for name, text in kernels:
        code, log = compiler.compile_cubin(text, name, arch)
        assert code.startswith(b"\x7fELF")
        spilt = spills(log)
        assert name in spilt
        assert {n: size for n, size in spilt.items() if size} == {}


@pytest.mark.parametrize(
    "arch",
    ["sm_90a", *(pytest.param(a, marks=pytest.mark.slow) for a in ARCHITECTURES if a != "sm_90a")],
)
@pytest.mark.parametrize("kernels", [random_kernels, window_kernels])
def test_without_spills(kernels, arch: str) -> None:
    check(kernels(), arch)
