"""Random chains of operators, each as a function on tensors and one on ndarrays.

A chain is drawn while NumPy runs it, so every step fits the shapes that are there. It can then be
run again at other points, which finite differences need, and by ruda: eagerly, or compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ruda
from tests.ops.keys import random_key

Step = tuple[Callable[[Any], Any], Callable[[Any], Any]]
Rng = np.random.Generator
LIMIT = 400


def drawn(rng: Rng, x: Any, length: int) -> list[Step]:
    """A chain of at most ``length`` steps that starts from the array ``x``."""
    steps: list[Step] = []
    for _ in range(length):
        step = STEPS[int(rng.integers(len(STEPS)))](rng, x)
        if step is None:
            continue
        after = np.asarray(step[1](x.copy()))
        if not 0 < after.size <= LIMIT or np.abs(after).max() > 50:
            continue
        steps.append(step)
        x = after
    return steps


def by_numpy(steps: list[Step], x: Any) -> Any:
    """The chain on an ndarray, which stays as it is."""
    for _, step in steps:
        x = np.asarray(step(x.copy()))
    return x


def by_ruda(steps: list[Step], x: Any) -> Any:
    """The chain on a tensor; in-place steps change a copy."""
    for step, _ in steps:
        x = step(x)
    return x


def _axes(rng: Rng, x: Any) -> tuple[int, ...]:
    count = int(rng.integers(0, x.ndim + 1))
    return tuple(int(a) - x.ndim * int(rng.integers(2)) for a in rng.permutation(x.ndim)[:count])


def _axis(rng: Rng, x: Any) -> int | None:
    return int(rng.integers(-x.ndim, x.ndim)) if x.ndim else None


def _elementwise(rng: Rng, x: Any) -> Step:
    pairs: list[Step] = [
        (ruda.tanh, np.tanh),
        (ruda.sin, np.sin),
        (ruda.abs, np.abs),
        (lambda t: -t, np.negative),
        (ruda.square, np.square),
        (lambda t: ruda.sqrt(t * t + 1), lambda a: np.sqrt(a * a + 1)),
        (lambda t: ruda.exp(ruda.tanh(t)), lambda a: np.exp(np.tanh(a))),
        (lambda t: ruda.log1p(t * t), lambda a: np.log1p(a * a)),
        (lambda t: 3 - t, lambda a: 3 - a),
        (lambda t: 2.0 / (1 + t**2), lambda a: 2.0 / (1 + a**2)),
        (lambda t: t**3 / 9, lambda a: a**3 / 9),
        (lambda t: ruda.clip(t, -0.7, 0.9), lambda a: np.clip(a, -0.7, 0.9)),
        (lambda t: ruda.atan2(t, 2 + t * t), lambda a: np.arctan2(a, 2 + a * a)),
        (lambda t: ruda.where(t > 0, t, t * 0.1), lambda a: np.where(a > 0, a, a * 0.1)),
        (lambda t: ruda.maximum(t, 0.3), lambda a: np.maximum(a, 0.3)),
    ]
    return pairs[int(rng.integers(len(pairs)))]


def _constant(rng: Rng, x: Any) -> Step:
    """With an array of ruda's or NumPy's that broadcasts, on either side."""
    shape = tuple(n if rng.random() < 0.7 else 1 for n in x.shape)[int(rng.integers(x.ndim + 1)) :]
    shape = (int(rng.integers(1, 3)), *x.shape) if rng.random() < 0.1 else shape
    other: Any = rng.uniform(-1.5, 1.5, shape)
    mine = ruda.asarray(other) if rng.random() < 0.5 else other
    calls: list[Step] = [
        (lambda t: t + mine, lambda a: a + other),
        (lambda t: mine - t, lambda a: other - a),
        (lambda t: t * mine, lambda a: a * other),
        (lambda t: mine * t, lambda a: other * a),
        (lambda t: t / (mine * mine + 1), lambda a: a / (other * other + 1)),
        (lambda t: ruda.minimum(t, mine), lambda a: np.minimum(a, other)),
        (lambda t: ruda.hypot(mine, t), lambda a: np.hypot(other, a)),
    ]
    return calls[int(rng.integers(len(calls)))]


def _itself(rng: Rng, x: Any) -> Step | None:
    """With another view of itself."""
    if not x.ndim:
        return None
    axis = int(rng.integers(x.ndim))
    calls: list[Step] = [
        (lambda t: t * ruda.flip(t, axis=axis), lambda a: a * np.flip(a, axis)),
        (lambda t: t + ruda.roll(t, 1, axis=axis), lambda a: a + np.roll(a, 1, axis)),
        (
            lambda t: t - ruda.mean(t, axis=axis, keepdims=True),
            lambda a: a - a.mean(axis, keepdims=True),
        ),
        (
            lambda t: ruda.concat([t, t * 2], axis=axis),
            lambda a: np.concatenate([a, a * 2], axis=axis),
        ),
        (
            lambda t: ruda.stack([t, ruda.sin(t)], axis=axis),
            lambda a: np.stack([a, np.sin(a)], axis=axis),
        ),
        (
            lambda t: ruda.matmul(t, ruda.moveaxis(t, 0, -1)) if t.ndim == 1 else t @ t.mT,
            lambda a: a @ a if a.ndim == 1 else a @ np.swapaxes(a, -1, -2),
        ),
    ]
    return calls[int(rng.integers(len(calls)))]


def _reduction(rng: Rng, x: Any) -> Step | None:
    axes, keep = _axes(rng, x), bool(rng.random() < 0.5)
    if not axes:
        return None
    calls: list[Step] = [
        (lambda t: t.sum(axis=axes, keepdims=keep), lambda a: a.sum(axes, keepdims=keep)),
        (lambda t: t.mean(axis=axes, keepdims=keep), lambda a: a.mean(axes, keepdims=keep)),
        (lambda t: t.max(axis=axes, keepdims=keep), lambda a: a.max(axes, keepdims=keep)),
        (lambda t: t.min(axis=axes, keepdims=keep), lambda a: a.min(axes, keepdims=keep)),
        (lambda t: t.prod(axis=axes, keepdims=keep), lambda a: a.prod(axes, keepdims=keep)),
        (lambda t: t.var(axis=axes, keepdims=keep), lambda a: a.var(axes, keepdims=keep)),
        (
            lambda t: t.logsumexp(axis=axes, keepdims=keep),
            lambda a: np.log(np.exp(a).sum(axes, keepdims=keep)),
        ),
    ]
    return calls[int(rng.integers(len(calls)))]


def _scan(rng: Rng, x: Any) -> Step | None:
    axis = _axis(rng, x)
    if axis is None:
        return None
    calls: list[Step] = [
        (lambda t: t.cumsum(axis=axis), lambda a: a.cumsum(axis)),
        (lambda t: t.cumprod(axis=axis), lambda a: a.cumprod(axis)),
        (lambda t: ruda.sort(t, axis=axis), lambda a: np.sort(a, axis)),
        (lambda t: ruda.diff(t, axis=axis), lambda a: np.diff(a, axis=axis)),
        (lambda t: ruda.repeat(t, 2, axis=axis), lambda a: np.repeat(a, 2, axis)),
        (
            lambda t: ruda.take(t, ruda.asarray([0, -1, 0]), axis=axis),
            lambda a: np.take(a, [0, -1, 0], axis),
        ),
    ]
    return calls[int(rng.integers(len(calls)))]


def _movement(rng: Rng, x: Any) -> Step:
    order = tuple(int(a) for a in rng.permutation(x.ndim))
    shape = _reshaped(rng, x.size)
    flipped = tuple(sorted({a % x.ndim for a in _axes(rng, x)})) if x.ndim else ()
    wide = (2, *x.shape)
    width = [(int(rng.integers(0, 2)), int(rng.integers(0, 2))) for _ in x.shape]
    calls: list[Step] = [
        (lambda t: t.permute_dims(order), lambda a: a.transpose(order)),
        (lambda t: t.reshape(shape), lambda a: a.reshape(shape)),
        (lambda t: ruda.flip(t, axis=flipped), lambda a: np.flip(a, flipped)),
        (lambda t: t.broadcast_to(wide), lambda a: np.broadcast_to(a, wide)),
        (lambda t: t[None], lambda a: a[None]),
        (lambda t: ruda.squeeze(t), np.squeeze),
        (
            lambda t: ruda.pad(t, tuple(width)) if t.ndim else t,
            lambda a: np.pad(a, width) if a.ndim else a,
        ),
        (lambda t: t.contiguous(), lambda a: a),
    ]
    return calls[int(rng.integers(len(calls)))]


def _reshaped(rng: Rng, size: int) -> tuple[int, ...]:
    out: list[int] = []
    for _ in range(3):
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        out.append(divisors[int(rng.integers(len(divisors)))])
        size //= out[-1]
    return (*out, size)


def _selection(rng: Rng, x: Any) -> Step | None:
    key = random_key(rng, x.shape)
    try:
        x[key]
    except IndexError:
        return None
    return (lambda t: t[key]), (lambda a: a[key])


def _writing(rng: Rng, x: Any) -> Step | None:
    """In place, in a copy, through a key."""
    key, value = random_key(rng, x.shape), float(rng.uniform(-1, 1))
    try:
        kept = x[key]
        scattered = any(isinstance(k, np.ndarray) for k in key)
    except IndexError:
        return None
    if scattered and np.unique(np.arange(x.size).reshape(x.shape)[key]).size != kept.size:
        return None
    changes: list[Callable[[Any], Any]] = [
        lambda v: v * value,
        lambda v: v * v - value,
        lambda v: 0 * v + value,
    ]
    change = changes[int(rng.integers(len(changes)))]

    def mine(t: Any) -> Any:
        out = ruda.copy(t)
        out[key] = change(out[key] if scattered else ruda.copy(out[key]))
        return out

    def theirs(a: Any) -> Any:
        a = np.array(a)
        a[key] = change(a[key].copy())
        return a

    return mine, theirs


def _shifted(rng: Rng, x: Any) -> Step | None:
    """In place between overlapping views of one copy."""
    if not x.ndim or x.shape[0] < 2:
        return None

    def mine(t: Any) -> Any:
        out = t * 1
        out[1:] += 0.5 * out[:-1]
        out[...] = out[::-1]
        return out

    def theirs(a: Any) -> Any:
        a[1:] += 0.5 * a[:-1]
        a[...] = a[::-1].copy()
        return a

    return mine, theirs


STEPS: list[Callable[[Rng, Any], Step | None]] = [
    _elementwise,
    _constant,
    _itself,
    _reduction,
    _scan,
    _movement,
    _selection,
    _writing,
    _shifted,
]
