"""The rows fft, rfft and irfft: axes brought to the end, planned, scaled.

The axes to transform are taken as they lie where they are the last of a dense tensor in order, or
the first one alone; else the operand is copied with them at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.fft import plans
from ruda.backends.cuda.fft.plans import FORWARD, INVERSE, Layout, Transform, dense
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import map as maps
from ruda.core.dtypes import complex_of, real_of
from ruda.core.errors import StrategyError
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of, weak_spec

# Axes that one plan of cuFFT takes.
_AXES = 3
Step = Callable[[Any], Any]


def bind_fft(client: Any, plan: Any) -> Callable[[Any], Any]:
    """Complex to complex over any axes."""
    axes, inverse, norm = plan.attrs
    if plan.out.size == 0:
        return lambda _: allocate(client.pool, plan.out)
    out, way = plan.out, INVERSE if inverse else FORWARD
    factor = _factor([out.shape[a] for a in axes], norm, inverse)
    return _guarded(client, "fft", lambda: _complex(client, plan.specs[0], out, axes, way, factor))


def bind_rfft(client: Any, plan: Any) -> Callable[[Any], Any]:
    """Real to half: the last of the axes first, then the others, complex."""
    axes, norm = plan.attrs
    if plan.out.size == 0:
        return lambda _: allocate(client.pool, plan.out)
    x, out = plan.specs[0], plan.out
    factor = _factor([x.shape[a] for a in axes], norm, False)
    return _guarded(client, "rfft", lambda: _to_half(client, x, out, axes, factor))


def bind_irfft(client: Any, plan: Any) -> Callable[[Any], Any]:
    """Half to real: the other axes first, complex, then the last of the axes."""
    axes, length, norm = plan.attrs
    if plan.out.size == 0:
        return lambda _: allocate(client.pool, plan.out)
    x, out = plan.specs[0], plan.out
    factor = _factor([*(x.shape[a] for a in axes[:-1]), length], norm, True)
    return _guarded(client, "irfft", lambda: _to_whole(client, x, out, axes, length, factor))


def _guarded(client: Any, op: str, bind: Callable[[], Step]) -> Step:
    """What ``bind`` gives; where the library is missing a function that raises when it is run."""
    try:
        plans.library(client)
    except StrategyError as error:
        missing = error.renamed(op)

        def run(_: Any) -> Any:
            raise missing

        return run
    return bind()


def _factor(lengths: list[int], norm: str, inverse: bool) -> float:
    """What the plain sums are multiplied by."""
    n = math.prod(lengths)
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "forward") != inverse else 1.0


def _scale(client: Any, out: Spec, factor: float) -> Step:
    """Multiplies a dense tensor."""
    if factor == 1.0:
        return lambda handle: handle
    operands, wanted = (out, weak_spec(client, "float")), (out.dtype, out.dtype)
    multiply = maps.bind_into(client, out, "multiply", "x * y", ("x", "y"), operands, wanted)

    def run(handle: Any) -> Any:
        made = allocate(client.pool, out)
        multiply(made.address, handle, factor)
        return made

    return run


def _complex(client: Any, x: Spec, out: Spec, axes: Shape, way: int, factor: float) -> Step:
    """All axes in groups of what one plan takes."""
    axes = tuple(sorted(axes))
    groups = [axes[max(i - _AXES, 0) : i] for i in range(len(axes), 0, -_AXES)]
    steps: list[Step] = []
    given = x
    for group in groups:
        steps.append(_group(client, given, out, group, way))
        given = out
    if not groups:
        steps.append(client.copier(out, x))
    return _chained(*steps, _scale(client, out, factor))


def _group(client: Any, x: Spec, out: Spec, axes: Shape, way: int) -> Step:
    """A transform of up to three axes, from ``x`` to a dense ``out`` of the same shape."""
    shape, kinds = out.shape, (out.dtype.name,) * 2
    ready = x.contiguous and x.dtype is out.dtype
    lengths = tuple(shape[a] for a in axes)
    if axes == (0,) and out.ndim > 1:
        rest = out.size // shape[0]
        layout = Layout(lengths, rest, 1)
        done = _exec(client, Transform(lengths, layout, layout, kinds, rest), out, way)
        return done if ready else _chained(client.copier(out, x), done)
    batch = out.size // math.prod(lengths)
    layout = dense(lengths)
    order = _last(out.ndim, axes)
    moved = _permuted(out, order)
    done = _exec(client, Transform(lengths, layout, layout, kinds, batch), moved, way)
    if order == tuple(range(out.ndim)):
        return done if ready else _chained(client.copier(out, x), done)
    there = client.copier(moved, _view(x, order))
    back = client.copier(out, _view(moved, _inverse(order)))
    return _chained(there, done, back)


def _exec(client: Any, shape: Transform, out: Spec, way: int) -> Step:
    plan = plans.plan_of(client, shape)

    def run(handle: Any) -> Any:
        made = allocate(client.pool, out)
        plan.run(handle.address, made.address, way)
        return made

    return run


def _chained(*steps: Step) -> Step:
    def run(handle: Any) -> Any:
        for step in steps:
            handle = step(handle)
        return handle

    return run


def _to_half(client: Any, x: Spec, out: Spec, axes: Shape, factor: float) -> Step:
    order = _last(x.ndim, axes[-1:])
    length = x.shape[axes[-1]]
    flat = _permuted(spec_of(client, x.shape, x.dtype), order)
    half = _permuted(out, order)
    shape = Transform(
        (length,), dense((length,)), dense(half.shape[-1:]), (x.dtype.name, out.dtype.name),
        x.size // length,
    )  # fmt: skip
    steps = [_exec(client, shape, half, FORWARD)]
    copy = client.copier(flat, _view(x, order))
    if _view(x, order) is flat:
        steps.insert(0, _aligned(copy, half.dtype.itemsize))
    else:
        steps.insert(0, copy)
    if half is not out or order != tuple(range(out.ndim)):
        steps.append(client.copier(out, _view(half, _inverse(order))))
    if axes[1:]:
        steps.append(_complex(client, out, out, axes[:-1], FORWARD, factor))
    else:
        steps.append(_scale(client, out, factor))
    return _chained(*steps)


def _aligned(copy: Step, size: int) -> Step:
    """The library reads real numbers in pairs: a view may begin between two of them."""
    return lambda handle: copy(handle) if handle.address % size else handle


def _to_whole(client: Any, x: Spec, out: Spec, axes: Shape, length: int, factor: float) -> Step:
    """The library overwrites what it reads here, so that is always a copy."""
    order = _last(x.ndim, axes[-1:])
    whole = spec_of(client, x.shape, complex_of(x.dtype))
    half, real = _permuted(whole, order), _permuted(out, order)
    steps = [_complex(client, x, whole, axes[:-1], INVERSE, 1.0)] if axes[1:] else []
    given = whole if steps else x
    steps.append(client.copier(half, _view(given, order)))
    steps.append(_without_phase(client, half, length))
    shape = Transform(
        (length,), dense(half.shape[-1:]), dense((length,)), (half.dtype.name, out.dtype.name),
        out.size // length,
    )  # fmt: skip
    steps.append(_exec(client, shape, real, INVERSE))
    if real is not out or order != tuple(range(out.ndim)):
        steps.append(client.copier(out, _view(real, _inverse(order))))
    steps.append(_scale(client, out, factor))
    return _chained(*steps)


def _without_phase(client: Any, half: Spec, length: int) -> Step:
    """Zero the imaginary parts at frequency 0 and n/2: they must not matter to the library."""
    size = half.shape[-1]
    real = real_of(half.dtype)
    column = spec_of(client, (half.size // size,), real, (2 * size,))
    clear = client.writer(column, weak_spec(client, "float"))
    places = [1] if length % 2 or length == 1 else [1, 2 * (length // 2) + 1]

    def run(handle: Any) -> Any:
        for place in places:
            clear(handle.address + place * real.itemsize, 0.0)
        return handle

    return run


def _last(rank: int, axes: Shape) -> Shape:
    """All axes in order, with ``axes`` at the end."""
    return (*(a for a in range(rank) if a not in axes), *axes)


def _inverse(order: Shape) -> Shape:
    return tuple(order.index(a) for a in range(len(order)))


def _view(spec: Spec, order: Shape) -> Spec:
    """``spec`` with its axes in another order."""
    shape, strides = (tuple(v[a] for a in order) for v in (spec.shape, spec.strides))
    return spec_of(spec.client, shape, spec.dtype, strides)


def _permuted(spec: Spec, order: Shape) -> Spec:
    """Dense memory of the same elements with the axes in another order."""
    return spec_of(spec.client, tuple(spec.shape[a] for a in order), spec.dtype)


KERNELS = {"fft": bind_fft, "rfft": bind_rfft, "irfft": bind_irfft}
