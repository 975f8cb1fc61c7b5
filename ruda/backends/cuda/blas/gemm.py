"""Matrix products by cuBLAS; transposed views go in without copies."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import DType
from ruda.core.errors import StrategyError
from ruda.core.shapes import Shape, broadcast_strides
from ruda.core.spec import Spec

# cudaDataType_t of each dtype, and the compute type: float32 sums for the half types.
_KINDS = {"float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5, "bfloat16": 14}
_COMPUTE = {
    "float32": 68,
    "float64": 70,
    "float16": 68,
    "bfloat16": 68,
    "complex64": 68,
    "complex128": 70,
}
_SCALARS = {"float64": np.float64, "complex64": np.complex64, "complex128": np.complex128}


def bind(client: Any, plan: Any) -> Callable[[Any, Any], Any]:
    """The function from two handles to their product."""
    x, y, out = *plan.specs, plan.out
    dtype = out.dtype
    if dtype.name not in _KINDS or x.dtype is not dtype or y.dtype is not dtype:
        raise StrategyError("matmul", "has no CUDA kernel for these dtypes yet", plan.specs)
    if out.size == 0 or x.size == 0:
        return _zeros(client, out)
    a, b, batch, m, n, k = _operands(x, y)
    first, second = _side(a, (m, k)), _side(b, (k, n))
    if first is None or second is None:
        raise StrategyError(
            "matmul", "needs rows or columns without gaps", (x, y), hint="contiguous()"
        )
    steps, counts = _batch(a, b, batch)
    return _product(client, out, dtype, (first, second), (m, n, k), steps, counts)


def _operands(x: Spec, y: Spec) -> Any:
    """Both as (strides, rows, columns) with 1-d operands made matrices, and the sizes."""
    xs, ys = (x.shape, x.strides), (y.shape, y.strides)
    if x.ndim == 1:
        xs = ((1, *x.shape), (0, *x.strides))
    if y.ndim == 1:
        ys = ((*y.shape, 1), (*y.strides, 0))
    lead = tuple(np.broadcast_shapes(xs[0][:-2], ys[0][:-2]))
    a = (broadcast_strides("matmul", xs[0][:-2], xs[1][:-2], lead), xs[1][-2:])
    b = (broadcast_strides("matmul", ys[0][:-2], ys[1][:-2], lead), ys[1][-2:])
    return a, b, lead, xs[0][-2], ys[0][-1], xs[0][-1]


def _side(operand: Any, shape: Shape) -> tuple[int, int] | None:
    """(transposed, leading dimension) of a matrix for cuBLAS, None if neither stride is 1."""
    (rows, columns), (row_step, step) = shape, operand[1]
    if (step == 1 or columns == 1) and (row_step >= columns or rows == 1):
        return 0, max(row_step, columns, 1)
    if (row_step == 1 or rows == 1) and (step >= rows or columns == 1):
        return 1, max(step, rows, 1)
    return None


def _batch(a: Any, b: Any, lead: Shape) -> tuple[Any, Any]:
    """The last batch axis for one strided-batch call, and the offsets of the outer ones."""
    if not lead:
        return (0, 0, 1), [(0, 0)]
    inner = lead[-1]
    offsets = [
        (
            sum(i * s for i, s in zip(index, a[0][:-1], strict=True)),
            sum(i * s for i, s in zip(index, b[0][:-1], strict=True)),
        )
        for index in np.ndindex(*lead[:-1])
    ]
    return (a[0][-1], b[0][-1], inner), offsets


def _product(
    client: Any, out: Spec, dtype: DType, sides: Any, sizes: Any, steps: Any, offsets: Any
) -> Callable[[Any, Any], Any]:
    (ta, lda), (tb, ldb) = sides
    m, n, k = sizes
    step_a, step_b, count = steps
    kind, compute, size = _KINDS[dtype.name], _COMPUTE[dtype.name], dtype.itemsize
    scalar = _SCALARS.get(dtype.name, np.float32)
    one, zero = np.ones(1, scalar), np.zeros(1, scalar)
    alpha, beta = one.ctypes.data, zero.ctypes.data
    stride = m * n
    cublas, handle = library(client)

    def run(hx: Any, hy: Any, _keep: Any = (one, zero)) -> Any:
        result = allocate(client.pool, out)
        # CuPy points the handle at its own current stream on every call: make that one ours.
        client.main.use()
        # cuBLAS counts columns first: the row-major product is the product of the operands swapped.
        for i, (at_a, at_b) in enumerate(offsets):
            cublas.gemmStridedBatchedEx(
                handle, tb, ta, n, m, k, alpha,
                hy.address + at_b * size, kind, ldb, step_b,
                hx.address + at_a * size, kind, lda, step_a, beta,
                result.address + i * count * stride * size, kind, n, stride,
                count, compute, -1,
            )  # fmt: skip
        return result

    return run


def _zeros(client: Any, out: Spec) -> Callable[[Any, Any], Any]:
    def run(hx: Any, hy: Any) -> Any:
        result = allocate(client.pool, out)
        client.fill_zero(result.address, out.nbytes)
        return result

    return run


_handles: dict[int, Any] = {}


def library(client: Any) -> tuple[Any, int]:
    """cuBLAS and its handle of ``client``'s device; float32 products are IEEE."""
    cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
    index = client.device.index
    if index not in _handles:
        handle = _handles[index] = cublas.create()
        cublas.setMathMode(handle, 0)
    return cublas, _handles[index]


KERNELS = {"matmul": bind}
