"""Optimizer steps in float32, over the operands themselves, each element read and written once.

A kernel with other arrays for its results would stay scalar: telling so many arrays apart takes
more checks than the compiler makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ruda.backends.numpy.kernels.compiler import Kernel, kernel
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL, TILE, tiles


@kernel("void(f4[::1], f4[::1], f4[::1], f4[::1], f4[::1])")
def adamw(p, g, m, v, constants):
    sign, decay, share1, keep2 = constants[0], constants[1], constants[2], constants[3]
    share2, shrink, size, floor = constants[4], constants[5], constants[6], constants[7]
    for i in range(p.size):
        x = p[i]
        grad = sign * g[i]
        if decay != 0:
            grad += decay * x
        mean = m[i] + (grad - m[i]) * share1
        square = v[i] * keep2 + grad * grad * share2
        m[i] = mean
        v[i] = square
        p[i] = x * shrink - mean / (np.sqrt(square) + floor) * size


@kernel("void(f4[::1], f4[::1], f4[::1], f4[::1])")
def momentum(p, g, b, constants):
    sign, decay, keep, share = constants[0], constants[1], constants[2], constants[3]
    ahead, rate = constants[4], constants[5]
    for i in range(p.size):
        x = p[i]
        grad = sign * g[i]
        if decay != 0:
            grad += decay * x
        buffer = b[i] * keep + grad * share
        b[i] = buffer
        descent = buffer
        if ahead != 0:
            descent = buffer * ahead + grad
        p[i] = x - descent * rate


KERNELS: dict[str, Kernel] = {"adamw_step": adamw, "momentum_step": momentum}
Values = Sequence[Any]


def _adamw_constants(step: Any, lr: Any, beta1: Any, beta2: Any, eps: Any, *rest: Any) -> Values:
    weight_decay, decoupled, maximize = rest
    count, rate, b1, b2 = int(step) + 1, float(lr), float(beta1), float(beta2)
    decay = 0.0 if weight_decay is None else float(weight_decay)
    root = math.sqrt(1.0 - b2**count)
    coupled, shrink = (0.0, 1.0 - rate * decay) if decoupled else (decay, 1.0)
    size, floor = rate * root / (1.0 - b1**count), float(eps) * root
    return -1.0 if maximize else 1.0, coupled, 1.0 - b1, b2, 1.0 - b2, shrink, size, floor


def _momentum_constants(step: Any, lr: Any, keep: Any, dampening: Any, *rest: Any) -> Values:
    weight_decay, nesterov, maximize = rest
    decay = 0.0 if weight_decay is None else float(weight_decay)
    keep, first = float(keep), int(step) == 0
    kept, share = (0.0, 1.0) if first else (keep, 1.0 - float(dampening))
    return -1.0 if maximize else 1.0, decay, kept, share, keep if nesterov else 0.0, float(lr)


_CONSTANTS = {"adamw_step": _adamw_constants, "momentum_step": _momentum_constants}


def bind(plan: Any) -> Callable[..., Any] | None:
    """Operands of one row-major shape. A first step of momentum reads a buffer of zeros."""
    many, count = bind_many([plan]), len(plan.out)
    if many is None:
        return None
    shape, whole = plan.out[0].shape, count - 1

    def run(*handles: Any) -> Any:
        outs = [handle_of(np.empty(shape, np.float32)) for _ in range(whole)]
        outs.append(handle_of(np.empty((), plan.out[whole].dtype.numpy)))
        many([handles], [outs])
        return tuple(outs)

    def write(outs: Sequence[Any], *values: Any) -> None:
        weak = [s.weak for s in plan.specs]
        pairs = zip(values, weak, strict=False)
        many([[v if w else handle_of(v) for v, w in pairs]], [[handle_of(x) for x in outs]])

    run.in_place = write  # type: ignore[attr-defined]
    return run


def bind_many(plans: Sequence[Any]) -> Callable[..., None] | None:
    """Calls of one row, each with operands of one row-major shape, in tiles of about one size."""
    if not all(s.contiguous for plan in plans for s in plan.specs[: len(plan.out)] if s.shape):
        return None
    op, attrs = plans[0].op, [plan.attrs for plan in plans]
    function, constants = KERNELS[op.name].ready(), _CONSTANTS[op.name]
    count, weak = len(plans[0].out), [s.weak for s in plans[0].specs]
    parts = _shares([plan.out[0].size for plan in plans])

    def run(handles: Sequence[Sequence[Any]], targets: Sequence[Sequence[Any]]) -> None:
        known: dict[Any, Any] = {}
        work = []
        for values, outs, flags in zip(handles, targets, attrs, strict=True):
            arrays = _overlaid([h.array for h in values[:count]], [h.array for h in outs])
            step = values[count].array
            key = (int(step), *values[count + 1 :], *flags)
            settings = known.get(key)
            if settings is None:
                scalars = [v if w else v.array for v, w in zip(values[count:], weak[count:])]
                settings = known[key] = np.array(constants(*scalars, *flags), np.float32)
            outs[count - 1].array[...] = key[0] + 1
            work.append((*arrays, settings))

        def share(number: int) -> None:
            for i, part in parts[number]:
                if part is None:
                    function(*work[i])
                else:
                    *arrays, settings = work[i]
                    function(*[x[part] for x in arrays], settings)

        POOL.run(share, len(parts))

    return run


def _overlaid(operands: list[Any], outs: list[Any]) -> list[Any]:
    """Parameter, gradient and state as flat arrays over the outputs, which hold the old values."""
    p, g, *state = operands
    for target, value in zip(outs, (p, *state), strict=False):
        if target is not value:
            np.copyto(target, value)
    first, *rest = outs[:-1]
    return [x.reshape(-1) for x in (first, g, *rest)]


def _shares(sizes: Sequence[int]) -> list[list[tuple[int, slice | None]]]:
    """Arrays, or slices of them, in shares of about a tile each: (number, slice or None)."""
    shares: list[list[tuple[int, slice | None]]] = []
    room = 0
    for number, size in enumerate(sizes):
        cuts = tiles(size)
        for part in cuts:
            if room <= 0:
                shares.append([])
                room = TILE
            shares[-1].append((number, part if len(cuts) > 1 else None))
            room -= part.stop - part.start
    return shares
