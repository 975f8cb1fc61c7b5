"""Optimizer steps that are one formula for tensors and for blocks of NumPy arrays.

A formula takes ``fit``, which brings a scalar into the dtype of the parameter, the step count from
1, and the scalars; it returns a function of an array namespace, parameter, gradient and state that
gives parameter and state after the step. On tensors it is the body of its row; the reference runs
it block by block, so that what it allocates stays in the cache.

Weight decay is p *= 1 - lr * weight_decay where it is ``decoupled``, else g += weight_decay * p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from ruda.core.dtypes import FLOAT, compute_of, float64
from ruda.ops.arith import maximum, sqrt
from ruda.ops.cast import astype
from ruda.ops.reference import updates as reference
from ruda.ops.table import TABLE, fused
from ruda.ops.update import descent, fitted, fresh, step_dtype, step_shape
from ruda.tensor.batches import Overwrite
from ruda.tensor.tensor import RudaTensor

_OPERATORS = SimpleNamespace(sqrt=sqrt, maximum=maximum)
Move = Callable[..., tuple[Any, ...]]


def _row(name: str, state: str, settings: str) -> Callable[[Callable[..., Move]], Any]:
    """A row ``name`` of a formula with the given names of state and of scalars beside the rate."""
    count = 2 + len(state.split())

    def make(formula: Callable[..., Move]) -> Any:
        def body(*values: Any) -> Any:
            return _stepped(formula, count, *values)

        def write(outs: Sequence[Any], *values: Any) -> None:
            reference.blockwise(formula, count, outs, *values)

        body.__doc__ = formula.__doc__
        return fused(
            name,
            f"p g {state} step lr {settings} weight_decay",
            "decoupled maximize",
            " ".join(f"new_{each}" for each in ("p", *state.split(), "step")),
            shape=step_shape,
            takes={"p": FLOAT, "g": FLOAT},
            dtype=step_dtype,
            numpy=fresh(write, count),
            optional=("weight_decay",),
            domain=(0.1, 2.0),
        )(body)

    return make


def _stepped(formula: Callable[..., Move], count: int, *values: Any) -> tuple[Any, ...]:
    """The formula on tensors; ``count`` of the values have the shape of the parameter."""
    step, lr, *settings, decay, decoupled, maximize = values[count:]
    p, g, *state = (astype(v, compute_of(values[0].dtype), copy=False) for v in values[:count])
    g = descent(p, g, None if decoupled else decay, maximize)
    move = formula(lambda v: fitted(v, g.dtype), astype(step + 1, float64), lr, *settings)
    if decoupled and decay is not None:
        p = p * fitted(1.0 - lr * decay, p.dtype)
    held = (values[0], *values[2:count])
    new = zip(move(_OPERATORS, p, g, *state), held, strict=True)
    return (*(astype(a, b.dtype, copy=False) for a, b in new), step + 1)


@_row("rmsprop_step", "v", "alpha eps")
def rmsprop_step(fit: Any, t: Any, lr: Any, alpha: Any, eps: Any) -> Move:
    """One step of RMSprop: v averages g² with ``alpha``, p -= lr * g / (sqrt(v) + eps).

    Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5 (2012).
    """
    rate, eps, keep, share = map(fit, (lr, eps, alpha, 1.0 - alpha))

    def move(xp: Any, p: Any, g: Any, v: Any) -> tuple[Any, ...]:
        v = v * keep + g * g * share
        return p - g / (xp.sqrt(v) + eps) * rate, v

    return move


@_row("adagrad_step", "s", "lr_decay eps")
def adagrad_step(fit: Any, t: Any, lr: Any, lr_decay: Any, eps: Any) -> Move:
    """One step of Adagrad: s += g², p -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps).

    t counts steps from 1. Duchi et al., "Adaptive subgradient methods for online learning and
    stochastic optimization" (2011).
    """
    rate, eps = fit(lr / (1.0 + (t - 1.0) * lr_decay)), fit(eps)

    def move(xp: Any, p: Any, g: Any, s: Any) -> tuple[Any, ...]:
        s = s + g * g
        return p - g / (xp.sqrt(s) + eps) * rate, s

    return move


@_row("adadelta_step", "v u", "rho eps")
def adadelta_step(fit: Any, t: Any, lr: Any, rho: Any, eps: Any) -> Move:
    """One step of Adadelta: p -= lr * d with d = g * sqrt(u + eps) / sqrt(v + eps).

    v averages g² with ``rho`` before, u averages d² after. Zeiler, "ADADELTA: an adaptive learning
    rate method" (2012).
    """
    rate, eps, keep, share = map(fit, (lr, eps, rho, 1.0 - rho))

    def move(xp: Any, p: Any, g: Any, v: Any, u: Any) -> tuple[Any, ...]:
        v = v * keep + g * g * share
        d = g * (xp.sqrt(u + eps) / xp.sqrt(v + eps))
        return p - d * rate, v, u * keep + d * d * share

    return move


@_row("amsgrad_step", "m v top", "beta1 beta2 eps")
def amsgrad_step(fit: Any, t: Any, lr: Any, beta1: Any, beta2: Any, eps: Any) -> Move:
    """One step of ``adamw_step`` with the largest second moment so far, ``top``, for the second.

    Reddi et al., "On the convergence of Adam and beyond" (2018).
    """
    size, root = fit(lr / (1.0 - beta1**t)), fit((1.0 - beta2**t) ** 0.5)
    eps, share, keep, rest = map(fit, (eps, 1.0 - beta1, beta2, 1.0 - beta2))

    def move(xp: Any, p: Any, g: Any, m: Any, v: Any, top: Any) -> tuple[Any, ...]:
        m = m + (g - m) * share
        v = v * keep + g * g * rest
        top = xp.maximum(top, v)
        return p - m / (xp.sqrt(top) / root + eps) * size, m, v, top

    return move


@_row("nadam_step", "m v", "product beta1 beta2 eps momentum_decay")
def nadam_step(
    fit: Any, t: Any, lr: Any, product: Any, beta1: Any, beta2: Any, eps: Any, momentum_decay: Any
) -> Move:
    """One step of NAdam; ``product`` is that of all momenta up to this step's.

    With step t from 1 and m_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2): m averages g with
    beta1, v averages g² with beta2, and p -= lr * ((1 - m_t) / (1 - product) * g
    + m_(t+1) / (1 - product * m_(t+1)) * m) / (sqrt(v / (1 - beta2^t)) + eps). Dozat,
    "Incorporating Nesterov momentum into Adam" (2016).
    """
    now, then = (beta1 * (1.0 - 0.5 * 0.96 ** (at * momentum_decay)) for at in (t, t + 1.0))
    here, ahead = fit(lr * (1.0 - now) / (1.0 - product)), fit(lr * then / (1.0 - product * then))
    root = fit((1.0 - beta2**t) ** 0.5)
    eps, share, keep, rest = map(fit, (eps, 1.0 - beta1, beta2, 1.0 - beta2))

    def move(xp: Any, p: Any, g: Any, m: Any, v: Any) -> tuple[Any, ...]:
        m = m + (g - m) * share
        v = v * keep + g * g * rest
        return p - (g * here + m * ahead) / (xp.sqrt(v) / root + eps), m, v

    return move


@_row("radam_step", "m v", "beta1 beta2 eps")
def radam_step(fit: Any, t: Any, lr: Any, beta1: Any, beta2: Any, eps: Any) -> Move:
    """One step of RAdam: Adam without its second moment until that can be trusted.

    With R = 2 / (1 - beta2) - 1 and r = R - 2 * t * beta2^t / (1 - beta2^t), t from 1: m averages g
    with beta1, v averages g² with beta2, p -= lr * m / (1 - beta1^t) * c, where c is 1 as long as
    r <= 5, then sqrt((r - 4) * (r - 2) * R / ((R - 4) * (R - 2) * r) * (1 - beta2^t)) /
    (sqrt(v) + eps). Liu et al., "On the variance of the adaptive learning rate and beyond" (2020).
    """
    left, limit = 1.0 - beta2**t, 2.0 / (1.0 - beta2) - 1.0
    length = limit - 2.0 * t * (1.0 - left) / left
    trusted = (length > 5.0) * 1.0
    # Where it is not trusted any lengths that keep the root real will do.
    length, limit = (n * trusted + 6.0 * (1.0 - trusted) for n in (length, limit))
    scale = (length - 4.0) * (length - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * length)
    size = lr / (1.0 - beta1**t)
    full, plain = fit(size * trusted * (scale * left) ** 0.5), fit(size * (1.0 - trusted))
    eps, share, keep, rest = map(fit, (eps, 1.0 - beta1, beta2, 1.0 - beta2))

    def move(xp: Any, p: Any, g: Any, m: Any, v: Any) -> tuple[Any, ...]:
        m = m + (g - m) * share
        v = v * keep + g * g * rest
        return p - m * (full / (xp.sqrt(v) + eps) + plain), m, v

    return move


def overwrite(
    name: str, targets: Sequence[RudaTensor], values: Sequence[Any], *flags: bool
) -> Overwrite:
    """The call that overwrites ``targets`` with the outputs of the row ``name``."""
    return Overwrite(TABLE[name], targets, values, flags)
