"""Matrix products by cuBLAS, through CuPy's bindings: for where nvmath-python is not installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.cuda.blas.cublaslt import KINDS, Arithmetic
from ruda.backends.cuda.blas.layout import Call, Geometry
from ruda.core.errors import StrategyError

_DEFAULT_ALGORITHM = -1
# Math modes: as the compute type says, and without partial sums in a half type.
_ANY_SUMS, _EXACT_SUMS = 0, 16


class _Number:
    """A stream by its number, as other libraries ask for it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.number


class Library:
    """cuBLAS of one client."""

    def __init__(self, client: Any) -> None:
        try:
            from cupy.cuda import Stream
            from cupy_backends.cuda.libs import cublas
        except ImportError:
            what, hint = "needs cuBLAS", 'pip install "ruda[cuda13]"'
            raise StrategyError("matmul", what, client.device, hint=hint) from None
        self.now, self.order, self.driver = client.now, client.order, client.driver
        self.module = cublas
        client.driver.activate()
        self.handle = cublas.create()
        self.exact: bool | None = None
        self._stream = functools.cache(lambda number: Stream.from_external(_Number(number)))

    def enter(self, exact: bool) -> None:
        """Make the client's stream the one that CuPy points the handle to on every call.

        CuPy refuses to call cuBLAS while a graph is captured.
        """
        if self.order.capture is not None:
            hint = "pip install nvmath-python, for cuBLASLt"
            self.order.capture.refuse("a product goes to cuBLAS by way of CuPy", hint)
        if self.order.crowded:
            self.driver.activate()
        self._stream(self.now.stream).use()
        if exact is not self.exact:
            self.module.setMathMode(self.handle, _EXACT_SUMS if exact else _ANY_SUMS)
            self.exact = exact


@functools.cache
def library(client: Any) -> Library:
    """cuBLAS for ``client``; raises ``StrategyError`` where it is not installed."""
    return Library(client)


def product(
    client: Any, how: Arithmetic, shape: Geometry, bias: bool = False, adds: bool = False
) -> Callable[..., None]:
    """The function that queues ``out = x @ y`` at the addresses (x, y, out), as in ``cublaslt``."""
    assert not bias, "cuBLAS adds no bias"
    found = library(client)
    factors = np.array([1, 1 if adds else 0], how.scale)
    one = factors.ctypes.data
    operand, result = np.dtype(_ndarray(how.operand)), np.dtype(_ndarray(how.result))
    m, n, k = shape.m, shape.n, shape.k
    sx, sy, so = shape.steps
    kind, kind_out = KINDS[how.operand], KINDS[how.result]
    multiply = found.module.gemmStridedBatchedEx

    def queue(call: Call, x: int, y: int, out: int, _keep: Any = factors) -> None:
        # cuBLAS counts columns first: the row-major product is that of the operands swapped.
        multiply(
            found.handle, int(shape.y.transposed), int(shape.x.transposed), n, m, k, one,
            y + call.y * operand.itemsize, kind, shape.y.leading, sy,
            x + call.x * operand.itemsize, kind, shape.x.leading, sx, one + factors.itemsize,
            out + call.out * result.itemsize, kind_out, n, so,
            call.count, how.compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    def run(x: int, y: int, out: int) -> None:
        found.enter(not how.rounds)
        for call in shape.calls:
            queue(call, x, y, out)

    return run


def _ndarray(name: str) -> str:
    return "float16" if name == "bfloat16" else name
