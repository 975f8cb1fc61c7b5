"""Schedules: pure functions of the step that give a factor of the initial learning rate.

The step is a number or a 0-d tensor, so that a captured training step computes the rate on the
device; the factor is a float64 0-d tensor. ``functools.partial(cosine, total=100)`` is such a
function of the step alone, as ``sequential`` and ``product`` take them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ruda.core.dtypes import float64
from ruda.core.errors import ArgumentError
from ruda.ops.arith import minimum, multiply, pow, remainder, sqrt
from ruda.ops.cast import astype
from ruda.ops.compare import greater, greater_equal, less, less_equal
from ruda.ops.conversion import asarray
from ruda.ops.create import ones_like
from ruda.ops.explog import log
from ruda.ops.round import floor
from ruda.ops.select import clip, where
from ruda.ops.trig import cos
from ruda.tensor.tensor import RudaTensor

Factor = Callable[..., RudaTensor]


def _position(step: Any) -> RudaTensor:
    """The step as a float64 0-d tensor."""
    tensor = step if isinstance(step, RudaTensor) else asarray(step, dtype=float64)
    return astype(tensor, float64, copy=False)


def _check_positive(op: str, name: str, value: Any) -> None:
    if not value > 0:
        raise ArgumentError(op, f"{name} is not positive", value)


def _eased(start: Any, final: Any, share: Any) -> RudaTensor:
    """From ``start`` to ``final`` along half a cosine while ``share`` goes from 0 to 1."""
    return final + 0.5 * (start - final) * (1.0 + cos(share * math.pi))


def constant(step: Any, factor: float = 1.0, total: int | None = None) -> RudaTensor:
    """``factor``; with ``total`` for so many steps only, then 1.

    >>> [constant(step, 0.5, total=2).item() for step in (0, 1, 2)]
    [0.5, 0.5, 1.0]
    """
    position = _position(step)
    value = ones_like(position) * factor
    return value if total is None else where(less(position, float(total)), value, 1.0)


def linear(step: Any, total: int, start: float = 1 / 3, final: float = 1.0) -> RudaTensor:
    """From ``start`` at step 0 along a line to ``final`` at step ``total`` and from there on.

    >>> [linear(step, total=4, start=1.0, final=0.0).item() for step in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """
    _check_positive("linear", "total", total)
    return start + (final - start) * clip(_position(step) / total, max=1.0)


def linear_warmup(step: Any, warmup: int) -> RudaTensor:
    """``(step + 1) / warmup`` for the first ``warmup`` steps, then 1.

    >>> [linear_warmup(step, warmup=4).item() for step in (0, 3, 9)]
    [0.25, 1.0, 1.0]
    """
    return clip((_position(step) + 1.0) / max(warmup, 1), max=1.0)


def step_decay(step: Any, period: int, gamma: float = 0.1) -> RudaTensor:
    """Times ``gamma`` after each ``period`` steps.

    >>> [step_decay(step, period=10, gamma=0.5).item() for step in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """
    _check_positive("step_decay", "period", period)
    return pow(gamma, floor(_position(step) / period))


def multi_step(step: Any, milestones: Sequence[int], gamma: float = 0.1) -> RudaTensor:
    """Times ``gamma`` at each of the ``milestones``.

    >>> [multi_step(step, [2, 5], gamma=0.5).item() for step in (1, 2, 5)]
    [1.0, 0.5, 0.25]
    """
    position = _position(step)
    passed = (astype(greater_equal(position, float(m)), float64) for m in milestones)
    return pow(gamma, sum(passed, start=position * 0.0))


def exponential(step: Any, gamma: float) -> RudaTensor:
    """``gamma ** step``.

    >>> exponential(3, gamma=0.5).item()
    0.125
    """
    return pow(gamma, _position(step))


def cosine(step: Any, total: int, warmup: int = 0, final: float = 0.0) -> RudaTensor:
    """Linear warm-up, then half a cosine from 1 to ``final``, which step ``total`` reaches.

    ``final + (1 - final) * (1 + cos(pi * t)) / 2`` with t from 0 at step ``warmup`` to 1.
    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017).

    >>> [round(cosine(step, total=10, final=0.1).item(), 3) for step in (0, 5, 10, 20)]
    [1.0, 0.55, 0.1, 0.1]
    """
    if not 0 <= warmup < total:
        raise ArgumentError("cosine", "the warm-up leaves no step", warmup, f"0 to {total - 1}")
    position = _position(step)
    share = clip((position - warmup) / (total - warmup), min=0.0, max=1.0)
    falling = _eased(1.0, final, share)
    return where(less(position, float(warmup)), linear_warmup(position, warmup), falling)


def cosine_restarts(step: Any, period: int, growth: float = 1.0, final: float = 0.0) -> RudaTensor:
    """Half a cosine from 1 towards ``final``, again and again, each ``growth`` times as long.

    The first takes ``period`` steps. Loshchilov and Hutter, "SGDR: stochastic gradient descent with
    warm restarts" (2017).

    >>> [round(cosine_restarts(s, period=2, growth=2).item(), 3) for s in (0, 1, 2, 4, 6)]
    [1.0, 0.5, 1.0, 0.5, 1.0]
    """
    _check_positive("cosine_restarts", "period", period)
    if growth < 1:
        raise ArgumentError("cosine_restarts", "growth out of range", growth, "1 or more")
    position = _position(step)
    if growth == 1:
        return _eased(1.0, final, remainder(position, float(period)) / period)

    def begins(cycle: RudaTensor) -> RudaTensor:
        return period * (pow(growth, cycle) - 1.0) / (growth - 1.0)

    cycle = floor(log(position * ((growth - 1.0) / period) + 1.0) / math.log(growth))
    # The logarithm may round to the wrong side of a restart.
    cycle = cycle - astype(greater(begins(cycle), position), float64)
    cycle = cycle + astype(less_equal(begins(cycle + 1.0), position), float64)
    return _eased(1.0, final, (position - begins(cycle)) / (period * pow(growth, cycle)))


def one_cycle(
    step: Any,
    total: int,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
    anneal: str = "cos",
) -> RudaTensor:
    """Up from 1 / ``div_factor`` to 1 in the share ``pct_start`` of ``total`` steps, then down.

    The last of the ``total`` steps has 1 / (div_factor * final_div_factor). ``anneal`` is "cos" or
    "linear". The optimizer's rate is the largest. Smith and Topin, "Super-convergence: very fast
    training of neural networks using large learning rates" (2018).

    >>> [round(one_cycle(step, total=11, pct_start=2 / 11).item(), 3) for step in (0, 1, 10)]
    [0.04, 1.0, 0.0]
    """
    if anneal not in ("cos", "linear"):
        raise ArgumentError("one_cycle", "no such way to anneal", anneal, "cos or linear")
    peak = pct_start * total - 1.0
    if not 0 < peak < total - 1:
        raise ArgumentError("one_cycle", "no step for one of the phases", f"{pct_start} of {total}")
    position = _position(step)
    bottom, low = 1.0 / div_factor, 1.0 / (div_factor * final_div_factor)
    up = position / peak
    down = clip((position - peak) / (total - 1.0 - peak), max=1.0)
    if anneal == "cos":
        rising, falling = _eased(bottom, 1.0, up), _eased(1.0, low, down)
    else:
        rising, falling = bottom + (1.0 - bottom) * up, 1.0 + (low - 1.0) * down
    return where(less_equal(position, peak), rising, falling)


def noam(step: Any, width: int, warmup: int) -> RudaTensor:
    """``width^-1/2 * min(s^-1/2, s * warmup^-3/2)`` with s = step + 1; the initial rate is 1.

    Vaswani et al., "Attention is all you need" (2017).

    >>> noam(3, width=4, warmup=4).item()
    0.25
    """
    _check_positive("noam", "warmup", warmup)
    s = _position(step) + 1.0
    return width**-0.5 * minimum(1.0 / sqrt(s), s * warmup**-1.5)


def sequential(step: Any, parts: Sequence[Factor], milestones: Sequence[int]) -> RudaTensor:
    """One of ``parts`` after the other; each but the first begins at its milestone, with step 0.

    >>> parts = [lambda step: linear(step, 2, 0.0), lambda step: exponential(step, 0.5)]
    >>> [sequential(step, parts, milestones=[2]).item() for step in (0, 1, 2, 3)]
    [0.0, 0.5, 1.0, 0.5]
    """
    if len(parts) != len(milestones) + 1 or list(milestones) != sorted(milestones):
        got = f"{len(parts)} parts, milestones {list(milestones)}"
        expected = "rising milestones, one fewer than parts"
        raise ArgumentError("sequential", "parts and milestones do not fit", got, expected)
    position = _position(step)
    found = parts[0](position)
    for part, start in zip(parts[1:], map(float, milestones), strict=True):
        own = part(clip(position - start, min=0.0))
        found = where(less(position, start), found, own)
    return found


def product(step: Any, parts: Sequence[Factor]) -> RudaTensor:
    """The product of all ``parts``.

    >>> product(1, [lambda step: exponential(step, 0.5)] * 2).item()
    0.25
    """
    position = _position(step)
    found = ones_like(position)
    for part in parts:
        found = multiply(found, part(position))
    return found
