"""Attention of a step: heads whose scores stay in the cache, one after the other in each task."""

from __future__ import annotations

from typing import Any

from ruda.backends.numpy.kernels import attention, takes
from ruda.backends.numpy.kernels.compiler import inline, task
from ruda.backends.numpy.kernels.steps.atoms import load, number, sgemm, singles, table_of
from ruda.backends.numpy.kernels.steps.blas import product
from ruda.backends.numpy.kernels.steps.builder import Builder
from ruda.backends.numpy.kernels.steps.places import Place
from ruda.backends.numpy.kernels.sums import dot
from ruda.core.spec import is_absent

_probabilities = inline(attention.probabilities.function)
_slopes = inline(attention.slopes.function)
# Heads of a task.
_HEADS = 4


@inline
def _place(cells, k, batch, head):
    """The address of a head of operand ``k``: four cells, its address and steps in bytes."""
    first = cells + 96 + 32 * k
    return load(first) + batch * load(first + 8) + head * load(first + 16)


@inline
def _first_four(cells, b, h):
    """As ``_place``, of operands 0 to 3."""
    return (
        _place(cells, 0, b, h),
        _place(cells, 1, b, h),
        _place(cells, 2, b, h),
        _place(cells, 3, b, h),
    )


@inline
def _leading(cells, k):
    """The elements from one row of operand ``k`` to the next."""
    return load(cells + 96 + 32 * k + 24)


@task
def forward(cells, part):
    f, count, heads = load(cells), load(cells + 8), load(cells + 16)
    m, n, d = load(cells + 24), load(cells + 32), load(cells + 40)
    left, right, scale = load(cells + 48), load(cells + 56), number(cells + 64)
    scores = load(cells + 72) + 4 * part * m * n
    for i in range(part * _HEADS, min(part * _HEADS + _HEADS, count)):
        b, h = i // heads, i % heads
        q, k, v, out = _first_four(cells, b, h)
        sgemm(f, 0, 1, m, n, d, q, _leading(cells, 0), k, _leading(cells, 1), scores, n)
        s, bits, lse = table_of(scores, load(cells + 80) + 4 * i * m, m, n)
        _probabilities(s, bits, scale, left, right, lse)
        sgemm(f, 0, 0, m, d, n, scores, n, v, _leading(cells, 2), out, d)
    return 0


@task
def backward(cells, part):
    f, count, heads = load(cells), load(cells + 8), load(cells + 16)
    m, n, d = load(cells + 24), load(cells + 32), load(cells + 40)
    left, right, scale = load(cells + 48), load(cells + 56), number(cells + 64)
    scores = load(cells + 72) + 4 * part * (2 * m * n + m)
    slopes, delta = scores + 4 * m * n, scores + 8 * m * n
    for i in range(part * _HEADS, min(part * _HEADS + _HEADS, count)):
        b, h = i // heads, i % heads
        q, k, v, g = _first_four(cells, b, h)
        out = _place(cells, 4, b, h)
        sgemm(f, 0, 1, m, n, d, q, _leading(cells, 0), k, _leading(cells, 1), scores, n)
        sgemm(f, 0, 1, m, n, d, g, _leading(cells, 3), v, _leading(cells, 2), slopes, n)
        along = singles(delta, m)
        for r in range(m):
            row = singles(g + 4 * r * _leading(cells, 3), d)
            along[r] = dot(row, singles(out + 4 * r * _leading(cells, 4), d))
        s, _, lse = table_of(scores, load(cells + 80) + 4 * i * m, m, n)
        ds, _, rows = table_of(slopes, delta, m, n)
        _slopes(s, ds, scale, left, right, lse, rows)
        dq, dk, dv = _place(cells, 5, b, h), _place(cells, 6, b, h), _place(cells, 7, b, h)
        sgemm(f, 0, 0, m, d, n, slopes, n, k, _leading(cells, 1), dq, d)
        sgemm(f, 1, 0, n, d, m, slopes, n, q, _leading(cells, 0), dk, d)
        sgemm(f, 1, 0, n, d, m, scores, n, g, _leading(cells, 3), dv, d)
    return 0


def takes_attention(plan: Any) -> bool:
    """As many heads of keys as of queries, each of a score that one block of eager code has."""
    back = plan.op.name == "attention_backward"
    start = 2 if back else 0
    operands = [*plan.specs[start : start + 3], *plan.specs[: int(back)]]
    if not takes(plan) or product() == 0 or any(s.weak for s in operands):
        return False
    q, k, v = operands[:3]
    extra = plan.specs[7:] if back else plan.specs[3:]
    absent = (*extra, plan.specs[1]) if back else extra
    if not all(is_absent(s) for s in absent) or plan.attrs[2] is not None:
        return False
    m, n, d = q.shape[2], k.shape[2], q.shape[3]
    if q.shape[1] != k.shape[1] or min(m, n, d) < 2 or m * n > attention.SCORES:
        return False
    if back and not all(s.contiguous for s in plan.specs[5:7]):
        return False
    lies = all(s.strides[3] == 1 and s.strides[2] >= d for s in operands)
    return lies and v.shape[3] == d


def _cells(plan: Any, q: Place, k: Place, scores: Place, lse: Place, places: Any) -> list[Any]:
    shape = attention.Shape.of(q.spec, k.spec, plan.attrs)
    batch, heads, m, d = q.spec.shape
    cells = [product(), batch * heads, heads, m, k.spec.shape[2], d]
    cells += [shape.left, shape.right, float(shape.scale), scores, lse, 0]
    for place in places:
        steps = place.spec.strides
        cells += [place, 4 * steps[0], 4 * steps[1], steps[2]]
    return cells


def attend(b: Builder, plan: Any, q: Place, k: Place, v: Place, *rest: Any) -> None:
    *_, out, lse = rest
    count = -(-q.spec.shape[0] * q.spec.shape[1] // _HEADS)
    m, n = q.spec.shape[2], k.spec.shape[2]
    scores = b.scratch((count, m, n), lse.spec)
    cells = _cells(plan, q, k, scores, lse, (q, k, v, out))
    b.add(forward, count, cells, [out, lse, scores], work=m * n * 100)


def attend_backward(b: Builder, plan: Any, g: Place, _: Any, *rest: Any) -> None:
    q, k, v, out, lse = rest[:5]
    outs = rest[-4:]
    count = -(-q.spec.shape[0] * q.spec.shape[1] // _HEADS)
    m, n = q.spec.shape[2], k.spec.shape[2]
    scores = b.scratch((count, 2 * m * n + m), lse.spec)
    cells = _cells(plan, q, k, scores, lse, (q, k, v, g, out, *outs[:3]))
    b.add(backward, count, cells, [*outs, scores], work=m * n * 200)
