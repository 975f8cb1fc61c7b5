"""The kernels that operators ask for, from a GPU that has no memory and runs nothing."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from ruda.backends.cuda.blas import cublaslt, skinny
from ruda.backends.cuda.client import CudaClient
from ruda.backends.cuda.dnn import stem
from ruda.backends.cuda.fft import plans
from ruda.backends.cuda.solver import rows as solver_rows
from ruda.backends.cuda.solver.library import Solver
from ruda.core import devices
from ruda.core.dtypes import bfloat16, float16, float32
from ruda.tensor.dispatch import clear_plans
from tests.cuda.emulator.driver import EmulatedDriver, NoMemoryLeft
from tests.cuda.gate import calls
from tests.cuda.libraries.cublaslt import CublasLt

# Addresses are numbers: far apart, aligned as a driver's are.
_FIRST, _APART = 1 << 40, 512
WHERE = devices.Device("cuda", 0)


class ListingDriver(EmulatedDriver):
    """Notes the kernels that are asked for; tensors of any size cost nothing and read as zeros."""

    multiprocessors = 132
    total = 1 << 50

    def __init__(self) -> None:
        super().__init__()
        self.kernels: dict[str, str] = {}
        self._next = _FIRST

    def kernel(self, source: str, name: str, shared: int = 0) -> int:
        """Note its name, by source."""
        assert shared <= self.shared_memory
        self.kernels[source] = name
        return 0

    def launch(self, kernel: int, *rest: int) -> None:
        """Nothing runs."""

    def allocate(self, nbytes: int) -> int:
        """An address with nothing behind it."""
        address = self._next
        self._next += -(-(nbytes + 1) // _APART) * _APART
        return address

    def release(self, address: int) -> None:
        """There is nothing to give back."""

    def to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Nothing is kept."""

    on_device = to_device

    def to_host(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Zeros, now or when a graph is launched."""
        self._queue(stream, lambda: ctypes.memset(target, 0, nbytes) and None)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Nothing is kept."""

    def wait(self, stream: int) -> None:
        """Nothing was queued."""


class Products(CublasLt):
    """cuBLASLt that multiplies nothing."""

    def matmul(self, handle: int, *given: int) -> None:
        """Nothing runs."""


class Silent:
    """cuSOLVER, cuBLAS and cuFFT: functions that do nothing, with scratch memory of 64."""

    def __getattr__(self, name: str) -> Any:
        pair = "xsyev" in name and "buffer" in name
        return lambda *given: (64, 64) if pair else 64


@contextlib.contextmanager
def listed() -> Iterator[ListingDriver]:
    """The driver of what is ``cuda:0`` inside the block."""
    driver = ListingDriver()
    made = CudaClient(WHERE, driver, NoMemoryLeft)
    solver, products = Solver(made, Silent(), Silent()), cublaslt.Library(made, Products())
    before = devices._clients.get(WHERE)
    kept = cublaslt.library, plans.library, solver_rows.solver_of
    cublaslt.library = plans.library = solver_rows.solver_of = None  # type: ignore[assignment]
    try:
        cublaslt.library = lambda client: products  # type: ignore[assignment]
        plans.library = lambda client: Silent()  # type: ignore[assignment]
        solver_rows.solver_of = lambda client: solver  # type: ignore[assignment]
        devices._clients[WHERE] = made  # type: ignore[assignment]
        clear_plans()
        yield driver
    finally:
        cublaslt.library, plans.library, solver_rows.solver_of = kept
        clear_plans()
        plans.plan_of.cache_clear()
        devices._clients.pop(WHERE)
        if before is not None:
            devices._clients[WHERE] = before


def by_library() -> dict[str, str]:
    """Names by source of what runs only where cuBLASLt is not installed, or where cuDNN is."""
    forms = [(True, 1, 1, 8), (True, 2, 1, 8), (False, 1, 1, 8), (False, 1, 2, 4), (False, 2, 2, 8)]
    halves = (bfloat16, float16)
    types = [(half, out) for half in halves for out in (half, float32)]
    thin = [skinny.Kernel(*pair, *form) for pair in types for form in forms]
    found = [(kernel.name, kernel.source()) for kernel in thin]
    found += [
        stem.text(pack, half, 8 * n) for pack in (True, False) for half in halves for n in (1, 2)
    ]
    return {source: name for name, source in found}


def kernels() -> dict[str, str]:
    """Names by source: of all rows of the table with their samples, and of ``calls``."""
    from tests.gpu.test_rows import functions, on_device

    with listed() as driver:
        for param in functions(False):
            (case,) = param.values
            on_device(case, case.operands(np.random.default_rng(0)), str(WHERE))
        for call in calls.every():
            call()
    return driver.kernels | by_library()
