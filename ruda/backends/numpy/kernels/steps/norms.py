"""Layer norms of a step, on the loops and tiles of eager code."""

from __future__ import annotations

from typing import Any

from ruda.backends.numpy.kernels import rows, takes
from ruda.backends.numpy.kernels.compiler import inline, task
from ruda.backends.numpy.kernels.steps.atoms import load, number, rows_at, singles
from ruda.backends.numpy.kernels.steps.blas import add_rows
from ruda.backends.numpy.kernels.steps.builder import Builder
from ruda.backends.numpy.kernels.steps.places import Place

_layer_norm = inline(rows.layer_norm.function)
_layer_norm_backward = inline(rows.layer_norm_backward.function)
# Elements of a part of what needs no sums over rows.
_PART = 1 << 15


@task
def layer_norm(cells, part):
    total, n, step, eps = load(cells), load(cells + 8), load(cells + 16), number(cells + 24)
    start = part * step
    count = min(step, total - start)
    x = rows_at(load(cells + 32) + 4 * start * n, count, n)
    weight, bias = singles(load(cells + 40), n), singles(load(cells + 48), n)
    out = rows_at(load(cells + 56) + 4 * start * n, count, n)
    mean = singles(load(cells + 64) + 4 * start, count)
    rstd = singles(load(cells + 72) + 4 * start, count)
    _layer_norm(x, weight, bias, eps, out, mean, rstd)
    return 0


@task
def layer_norm_backward(cells, part):
    """Tiles of rows, each with sums of its own; ``layer_norm_sums`` adds them up."""
    total, n, step, tiles = load(cells), load(cells + 8), load(cells + 16), load(cells + 24)
    start = part * step
    count = total - start if part == tiles - 1 else step
    g = rows_at(load(cells + 32) + 4 * start * n, count, n)
    x = rows_at(load(cells + 40) + 4 * start * n, count, n)
    weight = singles(load(cells + 48), n)
    mean = singles(load(cells + 56) + 4 * start, count)
    rstd = singles(load(cells + 64) + 4 * start, count)
    out = rows_at(load(cells + 72) + 4 * start * n, count, n)
    dw = singles(load(cells + 80) + 4 * part * n, n)
    db = singles(load(cells + 88) + 4 * part * n, n)
    for j in range(n):
        dw[j] = 0
        db[j] = 0
    z = singles(load(cells + 96) + 4 * part * n, n)
    _layer_norm_backward(g, x, weight, mean, rstd, out, dw, db, z)
    return 0


def takes_norm(plan: Any) -> bool:
    """Rows along the last axis, with weight and bias."""
    return _fits(plan, 1) and all(not s.weak for s in plan.specs)


def _fits(plan: Any, full: int) -> bool:
    return takes(plan) and rows.fits(plan, full)


def norm(b: Builder, plan: Any, *places: Place) -> None:
    x, weight, bias, out, mean, rstd = places
    n = x.spec.shape[-1]
    total, step = x.spec.size // n, max(_PART // n, 1)
    cells = [total, n, step, float(plan.attrs[1]), x, weight, bias, out, mean, rstd]
    b.add(layer_norm, -(-total // step), cells, [out, mean, rstd], work=2 * step * n)


def takes_norm_backward(plan: Any) -> bool:
    """Rows along the last axis, with a weight."""
    return _fits(plan, 2) and all(not s.weak for s in plan.specs)


def norm_backward(b: Builder, plan: Any, *places: Place) -> None:
    g, x, weight, mean, rstd, out, dw, db = places
    n = x.spec.shape[-1]
    total = x.spec.size // n
    parts = rows.sum_tiles(x.spec.shape)
    count, step = len(parts), parts[0].stop
    sums = [b.scratch((count, n), dw.spec) for _ in range(3)]
    cells = [total, n, step, count, g, x, weight, mean, rstd, out, *sums]
    b.add(layer_norm_backward, count, cells, [out, *sums], work=4 * step * n)
    for source, target in zip(sums, (dw, db), strict=False):
        b.add(add_rows, 1, [source, count, n, n, target], [target], work=count * n)
