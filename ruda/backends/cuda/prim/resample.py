"""Resampling along one axis, forward and transposed, by a table of elements and weights."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.cuda import source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.planes import dense_copy, shape_of_launch
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType, complex64, complex128, compute_of, float32, float64
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of
from ruda.ops.reference.resample import table

_MOST_TERMS = 4
_LARGEST = 2**31


class Line(NamedTuple):
    """Strides of the axis, of two outer and two inner axes, and the sizes of the lower of them."""

    step: int
    outer: Shape
    inner: Shape
    lower_outers: int
    lower_inners: int


def text(dtype: DType, terms: int, count: int) -> tuple[str, str]:
    """Name and source: ``terms`` kept in registers (0: any), ``count`` elements a thread."""
    name = f"resample_{code_of(dtype)}_t{terms}_x{count}"
    types = {"STORED": stored(dtype), "REAL": computed(dtype), "WEIGHT": stored(weight_of(dtype))}
    return name, source.instance(__file__, NAME=name, TERMS=terms, COUNT=count, **types)


def weight_of(dtype: DType) -> DType:
    """The dtype of weights: real, in the precision that is computed in."""
    real = {complex64: float32, complex128: float64}
    return real.get(dtype, compute_of(dtype))


def line_of(spec: Spec, axis: int) -> Line | None:
    """The strides around ``axis``; None where a side needs more than two."""
    outer = _joined(spec.shape[:axis], spec.strides[:axis])
    inner = _joined(spec.shape[axis + 1 :], spec.strides[axis + 1 :])
    if max(len(outer), len(inner)) > 2:
        return None
    (_, high), (lower, low) = ([(1, 0)] * 2 + outer)[-2:]
    (_, far), (near, close) = ([(1, 0)] * 2 + inner)[-2:]
    return Line(spec.strides[axis], (high, low), (far, close), lower, near)


def _joined(shape: Shape, strides: Shape) -> list[tuple[int, int]]:
    axes: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        else:
            axes.append((size, stride))
    return axes


def bind(client: Any, plan: Any, transposed: bool) -> Callable[..., Any] | None:
    """The function from a handle to the resampled one."""
    x, out = plan.specs[0], plan.out
    axis, size, *how = plan.attrs
    if out.size == 0:
        return lambda h: allocate(client.pool, out)
    if max(x.size, out.size) // max(1, min(x.shape[axis], size)) >= _LARGEST:
        return None
    lengths = (size, x.shape[axis]) if transposed else (x.shape[axis], size)
    indices, weights = table(*lengths, *how, transposed=transposed)
    line = line_of(x, axis)
    settle: Callable[[Any], Any] = lambda h: h  # noqa: E731
    if line is None:
        line = line_of(spec_of(client, x.shape, x.dtype), axis)
        settle = dense_copy(client, x)
    assert line is not None
    launches = _launches(client, x.dtype, out, axis, line, indices.shape[1])
    held = Tables(client, indices.astype(np.int32), weights.astype(weight_of(x.dtype).numpy))

    def run(h: Any) -> Any:
        result, h = allocate(client.pool, out), settle(h)
        tables = held.handles()
        launches[h.address % 16 == 0](result.address, h.address, *(t.address for t in tables))
        return result

    return run


class Tables:
    """Tables of a plan on the device, sent when they are first asked for."""

    def __init__(self, client: Any, *tables: Any) -> None:
        self.client = client
        self.tables = [np.ascontiguousarray(t.T) for t in tables]
        self.held: list[Any] = []

    def handles(self) -> list[Any]:
        """Their handles; those of a capture are the graph's own and filled by its replays alone."""
        if self.held:
            return self.held
        made = [self.client.upload(t, constant=True) for t in self.tables]
        if self.client.order.capture is None:
            # Once: another stream may read them next, and does not know what they wait for.
            self.client.driver.wait(self.client.now.stream)
            self.held = made
        return made


def _launches(
    client: Any, dtype: DType, out: Spec, axis: int, line: Line, terms: int
) -> tuple[Callable[..., None], Callable[..., None]]:
    """For any address, and for one of a multiple of 16 bytes."""
    outers, inners = math.prod(out.shape[:axis]), math.prod(out.shape[axis + 1 :])
    count = out.shape[axis]
    sizes = (outers, line.lower_outers, count, inners, line.lower_inners, terms)
    fixed = [struct.pack("<5q6I", line.step, *line.outer, *line.inner, *sizes)]
    kept = terms if terms <= _MOST_TERMS else 0

    def made(each: int) -> Launcher:
        grid, block = shape_of_launch(client, count * inners // each, outers)
        name, whole = text(dtype, kept, each)
        return Launcher(client, whole, name, grid, block, (1,) * 4, fixed)

    each = 16 // dtype.itemsize
    strides = (line.step, *line.outer, line.inner[0])
    fits = line.inner[1] == 1 and not any(s % each for s in strides)
    plain = made(1)
    if each > 1 and fits and inners % each == 0 and line.lower_inners % each == 0:
        return plain, made(each)
    return plain, plain


KERNELS = {
    "resample": functools.partial(bind, transposed=False),
    "resample_backward": functools.partial(bind, transposed=True),
}
