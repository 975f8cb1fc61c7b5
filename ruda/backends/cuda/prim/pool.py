"""Pooling and its transposes: every output element gathers, so results do not depend on timing."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda import source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import pool_last
from ruda.backends.cuda.prim.planes import (
    Planes,
    axes_bytes,
    dense_copy,
    shape_of_launch,
    source_of,
)
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType, int64
from ruda.core.mode import recording
from ruda.core.shapes import Shape
from ruda.core.spec import Spec
from ruda.ops.statistics import mean
from ruda.tensor.tensor import wrap

# The kernels by their numbers in ``pool.cu``.
_OPS = ("max_pool", "avg_pool", "max_pool_backward", "avg_pool_backward", "max_pool_pick")
_MAX, _AVERAGE, _MAX_BACKWARD, _AVERAGE_BACKWARD, _PICK = range(len(_OPS))
# Fewer channels do not fill the lanes that read them, and rows of positions do better.
_FEWEST_CHANNELS = 16
# Positions are counted in 32 bits, planes as well.
_LARGEST_PLANE = 2**30


class Pooling(NamedTuple):
    """Columns of ``axes_bytes``, the divisor (0: by extent), whether padding counts."""

    axes: tuple[Shape, ...]
    divisor: int = 0
    padded: bool = True


def text(op: int, dtype: DType, index: DType = int64, last: bool = False) -> tuple[str, str]:
    """Name and source of a kernel."""
    suffix = "_last" * last
    if op in (_MAX_BACKWARD, _PICK):
        suffix += f"_{code_of(index)}"
    name = f"{_OPS[op]}_{code_of(dtype)}{suffix}"
    types = {"STORED": stored(dtype), "REAL": computed(dtype), "INDEX": stored(index)}
    complex_ = int(dtype.kind == "complex")
    return name, source.instance(
        __file__, NAME=name, OP=op, LAST=int(last), COMPLEX=complex_, **types
    )


def slid(
    sizes: Shape, counts: Shape, kernel: Shape, stride: Shape, padding: Any, gaps: Shape
) -> tuple[Shape, ...]:
    """The columns of windows that slide."""
    lows, highs = (tuple(pair[i] for pair in padding) for i in (0, 1))
    return sizes, counts, kernel, stride, lows, highs, gaps


def divided(sizes: Shape, counts: Shape) -> tuple[Shape, ...]:
    """The columns of windows that divide each axis."""
    ones, zeros = (1,) * len(sizes), (0,) * len(sizes)
    return sizes, counts, ones, zeros, zeros, zeros, ones


def _anywhere(sizes: Shape, counts: Shape) -> tuple[Shape, ...]:
    """The columns of windows of which each may cover each element."""
    ones, zeros = (1,) * len(sizes), (0,) * len(sizes)
    return sizes, counts, (2**31 - 1,) * len(sizes), ones, counts, zeros, ones


def forward(client: Any, plan: Any, op: int, how: Pooling) -> Callable[..., Any] | None:
    """Maximum (values and indices) or average of windows."""
    x, out = plan.specs[0], plan.out
    sizes, counts = how.axes[:2]
    values = out[0] if op == _MAX else out
    if values.size == 0:
        return lambda h: _allocated(client, out)
    given = source_of(client, x, len(sizes))
    plane, planes = math.prod(counts), given.planes
    if not _fits(planes, plane, math.prod(sizes)):
        return None
    # Channels come along lanes where they are what lies together.
    last = planes.channel == 1 and planes.channels >= _FEWEST_CHANNELS and planes.strides[2] != 1
    if last:
        grid, block = _turned(client, plane, planes)
    else:
        grid, block = shape_of_launch(client, plane, planes.batches * planes.channels)
    name, whole = text(op, x.dtype, last=last)
    launch = Launcher(client, whole, name, grid, block, (1, 1, 1), [_geometry(how, planes)])

    def run(h: Any) -> Any:
        result, x = _allocated(client, out), given.settle(h)
        places = (result[0].address, result[1].address) if op == _MAX else (result.address, 0)
        launch(*places, x.address)
        return result

    return run


def _allocated(client: Any, out: Any) -> Any:
    if isinstance(out, tuple):
        return tuple(allocate(client.pool, spec) for spec in out)
    return allocate(client.pool, out)


def _fits(planes: Planes, *sizes: int) -> bool:
    return max(sizes) < _LARGEST_PLANE and planes.batches * planes.channels < 2**31


def _turned(client: Any, plane: int, planes: Planes) -> tuple[tuple[int, int], Shape]:
    blocks = -(-plane // 32)
    work = planes.batches * -(-planes.channels // 32)
    most = max(1, client.driver.multiprocessors * 16 // blocks)
    return (blocks, min(work, most, 65535)), (32, 8)


def _geometry(how: Pooling, planes: Planes) -> bytes:
    return (
        axes_bytes(*how.axes)
        + b"\0" * 4
        + planes.packed()
        + struct.pack("<2i", how.divisor, how.padded)
    )


def backward(
    client: Any, plan: Any, op: int, how: Pooling, indices: Spec | None = None
) -> Callable[..., Any] | None:
    """From gradients of windows to those of elements."""
    g, out = plan.specs[0], plan.out
    sizes, counts = how.axes[:2]
    if out.size == 0:
        return lambda *_: allocate(client.pool, out)
    if g.size == 0:
        return lambda *_: _zeros(client, out)
    given = source_of(client, g, len(sizes))
    plane, planes = math.prod(sizes), given.planes
    if not _fits(planes, plane, math.prod(counts)):
        return None
    grid, block = shape_of_launch(client, plane, planes.batches * planes.channels)
    name, whole = text(op, g.dtype, indices.dtype if indices is not None else int64)
    launch = Launcher(client, whole, name, grid, block, (1, 1, 1), [_geometry(how, planes)])
    # Indices come dense from the forward: any other layout is a user's own, and copied.
    settle = dense_copy(client, indices) if indices is not None else None

    def run(h: Any, found: Any = None) -> Any:
        result, g = allocate(client.pool, out), given.settle(h)
        chosen = settle(found) if settle is not None else None
        place = chosen.address if chosen is not None else 0
        launch(result.address, place, g.address)
        return result

    return run


def _zeros(client: Any, out: Spec) -> Any:
    result = allocate(client.pool, out)
    client.fill_zero(result.address, out.nbytes)
    return result


def max_pool(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Windows that slide, with gaps."""
    kernel, stride, padding, dilation, _ = plan.attrs
    rank = len(kernel)
    sizes, counts = plan.specs[0].shape[-rank:], plan.out[0].shape[-rank:]
    axes = slid(sizes, counts, kernel, stride, padding, dilation)
    return forward(client, plan, _MAX, Pooling(axes))


def avg_pool(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Windows that slide."""
    kernel, stride, padding, _, padded, divisor = plan.attrs
    rank = len(kernel)
    sizes, counts = plan.specs[0].shape[-rank:], plan.out.shape[-rank:]
    axes = slid(sizes, counts, kernel, stride, padding, (1,) * rank)
    return forward(client, plan, _AVERAGE, Pooling(axes, divisor or 0, padded))


def adaptive_max_pool(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Windows that divide."""
    counts = plan.attrs[0]
    axes = divided(plan.specs[0].shape[-len(counts) :], counts)
    return forward(client, plan, _MAX, Pooling(axes))


def adaptive_avg_pool(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Windows that divide."""
    counts = plan.attrs[0]
    if math.prod(counts) == 1 and plan.specs[0].size:
        return _mean(plan.specs[0], len(counts))
    axes = divided(plan.specs[0].shape[-len(counts) :], counts)
    return forward(client, plan, _AVERAGE, Pooling(axes))


def _mean(x: Spec, rank: int) -> Callable[..., Any]:
    """One window over all: a reduction, which has many threads to an output."""
    axes = tuple(range(x.ndim - rank, x.ndim))

    def run(h: Any) -> Any:
        with recording(False):
            return mean(wrap(x, h), axis=axes, keepdims=True).handle

    return run


def max_pool_backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Each element asks the windows that can have chosen it."""
    x_shape, rank, window = plan.attrs
    sizes, counts = x_shape[-rank:], plan.specs[0].shape[-rank:]
    if window is None:
        axes = _anywhere(sizes, counts)
    else:
        axes = slid(sizes, counts, *window) if window else divided(sizes, counts)
    return backward(client, plan, _MAX_BACKWARD, Pooling(axes), plan.specs[1])


def avg_pool_backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Each element adds up its shares."""
    x_shape, kernel, stride, padding, _, padded, divisor = plan.attrs
    rank = len(kernel)
    counts = plan.specs[0].shape[-rank:]
    axes = slid(x_shape[-rank:], counts, kernel, stride, padding, (1,) * rank)
    return backward(client, plan, _AVERAGE_BACKWARD, Pooling(axes, divisor or 0, padded))


def adaptive_avg_pool_backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Each element adds up its shares."""
    x_shape, rank = plan.attrs
    axes = divided(x_shape[-rank:], plan.specs[0].shape[-rank:])
    return backward(client, plan, _AVERAGE_BACKWARD, Pooling(axes))


def max_pool_pick(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Each window reads the element that it chose."""
    x, indices = plan.specs
    out, rank = plan.out, plan.attrs[0]
    if out.size == 0:
        return lambda *_: allocate(client.pool, out)
    given, settle = source_of(client, x, rank), dense_copy(client, indices)
    sizes, counts = x.shape[-rank:], out.shape[-rank:]
    plane, planes = math.prod(counts), given.planes
    if not _fits(planes, plane, math.prod(sizes)):
        return None
    grid, block = shape_of_launch(client, plane, planes.batches * planes.channels)
    name, whole = text(_PICK, x.dtype, indices.dtype)
    how = _geometry(Pooling(divided(sizes, counts)), planes)
    launch = Launcher(client, whole, name, grid, block, (1, 1, 1), [how])

    def run(h: Any, found: Any) -> Any:
        result, chosen, x = allocate(client.pool, out), settle(found), given.settle(h)
        launch(result.address, chosen.address, x.address)
        return result

    return run


KERNELS = {
    **pool_last.KERNELS,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_max_pool": adaptive_max_pool,
    "adaptive_avg_pool": adaptive_avg_pool,
    "max_pool_backward": max_pool_backward,
    "avg_pool_backward": avg_pool_backward,
    "max_pool_pick": max_pool_pick,
    "adaptive_avg_pool_backward": adaptive_avg_pool_backward,
}
