"""Windows as columns, and columns or windows added up: each output element gathers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda import source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.planes import (
    BLOCKS_PER_MULTIPROCESSOR,
    THREADS,
    Planes,
    axes_bytes,
    dense_copy,
    planes_of,
    shape_of_launch,
    source_of,
)
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType
from ruda.core.shapes import Shape
from ruda.core.spec import Spec
from ruda.ops.reference.windows import window_count

_OPS = ("im2col", "col2im", "fold")
_LARGEST_PLANE = 2**30


def text(op: int, dtype: DType) -> tuple[str, str]:
    """Name and source of a kernel."""
    name = f"{_OPS[op]}_{code_of(dtype)}"
    types = {"STORED": stored(dtype), "REAL": computed(dtype)}
    return name, source.instance(__file__, NAME=name, OP=op, **types)


def _columns(sizes: Shape, kernel: Shape, stride: Shape, padding: Any, gaps: Shape) -> Any:
    """The columns of ``axes_bytes``; the second holds the number of windows along each axis."""
    settings = zip(sizes, kernel, stride, padding, gaps, strict=True)
    counts = tuple(window_count(*axis) for axis in settings)
    lows, highs = (tuple(pair[i] for pair in padding) for i in (0, 1))
    return sizes, counts, kernel, stride, lows, highs, gaps


def _geometry(axes: Any, planes: Planes) -> bytes:
    return axes_bytes(*axes) + b"\0" * 4 + planes.packed()


def _zeros(client: Any, out: Spec) -> Any:
    result = allocate(client.pool, out)
    client.fill_zero(result.address, out.nbytes)
    return result


def im2col(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``x`` as it lies, its windows as columns."""
    x, out = plan.specs[0], plan.out
    if out.size == 0:
        return lambda h: allocate(client.pool, out)
    axes = _columns(x.shape[2:], *plan.attrs)
    if max(math.prod(axes[0]), math.prod(axes[1])) >= _LARGEST_PLANE:
        return None
    given = source_of(client, x, x.ndim - 2)
    grid, block = shape_of_launch(client, out.shape[2], out.shape[0] * out.shape[1])
    name, whole = text(0, x.dtype)
    launch = Launcher(client, whole, name, grid, block, (1, 1), [_geometry(axes, given.planes)])

    def run(h: Any) -> Any:
        result, x = allocate(client.pool, out), given.settle(h)
        launch(result.address, x.address)
        return result

    return run


def col2im(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Columns added up; they are read from a dense copy unless they are dense."""
    x, out = plan.specs[0], plan.out
    sizes = plan.attrs[0]
    if out.size == 0:
        return lambda h: allocate(client.pool, out)
    if x.size == 0:
        return lambda h: _zeros(client, out)
    axes = _columns(sizes, *plan.attrs[1:])
    if max(math.prod(axes[0]), math.prod(axes[1])) >= _LARGEST_PLANE:
        return None
    planes, settle = planes_of(out, len(sizes)), dense_copy(client, x)
    assert planes is not None
    grid, block = shape_of_launch(client, math.prod(sizes), out.shape[0] * out.shape[1])
    name, whole = text(1, out.dtype)
    launch = Launcher(client, whole, name, grid, block, (1, 1), [_geometry(axes, planes)])

    def run(h: Any) -> Any:
        result, x = allocate(client.pool, out), settle(h)
        launch(result.address, x.address)
        return result

    return run


def fold(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Windows along one axis added up; read from a dense copy unless they are dense."""
    x, out = plan.specs[0], plan.out
    shape, axis, size, step = plan.attrs
    if out.size == 0:
        return lambda h: allocate(client.pool, out)
    if x.size == 0:
        return lambda h: _zeros(client, out)
    count, outer, inner = x.shape[axis], math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    if max(shape[axis], outer, inner) >= _LARGEST_PLANE:
        return None
    axes = (shape[axis],), (count,), (size,), (step,), (0,), (0,), (1,)
    planes = Planes((0, 0, 0), 0, 0, outer, inner)
    most = client.driver.multiprocessors * BLOCKS_PER_MULTIPROCESSOR
    grid = min(-(-out.size // THREADS), most)
    name, whole = text(2, out.dtype)
    launch = Launcher(client, whole, name, grid, THREADS, (1, 1), [_geometry(axes, planes)])
    settle = dense_copy(client, x)

    def run(h: Any) -> Any:
        result, x = allocate(client.pool, out), settle(h)
        launch(result.address, x.address)
        return result

    return run


KERNELS = {"im2col": im2col, "col2im": col2im, "fold": fold}
