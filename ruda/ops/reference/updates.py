"""Optimizer steps in blocks that stay in the cache, written into arrays that are given.

The results may be the operands' own arrays: each block is read before it is written. Scalars are
Python floats, so bias corrections are float64 whatever the dtype of the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ruda.ops.reference.windows import Array

# With 64 k float32 a block the passes below cost 12 ms per 10 M parameters; with 8 k, 19 ms.
_BLOCK_BYTES = 1 << 18
# A formula allocates: what is below 128 KiB comes from the heap, without a page fault for each.
_FORMULA_BYTES = 1 << 16


def _blocks(arrays: Sequence[Array], length: int = _BLOCK_BYTES) -> Iterator[list[Array]]:
    flat = [array.reshape(-1) for array in arrays]
    size = max(length // flat[0].itemsize, 1)
    for start in range(0, flat[0].size, size):
        yield [array[start : start + size] for array in flat]


def _scratch(like: Array) -> Array:
    return np.empty(min(like.size, max(_BLOCK_BYTES // like.itemsize, 1)), like.dtype)


def _decay(weight_decay: Any) -> float | None:
    return None if weight_decay is None else float(weight_decay)


def _descent(g: Array, p: Array, decay: float | None, maximize: bool, scratch: Array) -> Array:
    """The gradient to follow downhill: ``±g + decay * p``; in ``scratch`` unless it is ``g``."""
    if decay is not None:
        np.multiply(p, decay, out=scratch)
        return (np.subtract if maximize else np.add)(scratch, g, out=scratch)
    return np.negative(g, out=scratch) if maximize else g


def sgd(
    outs: Sequence[Array], p: Array, g: Array, lr: Any, weight_decay: Any, maximize: bool
) -> None:
    """Write ``p - lr * (±g + weight_decay * p)`` into ``outs[0]``."""
    rate, decay = float(lr), _decay(weight_decay)
    space = _scratch(p)
    for new, x, dx in _blocks((outs[0], p, g)):
        step = space[: x.size]
        np.multiply(_descent(dx, x, decay, maximize, step), rate, out=step)
        np.subtract(x, step, out=new)


def momentum(
    outs: Sequence[Array],
    p: Array,
    g: Array,
    b: Array,
    step: Any,
    lr: Any,
    momentum: Any,
    dampening: Any,
    weight_decay: Any,
    nesterov: bool,
    maximize: bool,
) -> None:
    """Write the new parameter, momentum buffer and step of ``momentum_step`` into ``outs``."""
    rate, keep, decay = float(lr), float(momentum), _decay(weight_decay)
    first, share = int(step) == 0, 1.0 - float(dampening)
    outs[2][...] = step + 1
    space, more = _scratch(p), _scratch(p)
    for new_p, new_b, x, dx, buffer in _blocks((*outs[:2], p, g, b)):
        t, grad = space[: x.size], _descent(dx, x, decay, maximize, more[: x.size])
        if first:
            np.copyto(new_b, grad)
        else:
            np.multiply(buffer, keep, out=new_b)
            new_b += grad if share == 1.0 else np.multiply(grad, share, out=t)
        if nesterov:
            np.multiply(new_b, keep, out=t)
            t += grad
            t *= rate
        else:
            np.multiply(new_b, rate, out=t)
        np.subtract(x, t, out=new_p)


def adamw(
    outs: Sequence[Array],
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    step: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    eps: Any,
    weight_decay: Any,
    decoupled: bool,
    maximize: bool,
) -> None:
    """Write the new parameter, moments and step of ``adamw_step`` into ``outs``."""
    count, rate, b1, b2 = int(step) + 1, float(lr), float(beta1), float(beta2)
    decay = _decay(weight_decay)
    root = math.sqrt(1.0 - b2**count)
    size, floor = rate * root / (1.0 - b1**count), float(eps) * root
    coupled = None if decoupled else decay
    shrink = 1.0 - rate * decay if decoupled and decay is not None else 1.0
    outs[3][...] = count
    space, more = _scratch(p), _scratch(p)
    for new_p, new_m, new_v, x, dx, mean, square in _blocks((*outs[:3], p, g, m, v)):
        t, grad = space[: x.size], _descent(dx, x, coupled, maximize, more[: x.size])
        np.subtract(grad, mean, out=t)
        t *= 1.0 - b1
        np.add(mean, t, out=new_m)
        np.multiply(grad, grad, out=t)
        t *= 1.0 - b2
        np.multiply(square, b2, out=new_v)
        new_v += t
        np.sqrt(new_v, out=t)
        t += floor
        np.divide(new_m, t, out=t)
        t *= size
        x = x if shrink == 1.0 else np.multiply(x, shrink, out=new_p)
        np.subtract(x, t, out=new_p)


def adan(
    outs: Sequence[Array],
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    n: Array,
    before: Array,
    step: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    beta3: Any,
    eps: Any,
    weight_decay: Any,
    proximal: bool,
    maximize: bool,
) -> None:
    """Write the new parameter, averages, gradient and step of ``adan_step`` into ``outs``."""
    count, rate, eps = int(step) + 1, float(lr), float(eps)
    b1, b2, b3 = float(beta1), float(beta2), float(beta3)
    size, more = rate / (1.0 - b1**count), rate * b2 / (1.0 - b2**count)
    root, decay = math.sqrt(1.0 - b3**count), rate * (_decay(weight_decay) or 0.0)
    outs[5][...] = count
    spaces = [_scratch(p) for _ in range(3)]
    arrays = (*outs[:5], p, g, m, v, n, before)
    for new_p, new_m, new_v, new_n, new_before, x, dx, mean, change, square, old in _blocks(arrays):
        t, turn, extra = (space[: x.size] for space in spaces)
        grad = _descent(dx, x, None, maximize, extra)
        if count == 1:
            turn.fill(0.0)
        else:
            np.subtract(grad, old, out=turn)
        np.copyto(new_before, grad)
        _average(mean, grad, b1, t, new_m)
        _average(change, turn, b2, t, new_v)
        turn *= b2
        turn += grad
        turn *= turn
        turn *= 1.0 - b3
        np.multiply(square, b3, out=new_n)
        new_n += turn
        np.sqrt(new_n, out=t)
        t /= root
        t += eps
        np.multiply(new_m, size, out=turn)
        turn += np.multiply(new_v, more, out=extra)
        turn /= t
        if proximal:
            np.subtract(x, turn, out=new_p)
            new_p /= 1.0 + decay
        else:
            np.multiply(x, 1.0 - decay, out=new_p)
            new_p -= turn


def _average(mean: Array, value: Array, beta: float, scratch: Array, out: Array) -> None:
    """Write ``mean + (1 - beta) * (value - mean)`` into ``out``."""
    np.subtract(value, mean, out=scratch)
    np.multiply(scratch, 1.0 - beta, out=scratch)
    np.add(mean, scratch, out=out)


def lion(
    outs: Sequence[Array],
    p: Array,
    g: Array,
    m: Array,
    lr: Any,
    beta1: Any,
    beta2: Any,
    weight_decay: Any,
    maximize: bool,
) -> None:
    """Write the new parameter and average of ``lion_step`` into ``outs``."""
    rate, b1, b2, decay = float(lr), float(beta1), float(beta2), _decay(weight_decay)
    shrink = 1.0 if decay is None else 1.0 - rate * decay
    spaces = [_scratch(p) for _ in range(3)]
    for new_p, new_m, x, dx, mean in _blocks((*outs, p, g, m)):
        t, extra, move = (space[: x.size] for space in spaces)
        grad = _descent(dx, x, None, maximize, extra)
        _average(mean, grad, b1, t, t)
        # In place np.sign takes ten times as long.
        np.sign(t, out=move)
        move *= rate
        _average(mean, grad, b2, t, new_m)
        x = x if shrink == 1.0 else np.multiply(x, shrink, out=new_p)
        np.subtract(x, move, out=new_p)


def blockwise(formula: Callable[..., Any], count: int, outs: Sequence[Array], *values: Any) -> None:
    """Write what ``formula`` makes of blocks of the first ``count`` values, and of scalars."""
    step, lr, *settings, weight_decay, decoupled, maximize = values[count:]
    rate, decay = float(lr), _decay(weight_decay)
    move = formula(float, float(int(step) + 1), rate, *map(float, settings))
    coupled = None if decoupled else decay
    shrink = 1.0 - rate * decay if decoupled and decay is not None else 1.0
    outs[-1][...] = step + 1
    space = _scratch(values[0])
    for arrays in _blocks((*outs[:-1], *values[:count]), _FORMULA_BYTES):
        new, (x, dx, *state) = arrays[: count - 1], arrays[count - 1 :]
        grad = _descent(dx, x, coupled, maximize, space[: x.size])
        x = x if shrink == 1.0 else x * shrink
        for target, value in zip(new, move(np, x, grad, *state), strict=True):
            np.copyto(target, value)
