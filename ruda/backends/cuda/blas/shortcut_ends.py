"""Products of bfloat16 that add a matrix to their result: a shortcut, or a gradient so far.

cuBLASLt reads it beside the result. The sum is of the product before it is rounded, so it may
differ from that of two operators by the rounding of a product, on the side of the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ruda.backends.cuda.blas import layout, lt
from ruda.backends.cuda.blas.picking import arithmetic
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import bfloat16, float32
from ruda.core.precision import IEEE
from ruda.core.spec import Spec, is_absent, spec_of

# Elements of a result from which on a call was seen to be quicker than two.
_LEAST = 1 << 62

Bound = tuple[lt.Arithmetic, layout.Geometry, lt.Ends]


def joins(client: Any, plan: Any, total: Any, place: int, bias: Spec | None) -> bool:
    """Whether one call does the product ``plan`` and ``total``, a sum that has it at ``place``.

    ``bias`` is what the call would read: in the dtype of the sum.
    """
    out, other = total.out, total.specs[1 - place]
    alike = other.shape == out.shape == plan.out.shape and other.dtype is out.dtype
    if not alike or other.weak or not other.contiguous or not out.contiguous:
        return False
    return _bound(client, plan, out, bias) is not None


def _bound(client: Any, plan: Any, out: Spec, bias: Spec | None) -> Bound | None:
    """How the product is done; None where the library does not or it would not pay."""
    x, y = plan.specs[:2]
    if out.size < _LEAST or not x.size or out.dtype not in (bfloat16, float32):
        return None
    if any(s.weak or s.dtype is not bfloat16 for s in (x, y, plan.out)):
        return None
    if bias is not None and not (bias.contiguous and bias.dtype is out.dtype):
        return None
    if plan.op.name == "linear":
        y = spec_of(client, y.shape[::-1], y.dtype, y.strides[::-1])
    shape = layout.geometry((x.shape, x.strides), (y.shape, y.strides))
    if any(shape.copies) or not shape.is_single:
        return None
    how, ends = (
        arithmetic(bfloat16, out.dtype, plan.precision or IEEE),
        lt.Ends(bias=bias is not None, beside=True),
    )
    return (how, shape, ends) if lt.offers(client, how, shape, ends) else None


def is_ended(region: Any) -> bool:
    """Whether a region is a product and a sum with it, perhaps with casts around the product."""
    *first, last = (step.plan for step in region.steps)
    rest = [plan.op.name for plan in first if plan.op.kind != "cast"]
    return last.op.name == "add" and rest in (["linear"], ["matmul"])


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of the region's inputs to those of its results."""
    count, out = len(region.specs), region.steps[-1].plan.out
    number = next(k for k, s in enumerate(region.steps) if s.plan.op.kind != "cast")
    product, sources = region.steps[number]
    beside = next(s for s in region.steps[-1].sources if s < count)
    bias = _bias_of(region, product, sources)
    found = _bound(client, product, out, None if bias is None else region.specs[bias])
    assert found is not None
    how, shape, ends = found
    multiply = lt.product(client, how, shape, ends=ends)
    places = (*sources[:2], *(() if bias is None else (bias,)), beside)

    def run(*handles: Any) -> tuple[Any, ...]:
        x, y, *_ = given = [handles[i].address for i in places]
        if any(address & 15 for address in given):
            return (_one_by_one(region.steps, handles),)
        result = allocate(client.pool, out)
        row = 0 if bias is None else given[2]
        multiply(x, y, result.address, row, 0, given[-1])
        return (result,)

    return run


def _bias_of(region: Any, product: Any, sources: Sequence[int]) -> int | None:
    """The input that is added as a row: what a cast in front of the product would be made of."""
    if product.op.name != "linear" or is_absent(product.specs[2]):
        return None
    place, count = sources[2], len(region.specs)
    return place if place < count else int(region.steps[place - count].sources[0])


def _one_by_one(steps: Sequence[Any], handles: Sequence[Any]) -> Any:
    """All operators, for addresses that the library was not asked about."""
    known = list(handles)
    for plan, sources in steps:
        known.append(plan.run(*(known[i] for i in sources)))
    return known[-1]
