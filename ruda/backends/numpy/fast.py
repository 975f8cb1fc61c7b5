"""Overrides of NumPy references that a measurement asked for; all else runs the reference.

Each takes a plan and returns its ``run``, or None to leave the plan to the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import empty
from ruda.backends.numpy.copies import bind_concat, bind_reshape
from ruda.backends.numpy.large import is_large
from ruda.backends.numpy.memory import Handle, handle_of
from ruda.backends.numpy.products import Cut, cut, cut_batch, multiply
from ruda.core.dtypes import DType
from ruda.core.shapes import reshape_strides
from ruda.core.spec import Spec


def bind_matmul(plan: Any) -> Callable[..., Any] | None:
    """BLAS without a pass beside it, which reads transposed operands where they lie.

    A matrix shared by a batch is one product of all rows: 1.1 ms against 1.3 for
    ``[32, 64, 256] @ [256, 256]`` in float32 on two cores.
    """
    x, y = plan.specs
    if x.weak or y.weak or not plan.out.shape:
        return None
    if plan.operand.is_integer:
        return _bind_whole(plan.out, x, y)
    if not x.dtype is y.dtype is plan.operand is plan.out.dtype or x.dtype.is_half:
        return None
    flat = (math.prod(x.shape[:-1]), x.shape[-1])
    foldable = y.ndim == 2 and reshape_strides(x.shape, x.strides, flat) is not None
    if flat[0] and x.ndim > 1 and foldable:
        how = cut(*flat, y.shape[-1])
        if how.parts or x.ndim > 2:
            return _bind_rows(plan.out, flat, how)
    elif x.ndim == y.ndim > 2 and x.shape[0] == y.shape[0] > 1:
        return _bind_batch(plan.out, x.shape[-1])
    return _bind_into(plan.out) if is_large(plan) else _multiply


def _multiply(hx: Any, hy: Any) -> Any:
    h = Handle()
    h.array = np.matmul(hx.array, hy.array)
    h.version = 0
    h.views = None
    return h


def _bind_into(out: Spec) -> Callable[..., Any]:
    shape, dtype = out.shape, out.dtype.numpy
    return lambda hx, hy: handle_of(np.matmul(hx.array, hy.array, out=empty(shape, dtype)))


def _bind_rows(out: Spec, flat: tuple[int, int], how: Cut) -> Callable[..., Any]:
    """The product of ``flat`` rows, all at once, with a matrix."""
    shape, dtype, n = out.shape, out.dtype.numpy, out.shape[-1]

    def run_flat(hx: Any, hy: Any) -> Any:
        array = empty(shape, dtype)
        multiply(hx.array, hy.array, array, None, how)
        return handle_of(array)

    def run(hx: Any, hy: Any) -> Any:
        array = empty(shape, dtype)
        multiply(hx.array.reshape(flat), hy.array, array.reshape(flat[0], n), None, how)
        return handle_of(array)

    return run_flat if len(shape) == 2 else run


def _bind_batch(out: Spec, inner: int) -> Callable[..., Any]:
    """Products of a batch that both operands have."""
    shape, dtype, how = out.shape, out.dtype.numpy, cut_batch(out.shape, inner)

    def run(hx: Any, hy: Any) -> Any:
        array = empty(shape, dtype)
        multiply(hx.array, hy.array, array, None, how)
        return handle_of(array)

    return run


def bind_linear(plan: Any) -> Callable[..., Any] | None:
    """One product of all rows, and the bias added where it lies."""
    x, w, b = plan.specs
    flat = (math.prod(x.shape[:-1]), x.shape[-1])
    dtype = x.dtype
    if not dtype is w.dtype is plan.out.dtype or dtype.is_half or dtype.is_integer:
        return None
    if x.weak or not x.size or reshape_strides(x.shape, x.strides, flat) is None:
        return None
    shape, kind, n, biased = plan.out.shape, dtype.numpy, plan.out.shape[-1], not b.weak
    how, is_flat = cut(*flat, n), x.ndim == 2

    def run(hx: Any, hw: Any, hb: Any) -> Any:
        rows, array = hx.array, empty(shape, kind)
        y = array if is_flat else array.reshape(flat[0], n)
        bias = hb.array if biased else None
        multiply(rows if is_flat else rows.reshape(flat), hw.array.T, y, bias, how)
        return handle_of(array)

    return run


def bind_linear_weight(plan: Any) -> Callable[..., Any] | None:
    """The product of all rows, and their sum, of operands that can be shown as matrices."""
    g, x = plan.specs
    folded = [(math.prod(s.shape[:-1]), s.shape[-1]) for s in (g, x)]
    dtype = g.dtype
    if not dtype is x.dtype is plan.out[0].dtype or dtype.kind != "float" or dtype.is_half:
        return None
    shown = [reshape_strides(s.shape, s.strides, f) for s, f in zip((g, x), folded, strict=True)]
    if not g.size or not x.size or None in shown:
        return None
    kind, how = dtype.numpy, cut(folded[0][1], *folded[1])
    shape, is_flat = plan.out[0].shape, g.ndim == 2

    def run(hg: Any, hx: Any) -> Any:
        rows, inputs = hg.array, hx.array
        if not is_flat:
            rows, inputs = rows.reshape(folded[0]), inputs.reshape(folded[1])
        dw = empty(shape, kind)
        multiply(rows.T, inputs, dw, None, how)
        return handle_of(dw), handle_of(np.add.reduce(rows, axis=0))

    return run


# With one zero NumPy's maximum stays scalar: 26 us against 7 for 32 k float32.
_ZEROS = {name: np.zeros(1 << 15, name) for name in ("float32", "float64")}


def bind_relu(plan: Any) -> Callable[..., Any] | None:
    """The maximum with zeros that are there already, in pieces of their length."""
    zeros, out = _ZEROS.get(plan.out.dtype.name), plan.out
    if zeros is None or plan.specs[0].dtype is not out.dtype or not plan.specs[0].contiguous:
        return None
    shape, size, dtype, step = out.shape, out.size, out.dtype.numpy, len(zeros)
    few: Any = zeros[:size].reshape(shape) if shape and size <= step else None

    def run_few(hx: Any) -> Any:
        return handle_of(np.maximum(hx.array, few))

    def run(hx: Any) -> Any:
        array = empty(shape, dtype)
        x, y = hx.array.reshape(-1), array.reshape(-1)
        for start in range(0, size, step):
            part = x[start : start + step]
            np.maximum(part, zeros[: len(part)], out=y[start : start + step])
        return handle_of(array)

    return run if few is None else run_few


def bind_mean_counted(plan: Any) -> Callable[..., Any] | None:
    """The reference without the checks of what it gives back: 0-d results of a known dtype."""
    dtype, ignore = plan.out[0].dtype, plan.attrs[0]
    if plan.specs[0].dtype is not dtype or dtype.is_half:
        return None
    number = dtype.numpy.type

    def run(hl: Any, ht: Any) -> Any:
        count = number(np.count_nonzero(ht.array != ignore))
        mean = np.add.reduce(hl.array, axis=None) / count
        return handle_of(np.asarray(mean)), handle_of(np.asarray(count))

    return run


def bind_full(plan: Any) -> Callable[..., Any]:
    """One assignment, without the layers of np.full; the cast is made here, for its warnings."""
    shape, dtype = plan.out.shape, plan.out.dtype.numpy

    def run(value: Any) -> Any:
        array = np.empty(shape, dtype)
        array[...] = np.asarray(value, dtype)
        return handle_of(array)

    return run


def _largest(dtype: DType) -> int:
    return 1 << (dtype.bits - (dtype.kind == "int"))


def _bind_whole(out: Spec, x: Spec, y: Spec) -> Callable[..., Any] | None:
    """Narrow integers through floating BLAS while every sum is exact; the result wraps as always.

    256 x 256 of int8 into int32: 0.2 ms in float32 and 0.4 in float64 against 12 for NumPy's loop.
    """
    largest = x.shape[-1] * _largest(x.dtype) * _largest(y.dtype)
    if largest > 2**53:
        return None
    exact = np.float32 if largest <= 2**24 else np.float64
    dtype = out.dtype.numpy

    def run(hx: Any, hy: Any) -> Any:
        array = np.matmul(hx.array.astype(exact), hy.array.astype(exact))
        return handle_of(array.astype(np.int64).astype(dtype))

    return run


FAST: dict[str, Callable[[Any], Callable[..., Any] | None]] = {
    "matmul": bind_matmul,
    "matmul_as": bind_matmul,
    "linear": bind_linear,
    "linear_weight_backward": bind_linear_weight,
    "relu": bind_relu,
    "reshape": bind_reshape,
    "copy": bind_reshape,
    "concat": bind_concat,
    "mean_where_counted": bind_mean_counted,
    "full": bind_full,
}
