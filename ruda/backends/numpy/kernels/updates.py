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
from ruda.backends.numpy.pool import POOL, tiles


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
    count = len(plan.out)
    if not all(s.contiguous for s in plan.specs[: count + 1] if s.shape):
        return None
    function, constants = KERNELS[plan.op.name].ready(), _CONSTANTS[plan.op.name]
    shape, parts, whole = plan.out[0].shape, tiles(plan.out[0].size), count - 1

    def write(outs: Sequence[Any], *values: Any) -> None:
        p, g, *state = values[:count]
        if not all(x.flags.c_contiguous for x in (*outs, g)):
            plan.op.numpy.in_place(outs, *values)
            return
        settings = np.array(constants(*values[count:]), np.float32)
        for target, value in zip(outs, (p, *state), strict=False):
            if target is not value:
                np.copyto(target, value)
        outs[whole][...] = values[count] + 1
        flat = [x.reshape(-1) for x in (outs[0], g, *outs[1:whole])]
        POOL.run(lambda i: function(*[x[parts[i]] for x in flat], settings), len(parts))

    def run(*handles: Any) -> Any:
        outs = [np.empty(shape, np.float32) for _ in range(whole)]
        outs.append(np.empty((), plan.out[whole].dtype.numpy))
        specs = zip(handles, plan.specs, strict=True)
        write(outs, *[h if s.weak else h.array for h, s in specs], *plan.attrs)
        return tuple(handle_of(x) for x in outs)

    run.in_place = write  # type: ignore[attr-defined]
    return run
