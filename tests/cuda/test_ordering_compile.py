"""Kernels of scans and ordering compile for all architectures, without a GPU or spills."""

from __future__ import annotations

from typing import Any

import pytest

import ruda
from ruda.core.devices import Device
from ruda.core.dtypes import DType
from ruda.core.spec import spec_of
from ruda.ops.listing import load
from ruda.ops.table import TABLE

compiler = pytest.importorskip("ruda.backends.cuda.compiler")

from tests.cuda.emulator.driver import EmulatedDriver, NoMemoryLeft  # noqa: E402
from tests.cuda.test_compile import ARCHITECTURES, spills  # noqa: E402

load()


class Recorder(EmulatedDriver):
    """Keeps the sources of the kernels that plans ask for, and compiles none."""

    multiprocessors = 132

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, str] = {}

    def kernel(self, source: str, name: str, shared: int = 0) -> int:
        self.sources[name] = source
        return 0


def kernels(op: str, given: tuple[Any, ...], *attrs: Any) -> dict[str, str]:
    """The sources by name that the plan of ``op`` for operands (shape, dtype) asks for."""
    from ruda.backends.cuda.client import CudaClient

    client = CudaClient(Device("cuda", 0), Recorder(), NoMemoryLeft)
    specs = tuple(spec_of(client, shape, dtype) for shape, dtype in given)
    TABLE[op].plan(specs, attrs, client, None)
    return client.driver.sources


def compiles(found: dict[str, str], arch: str) -> None:
    assert found
    for name, source in found.items():
        spilt = spills(compiler.compile_cubin(source, name, arch)[1])
        assert spilt[name] == 0, f"{name} on {arch}: {spilt}"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_largest_kernels(arch: str) -> None:
    """Those that the rows of the benchmarks run."""
    compiles(kernels("cumsum", (((50_000_000,), ruda.float32),), 0, False, False, None), arch)
    line = (((1 << 27,), ruda.float32),)
    compiles(kernels("sort", line, 0, False), arch)
    compiles(kernels("argsort", line, 0, False, True), arch)
    compiles(kernels("topk", (((64, 131_072), ruda.float32),), 64, 1, True), arch)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [ruda.bool, ruda.int64, ruda.bfloat16, ruda.float64], ids=str)
def test_every_way(dtype: DType) -> None:
    for shape in ((1000, 7), (1000, 60), (1000, 9000), (1 << 24,)):
        given, last = ((shape, dtype),), len(shape) - 1
        for op in ("cumsum", "cumprod"):
            compiles(kernels(op, given, last, True, True, None), "sm_90a")
        compiles(kernels("cummax", given, last, True, True), "sm_90a")
        compiles(kernels("sort", given, last, True), "sm_90a")
        compiles(kernels("argsort", given, last, True, True), "sm_90a")
        compiles(kernels("topk", given, 7, last, False), "sm_90a")
        compiles(kernels("cummin", given, 0, False, False), "sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [ruda.float32, ruda.float64, ruda.complex128], ids=str)
def test_scans_of_pairs(dtype: DType) -> None:
    for shape in ((1000, 7), (1000, 60), (1000, 9000), (1 << 24,)):
        pair = ((shape, dtype), (shape, dtype))
        for axis in {0, len(shape) - 1}:
            compiles(kernels("linear_recurrence", pair, axis, False, False), "sm_90a")
        if dtype is not ruda.complex128:
            given = ((shape, dtype),)
            compiles(kernels("cumlogsumexp", given, len(shape) - 1, False, True), "sm_90a")


@pytest.mark.slow
def test_searching_and_counting() -> None:
    lines, values = ((1000, 300), ruda.bfloat16), ((1000, 20), ruda.float64)
    compiles(kernels("searchsorted", (lines, values), True), "sm_90a")
    x = ((1 << 20,), ruda.int32)
    for weights in (ruda.int16, ruda.float16, ruda.float32, ruda.float64):
        compiles(kernels("bincount", (x, ((1 << 20,), weights)), 100), "sm_90a")
    for dtype in (ruda.complex64, ruda.float16, ruda.int64):
        compiles(kernels("unique_all", (((9000,), dtype),)), "sm_90a")
