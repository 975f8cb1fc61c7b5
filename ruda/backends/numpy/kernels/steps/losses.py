"""Cross-entropy of a step, and the mean of what is counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.backends.numpy.kernels import losses, takes
from ruda.backends.numpy.kernels.compiler import inline, task
from ruda.backends.numpy.kernels.steps.atoms import load, number, rows_at, singles, words
from ruda.backends.numpy.kernels.steps.builder import Builder
from ruda.backends.numpy.kernels.steps.places import Place
from ruda.core.spec import is_absent

_cross_entropy = inline(losses.cross_entropy.function)
_cross_entropy_backward = inline(losses.cross_entropy_backward.function)
_F = np.float32
# Elements of a part, and the least rows of one.
_PART, _ROWS = 1 << 14, 16


@task
def cross_entropy(cells, part):
    total, n, step, ignore = load(cells), load(cells + 8), load(cells + 16), load(cells + 24)
    smoothing, z_loss = number(cells + 32), number(cells + 40)
    start = part * step
    count = min(step, total - start)
    x = rows_at(load(cells + 48) + 4 * start * n, count, n)
    target = words(load(cells + 56) + 8 * start, count)
    loss = singles(load(cells + 64) + 4 * start, count)
    lse = singles(load(cells + 72) + 4 * start, count)
    scratch = singles(load(cells + 80) + 4 * part * n, n)
    known = _cross_entropy(x, target, ignore, smoothing, z_loss, loss, lse, scratch)
    return 0 if known else 1


@task
def cross_entropy_backward(cells, part):
    total, n, step, ignore = load(cells), load(cells + 8), load(cells + 16), load(cells + 24)
    smoothing, z_loss = number(cells + 32), number(cells + 40)
    start = part * step
    count, along = min(step, total - start), load(cells + 88)
    x = rows_at(load(cells + 56) + 4 * start * n, count, n)
    target = words(load(cells + 64) + 8 * start, count)
    lse = singles(load(cells + 72) + 4 * start, count)
    out = rows_at(load(cells + 80) + 4 * start * n, count, n)
    g = singles(load(cells + 48) + 4 * start * along, count)
    if along == 0:
        # One gradient for all rows, spread out into the part's own scratch.
        one = g[0]
        g = singles(load(cells + 96) + 4 * start, count)
        for r in range(count):
            g[r] = one
    _cross_entropy_backward(g, x, target, lse, ignore, smoothing, z_loss, out)
    return 0


@inline
def _few(x):
    """The sum of up to 128 elements in NumPy's order: eight sums, then these by pairs."""
    if x.size < 8:
        out = _F(0)
        for i in range(x.size):
            out += x[i]
        return out
    s0, s1, s2, s3, s4, s5, s6, s7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    whole = x.size - x.size % 8
    for i in range(8, whole, 8):
        s0 += x[i]
        s1 += x[i + 1]
        s2 += x[i + 2]
        s3 += x[i + 3]
        s4 += x[i + 4]
        s5 += x[i + 5]
        s6 += x[i + 6]
        s7 += x[i + 7]
    out = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    for i in range(whole, x.size):
        out += x[i]
    return out


@inline
def _pairwise(x):
    """The sum in NumPy's order: halves, each a multiple of eight, until 128 are left."""
    if x.size <= 128:
        return _few(x)
    half = x.size // 2
    half -= half % 8
    return _pairwise(x[:half]) + _pairwise(x[half:])


@task
def mean_counted(cells, part):
    size, ignore = load(cells), load(cells + 8)
    loss, target = singles(load(cells + 16), size), words(load(cells + 24), size)
    found = 0
    for i in range(size):
        found += target[i] != ignore
    count = _F(found)
    singles(load(cells + 32), 1)[0] = _pairwise(loss) / count
    singles(load(cells + 40), 1)[0] = count
    return 0


def takes_loss(plan: Any) -> bool:
    """Rows along the last axis without class weights, and int64 classes."""
    backward = plan.op.name == "cross_entropy_backward"
    logits, target, weight = plan.specs[backward], plan.specs[backward + 1], plan.specs[-1]
    if not takes(plan) or not is_absent(weight) or plan.attrs[0] != logits.ndim - 1:
        return False
    if backward and not _steady(plan.specs[0]):
        return False
    return logits.contiguous and target.contiguous and target.dtype.name == "int64"


def _steady(spec: Any) -> bool:
    """One element behind the other, or the same one all over."""
    return spec.contiguous or not any(spec.strides)


def _parts(spec: Any) -> tuple[int, int, int, int]:
    """Rows, elements of a row, rows of a part, and the parts."""
    n = spec.shape[-1]
    total = math.prod(spec.shape[:-1])
    step = max(min(_PART // n, -(-total // 2)), _ROWS)
    return total, n, step, -(-total // step)


def loss(b: Builder, plan: Any, x: Place, target: Place, _: Any, out: Place, lse: Place) -> None:
    total, n, step, count = _parts(x.spec)
    _, ignore, smoothing, z_loss = plan.attrs
    scratch = b.scratch((count, n), x.spec)
    cells = [total, n, step, ignore, float(smoothing), float(z_loss), x, target, out, lse, scratch]
    b.add(cross_entropy, count, cells, [out, lse, scratch], work=8 * step * n)


def loss_backward(b: Builder, plan: Any, *places: Any) -> None:
    g, x, target, lse, _, out = places
    total, n, step, count = _parts(x.spec)
    _, ignore, smoothing, z_loss = plan.attrs
    along, spread = int(any(g.spec.strides)), b.scratch((total,), lse.spec)
    cells = [total, n, step, ignore, float(smoothing), float(z_loss)]
    cells += [g, x, target, lse, out, along, spread]
    b.add(cross_entropy_backward, count, cells, [out, spread], work=8 * step * n)


def takes_mean(plan: Any) -> bool:
    """float32 losses and int64 classes, row-major."""
    found, target = plan.specs
    plain = found.dtype.name == "float32" and found.contiguous and not found.weak
    return plain and target.dtype.name == "int64" and target.contiguous


def mean(b: Builder, plan: Any, found: Place, target: Place, out: Place, count: Place) -> None:
    cells = [found.spec.size, plan.attrs[0], found, target, out, count]
    b.add(mean_counted, 1, cells, [out, count], work=found.spec.size)
