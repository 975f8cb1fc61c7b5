"""Operators on single elements, and copies in another order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.backends.numpy.kernels import pointwise, takes
from ruda.backends.numpy.kernels.compiler import Task, inline, task
from ruda.backends.numpy.kernels.steps.atoms import load, singles
from ruda.backends.numpy.kernels.steps.builder import Builder
from ruda.backends.numpy.kernels.steps.places import Place

# Elements of a part, and the least of an operand that is gone through several times.
_PART, _INNER = 1 << 15, 1 << 12
_F = np.float32

_gelu_tanh, _gelu = inline(pointwise.gelu_tanh.function), inline(pointwise.gelu.function)
_silu, _tanh = inline(pointwise.silu.function), inline(pointwise.tanh.function)
_gelu_tanh_backward = inline(pointwise.gelu_tanh_backward.function)
_gelu_backward = inline(pointwise.gelu_backward.function)
_silu_backward = inline(pointwise.silu_backward.function)
_relu_backward = inline(pointwise.relu_backward.function)


@inline
def _one(cells, part):
    """Operand and result of a part: cells of the size, the part's size, and both addresses."""
    size, step = load(cells), load(cells + 8)
    start = 4 * part * step
    count = min(step, size - part * step)
    return singles(load(cells + 16) + start, count), singles(load(cells + 24) + start, count)


@inline
def _two(cells, part):
    """As ``_one`` with two operands."""
    x, y = _one(cells, part)
    start = 4 * part * load(cells + 8)
    return x, y, singles(load(cells + 32) + start, x.size)


# Each is written out: what numba keeps of a function that closes over another one is not found by
# the next process, which would compile it anew.
@task
def relu(cells, part):
    x, out = _one(cells, part)
    for i in range(out.size):
        # A NaN stays one, and -0.0 becomes 0.0.
        out[i] = _F(0) if x[i] <= _F(0) else x[i]
    return 0


@task
def gelu_tanh(cells, part):
    x, out = _one(cells, part)
    _gelu_tanh(x, out)
    return 0


@task
def gelu(cells, part):
    x, out = _one(cells, part)
    _gelu(x, out)
    return 0


@task
def silu(cells, part):
    x, out = _one(cells, part)
    _silu(x, out)
    return 0


@task
def tanh(cells, part):
    x, out = _one(cells, part)
    _tanh(x, out)
    return 0


@task
def gelu_tanh_backward(cells, part):
    g, x, out = _two(cells, part)
    _gelu_tanh_backward(g, x, out)
    return 0


@task
def gelu_backward(cells, part):
    g, x, out = _two(cells, part)
    _gelu_backward(g, x, out)
    return 0


@task
def silu_backward(cells, part):
    g, x, out = _two(cells, part)
    _silu_backward(g, x, out)
    return 0


@task
def relu_backward(cells, part):
    g, x, out = _two(cells, part)
    _relu_backward(g, x, out)
    return 0


@task
def add(cells, part):
    x, y, out = _two(cells, part)
    for i in range(out.size):
        out[i] = x[i] + y[i]
    return 0


@task
def subtract(cells, part):
    x, y, out = _two(cells, part)
    for i in range(out.size):
        out[i] = x[i] - y[i]
    return 0


@task
def multiply(cells, part):
    x, y, out = _two(cells, part)
    for i in range(out.size):
        out[i] = x[i] * y[i]
    return 0


@task
def divide(cells, part):
    x, y, out = _two(cells, part)
    for i in range(out.size):
        out[i] = x[i] / y[i]
    return 0


_ALWAYS: dict[str, Task] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
    "relu": relu,
    "relu_backward": relu_backward,
}
# Their loops are those that eager code has from a size on.
_LARGE: dict[str, Task] = {
    "gelu_tanh": gelu_tanh,
    "gelu_tanh_backward": gelu_tanh_backward,
    "gelu": gelu,
    "gelu_backward": gelu_backward,
    "silu": silu,
    "silu_backward": silu_backward,
    "tanh": tanh,
}
TASKS = _ALWAYS | _LARGE


def takes_elements(plan: Any) -> bool:
    """Row-major float32 of one shape; the second operand may lack leading axes."""
    out, first, rest = plan.out, plan.specs[0], plan.specs[1:]
    if any(s.weak or s.dtype is not out.dtype or not s.contiguous for s in plan.specs):
        return False
    if out.dtype.name != "float32" or first.shape != out.shape:
        return False
    if plan.op.name in _LARGE:
        return takes(plan) and all(s.shape == out.shape for s in rest)
    ends = all(out.shape[out.ndim - s.ndim :] == s.shape for s in rest)
    return ends and all(s.size == out.size or s.size >= _INNER for s in rest)


def elements(b: Builder, plan: Any, *places: Place) -> None:
    *operands, out = places
    size, function = out.spec.size, TASKS[plan.op.name]
    if all(p.spec.size == size for p in operands):
        step = _step(size)
        b.add(function, -(-size // step), [size, step, *operands, out], [out], work=step)
        return
    # Once for each time that the smaller operand is gone through.
    x, y = operands
    inner = y.spec.size
    for i in range(size // inner):
        start = 4 * i * inner
        x_here, out_here = (Place(p.block, p.offset + start, p.spec) for p in (x, out))
        b.add(function, 1, [inner, inner, x_here, y, out_here], [out_here], work=inner)


def _step(size: int) -> int:
    """Elements of a part, in whole lines of the cache: halves of what is small."""
    if size <= 1 << 13:
        return max(size, 1)
    return min(-(-size // 2 // 16) * 16, _PART)


@task
def copied(cells, part):
    """Rows of a value of up to five axes in any order, the last one dense, row-major."""
    x, out, step, rows, n = (
        load(cells),
        load(cells + 8),
        load(cells + 16),
        load(cells + 24),
        load(cells + 32),
    )
    s1, s2, s3 = load(cells + 40), load(cells + 48), load(cells + 56)
    t0, t1, t2, t3 = load(cells + 64), load(cells + 72), load(cells + 80), load(cells + 88)
    for r in range(part * step, min(part * step + step, rows)):
        i3 = r % s3
        rest = r // s3
        i2 = rest % s2
        rest = rest // s2
        source = x + 4 * ((rest // s1) * t0 + (rest % s1) * t1 + i2 * t2 + i3 * t3)
        row, target = singles(source, n), singles(out + 4 * r * n, n)
        for j in range(n):
            target[j] = row[j]
    return 0


def takes_copy(plan: Any) -> bool:
    """float32 with a dense last axis."""
    x = plan.specs[0]
    return _copyable(x) and plan.out.dtype is x.dtype


def _copyable(x: Any) -> bool:
    dense = not x.weak and 2 <= x.ndim <= 5 and x.strides[-1] == 1
    return dense and x.dtype.name == "float32"


def copy(b: Builder, plan: Any, x: Place, out: Place) -> None:
    _copy(b, x, out, out)


def _copy(b: Builder, x: Place, out: Place, whole: Place) -> None:
    shape, steps = x.spec.shape, x.spec.strides
    missing = 5 - len(shape)
    shape, steps = (1,) * missing + shape, (0,) * missing + steps
    rows, n = x.spec.size // shape[-1], shape[-1]
    step = max(_PART // n, 1)
    cells = [x, out, step, rows, n, *shape[1:4], *steps[:4]]
    b.add(copied, -(-rows // step), cells, [whole], work=step * n)


def takes_concat(plan: Any) -> bool:
    """Along the first axis."""
    same = all(_copyable(s) and s.dtype is plan.out.dtype for s in plan.specs)
    return same and plan.attrs[0] == 0


def concat(b: Builder, plan: Any, *places: Place) -> None:
    *operands, out = places
    start = 0
    for x in operands:
        _copy(b, x, Place(out.block, out.offset + 4 * start, out.spec), out)
        start += x.spec.size
