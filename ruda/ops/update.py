"""Optimizer steps as rows: from a parameter, its gradient and its state to the next of each.

The body of a row is its meaning and its gradient; the reference walks blocks that stay in the
cache, and can write over its operands. Learning rate and step count are 0-d tensors, so they
change without a new plan; the other settings are scalars by value. What is computed from scalars
alone is float64 whatever the dtype of the parameter. A weight decay of None is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, compute_of, float64
from ruda.core.errors import DTypeError, ShapeError
from ruda.core.shapes import Shape
from ruda.ops.arith import pow, sign, sqrt
from ruda.ops.cast import astype
from ruda.ops.compare import equal
from ruda.ops.reference import updates as reference
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.table import fused
from ruda.tensor.tensor import RudaTensor


def _alike(op: Any) -> int:
    """How many operands have the parameter's shape: those before the step count or the rate."""
    return op.args.index("step" if "step" in op.args else "lr")


def step_shape(op: Any, specs: Specs, *_: Any) -> Any:
    """What has the parameter's shape comes first; step count, rate and settings are scalars."""
    count = _alike(op)
    for i, (name, spec) in enumerate(zip(op.args, specs, strict=True)):
        expected: Shape = specs[0].shape if i < count else ()
        if spec.shape != expected:
            raise ShapeError(op.name, f"{name} does not fit", spec.shape, expected)
    return (specs[0].shape,) * (count - 1) + ((),) * (len(op.outs) - count + 1)


def step_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    """The gradient is taken in the parameter's dtype, rates in float64, the step as it is."""
    own, count = specs[0].dtype, _alike(op)
    for name, spec in zip(op.args[:count], specs, strict=False):
        if not spec.dtype.is_floating or (name != "g" and spec.dtype is not own):
            expected = "a real floating dtype" if name in "pg" else own
            raise DTypeError(op.name, f"{name} has the wrong dtype", spec.dtype, expected)
    counted = len(op.outs) == count
    if counted and (specs[count].weak or not specs[count].dtype.is_integer):
        raise DTypeError(op.name, "the step does not count", specs[count], "a tensor of integers")
    rest = specs[count + counted :]
    casts = (own,) * count + (None,) * counted + tuple(None if s.weak else float64 for s in rest)
    return casts, (own,) * (count - 1) + (specs[count].dtype,) * counted


def fresh(write: Callable[..., None], count: int, counted: bool = True) -> Callable[..., Any]:
    """The reference that makes new arrays; as ``in_place`` it writes into those it is given."""

    def numpy(*values: Any) -> Any:
        p = values[0]
        outs = [np.empty(p.shape, p.dtype) for _ in range(count - 1)]
        outs += [np.empty((), values[count].dtype) for _ in range(counted)]
        write(outs, *values)
        return outs

    numpy.in_place = write  # type: ignore[attr-defined]
    return numpy


def fitted(value: Any, dtype: Any) -> Any:
    """A tensor in ``dtype``; a Python scalar as it is, which gives way to any dtype."""
    return astype(value, dtype, copy=False) if value.__class__ is RudaTensor else value


def descent(p: RudaTensor, g: RudaTensor, weight_decay: Any, maximize: bool) -> RudaTensor:
    """The gradient to go down by, with what weight decay adds to it."""
    g = -g if maximize else g
    return g if weight_decay is None else g + p * fitted(weight_decay, p.dtype)


@fused(
    "sgd_step",
    "p g lr weight_decay",
    "maximize",
    "new_p",
    shape=step_shape,
    takes={"p": FLOAT, "g": FLOAT},
    dtype=step_dtype,
    numpy=fresh(reference.sgd, 2, counted=False),
    optional=("weight_decay",),
)
def sgd_step(p: Any, g: Any, lr: Any, weight_decay: Any, maximize: bool) -> Any:
    """``p - lr * (g + weight_decay * p)``, with -g for g to ``maximize``."""
    x = astype(p, compute_of(p.dtype), copy=False)
    step = descent(x, astype(g, x.dtype, copy=False), weight_decay, maximize)
    return (astype(x - step * fitted(lr, x.dtype), p.dtype, copy=False),)


@fused(
    "momentum_step",
    "p g b step lr momentum dampening weight_decay",
    "nesterov maximize",
    "new_p new_b new_step",
    shape=step_shape,
    takes={"p": FLOAT, "g": FLOAT},
    dtype=step_dtype,
    numpy=fresh(reference.momentum, 3),
    optional=("weight_decay",),
)
def momentum_step(
    p: Any,
    g: Any,
    b: Any,
    step: Any,
    lr: Any,
    momentum: Any,
    dampening: Any,
    weight_decay: Any,
    nesterov: bool,
    maximize: bool,
) -> Any:
    """One step of gradient descent with momentum; ``b`` is the buffer.

    With g' = g + weight_decay * p: b = g' in the first step and
    b = momentum * b + (1 - dampening) * g' in all others; p -= lr * b, or with ``nesterov``
    p -= lr * (g' + momentum * b). Sutskever et al., "On the importance of initialization and
    momentum in deep learning" (2013), with the learning rate outside of the buffer.
    """
    x, buffer = (astype(t, compute_of(p.dtype), copy=False) for t in (p, b))
    keep, share = fitted(momentum, x.dtype), fitted(1.0 - dampening, x.dtype)
    g = descent(x, astype(g, x.dtype, copy=False), weight_decay, maximize)
    buffer = where(equal(step, 0), g, buffer * keep + g * share)
    ahead = g + buffer * keep if nesterov else buffer
    x = x - ahead * fitted(lr, x.dtype)
    return astype(x, p.dtype, copy=False), astype(buffer, b.dtype, copy=False), step + 1


@fused(
    "adamw_step",
    "p g m v step lr beta1 beta2 eps weight_decay",
    "decoupled maximize",
    "new_p new_m new_v new_step",
    shape=step_shape,
    takes={"p": FLOAT, "g": FLOAT},
    dtype=step_dtype,
    numpy=fresh(reference.adamw, 4),
    optional=("weight_decay",),
    domain=(0.1, 2.0),
)
def adamw_step(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    step: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    eps: Any,
    weight_decay: Any,
    decoupled: bool,
    maximize: bool,
) -> Any:
    """One step of Adam; ``m`` and ``v`` are the moments, ``step`` counts the steps before.

    With t = step + 1: m = beta1 * m + (1 - beta1) * g and v = beta2 * v + (1 - beta2) * g²;
    p -= lr * m' / (sqrt(v') + eps) with m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t).
    Weight decay is p *= 1 - lr * weight_decay before that where it is ``decoupled``, else
    g += weight_decay * p. Kingma and Ba, "Adam: a method for stochastic optimization" (2015);
    Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).
    """
    x, mean, square = (astype(t, compute_of(p.dtype), copy=False) for t in (p, m, v))
    dtype, t = x.dtype, astype(step + 1, float64)
    root = sqrt(1.0 - pow(beta2, t))
    size, floor = fitted(root / (1.0 - pow(beta1, t)) * lr, dtype), fitted(root * eps, dtype)
    g = descent(x, astype(g, dtype, copy=False), None if decoupled else weight_decay, maximize)
    mean = mean + (g - mean) * fitted(1.0 - beta1, dtype)
    square = square * fitted(beta2, dtype) + g * g * fitted(1.0 - beta2, dtype)
    if decoupled and weight_decay is not None:
        x = x * fitted(1.0 - lr * weight_decay, dtype)
    x = x - mean / (sqrt(square) + floor) * size
    new = (astype(a, b.dtype, copy=False) for a, b in ((x, p), (mean, m), (square, v)))
    return (*new, step + 1)


@fused(
    "adan_step",
    "p g m v n before step lr beta1 beta2 beta3 eps weight_decay",
    "proximal maximize",
    "new_p new_m new_v new_n new_before new_step",
    shape=step_shape,
    takes={"p": FLOAT, "g": FLOAT},
    dtype=step_dtype,
    numpy=fresh(reference.adan, 6),
    optional=("weight_decay",),
    domain=(0.1, 2.0),
)
def adan_step(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    n: Any,
    before: Any,
    step: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    beta3: Any,
    eps: Any,
    weight_decay: Any,
    proximal: bool,
    maximize: bool,
) -> Any:
    """One step of Adan; ``before`` is the gradient of the step before, unused in the first.

    With t = step + 1 and d = g - before, 0 in the first step: m, v and the square n average g, d
    and (g + beta2 * d)². p -= lr * (m' + beta2 * v') / (sqrt(n') + eps), where x' = x / (1 - b^t)
    with the beta of x. A weight decay divides p by 1 + lr * weight_decay after that
    (``proximal``), or multiplies by 1 - lr * weight_decay before. Xie et al., "Adan: adaptive
    Nesterov momentum algorithm for faster optimizing deep models" (2022), with 1 - beta for beta.
    """
    operands = (p, g, m, v, n, before)
    x, g, mean, change, square, old = (astype(t, compute_of(p.dtype), copy=False) for t in operands)
    dtype, t = x.dtype, astype(step + 1, float64)
    g = -g if maximize else g
    turn = where(equal(step, 0), 0.0, g - old)
    mean = mean + (g - mean) * fitted(1.0 - beta1, dtype)
    change = change + (turn - change) * fitted(1.0 - beta2, dtype)
    ahead = g + turn * fitted(beta2, dtype)
    square = square * fitted(beta3, dtype) + ahead * ahead * fitted(1.0 - beta3, dtype)
    size, more = (lr * b / (1.0 - pow(base, t)) for b, base in ((1.0, beta1), (beta2, beta2)))
    root = sqrt(square) / fitted(sqrt(1.0 - pow(beta3, t)), dtype) + fitted(eps, dtype)
    move = (mean * fitted(size, dtype) + change * fitted(more, dtype)) / root
    decay = 0.0 if weight_decay is None else lr * weight_decay
    x = (
        (x - move) / fitted(1.0 + decay, dtype)
        if proximal
        else x * fitted(1.0 - decay, dtype) - move
    )
    new = zip((x, mean, change, square, g), (p, m, v, n, before), strict=True)
    return (*(astype(a, b.dtype, copy=False) for a, b in new), step + 1)


@fused(
    "lion_step",
    "p g m lr beta1 beta2 weight_decay",
    "maximize",
    "new_p new_m",
    shape=step_shape,
    takes={"p": FLOAT, "g": FLOAT},
    dtype=step_dtype,
    numpy=fresh(reference.lion, 3, counted=False),
    optional=("weight_decay",),
)
def lion_step(
    p: Any, g: Any, m: Any, lr: Any, beta1: Any, beta2: Any, weight_decay: Any, maximize: bool
) -> Any:
    """One step of Lion: p -= lr * sign(beta1 * m + (1 - beta1) * g), m averages g with beta2.

    Weight decay is p *= 1 - lr * weight_decay before. Chen et al., "Symbolic discovery of
    optimization algorithms" (2023).
    """
    x, mean = (astype(t, compute_of(p.dtype), copy=False) for t in (p, m))
    g = astype(-g if maximize else g, x.dtype, copy=False)
    step = sign(mean + (g - mean) * fitted(1.0 - beta1, x.dtype)) * fitted(lr, x.dtype)
    mean = mean + (g - mean) * fitted(1.0 - beta2, x.dtype)
    if weight_decay is not None:
        x = x * fitted(1.0 - lr * weight_decay, x.dtype)
    return astype(x - step, p.dtype, copy=False), astype(mean, m.dtype, copy=False)
