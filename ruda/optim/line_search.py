"""A step length along a line that satisfies the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

# Enough descent, and a slope that is flat enough: Nocedal and Wright's values.
_DESCENT, _CURVATURE = 1e-4, 0.9
# The smallest bracket, times the largest element of the direction.
_NARROW = 1e-9


class Point(NamedTuple):
    """A place on the line: step length, loss, gradient there, and slope along the line."""

    t: float
    loss: float
    gradient: Any
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, t: float, size: float, limit: int
) -> tuple[Point, int]:
    """The point taken, and how many evaluations it took.

    ``start`` is the point at 0, ``t`` the first length to try, ``size`` the largest element of the
    direction, ``limit`` how many points beyond the first may be evaluated. Nocedal and
    Wright, "Numerical optimization" (2006), algorithms 3.5 and 3.6, with cubic interpolation.
    """
    bracket, spent, done = _bracketed(evaluate, start, t, limit)
    low, high = _ordered(bracket)
    stuck = False
    while not done and spent <= limit and abs(high.t - low.t) * size >= _NARROW:
        t, stuck = _inside(low, high, stuck)
        here, spent = evaluate(t), spent + 1
        if _falls_short(here, start) or here.loss >= low.loss:
            low, high = _ordered([low, here])
            continue
        done = _is_flat(here, start)
        if not done and here.slope * (high.t - low.t) >= 0:
            high = low
        low = here
    return low, spent


def _falls_short(point: Point, start: Point) -> bool:
    return point.loss > start.loss + _DESCENT * point.t * start.slope


def _is_flat(point: Point, start: Point) -> bool:
    return abs(point.slope) <= -_CURVATURE * start.slope


def _bracketed(
    evaluate: Callable[[float], Point], start: Point, t: float, limit: int
) -> tuple[list[Point], int, bool]:
    """Two points with a good one between them, or one good point; evaluations; whether good."""
    before, here = start, evaluate(t)
    for tried in range(limit):
        if _falls_short(here, start) or (tried > 1 and here.loss >= before.loss):
            return [before, here], tried + 1, False
        if _is_flat(here, start):
            return [here], tried + 1, True
        if here.slope >= 0:
            return [before, here], tried + 1, False
        nearest = here.t + 0.01 * (here.t - before.t)
        t = cubic_minimum(before, here, nearest, here.t * 10)
        before, here = here, evaluate(t)
    return [start, here], limit + 1, False


def _ordered(bracket: list[Point]) -> tuple[Point, Point]:
    first, last = bracket[0], bracket[-1]
    return (first, last) if first.loss <= last.loss else (last, first)


def _inside(low: Point, high: Point, stuck: bool) -> tuple[float, bool]:
    """The next length to try, and whether it is close to an end for the first time."""
    first, last = sorted((low.t, high.t))
    t = cubic_minimum(low, high, first, last)
    margin = 0.1 * (last - first)
    if min(last - t, t - first) >= margin:
        return t, False
    if not stuck and first < t < last:
        return t, True
    return (last - margin if abs(t - last) < abs(t - first) else first + margin), False


def cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic through two points with their slopes is least, within ``low`` to ``high``."""
    middle = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = middle * middle - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    root = math.sqrt(square)
    a, b = (a, b) if a.t <= b.t else (b, a)
    share = (b.slope + root - middle) / (b.slope - a.slope + 2 * root)
    return min(max(b.t - (b.t - a.t) * share, low), high)
