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

# Elements of a result from which on a call was seen to be quicker than two, and for gradients that
# are added up in float32 the most rows that they are of.
_LEAST, _LEAST_WEIGHT, _MOST_ROWS = 1 << 22, 1 << 19, 1 << 14

Bound = tuple[lt.Arithmetic, layout.Geometry, lt.Ends]


def joins(client: Any, plan: Any, total: Any, place: int) -> bool:
    """Whether one call does the product ``plan`` and ``total``, a sum that has it at ``place``."""
    out, other = total.out, total.specs[1 - place]
    alike = other.shape == out.shape == plan.out.shape and other.dtype is out.dtype
    if not alike or other.weak or not other.contiguous or not out.contiguous:
        return False
    return _bound(client, plan, out) is not None


def _bound(client: Any, plan: Any, out: Spec) -> Bound | None:
    """How the product is done; None where the library does not or it would not pay."""
    x, y, bias = _operands(client, plan)
    if not x.size or not _pays(out, x, bias):
        return None
    if any(s.weak or s.dtype is not bfloat16 for s in (x, y, plan.out)):
        return None
    if bias is not None and not (bias.contiguous and bias.dtype is out.dtype):
        return None
    shape = layout.geometry((x.shape, x.strides), (y.shape, y.strides))
    if any(shape.copies) or not shape.is_single:
        return None
    how = arithmetic(bfloat16, out.dtype, plan.precision or IEEE)
    ends = lt.Ends(bias=bias is not None, beside=True)
    return (how, shape, ends) if lt.offers(client, how, shape, ends) else None


def _operands(client: Any, plan: Any) -> tuple[Spec, Spec, Spec | None]:
    """Both matrices as they are multiplied, and the bias, if there is one."""
    x, y, *bias = plan.specs
    if plan.op.name == "matmul":
        return x, y, None
    y = spec_of(client, y.shape[::-1], y.dtype, y.strides[::-1])
    return x, y, None if is_absent(bias[0]) else bias[0]


def _pays(out: Spec, x: Spec, bias: Spec | None) -> bool:
    """Whether it is quicker: a shortcut of float32 is read and written as often as before."""
    if out.dtype is bfloat16:
        return out.size >= _LEAST
    # A gradient of weights is a sum over more rows than it has.
    rows = x.shape[-1] if x.size else 0
    weight = out.dtype is float32 and bias is None and out.ndim == 2
    return weight and out.size >= _LEAST_WEIGHT and max(out.shape) <= rows <= _MOST_ROWS


def is_ended(region: Any) -> bool:
    """Whether a region is a product and a sum with it, perhaps with a cast between them."""
    first, *rest = (step.plan.op for step in region.steps)
    if first.name not in ("linear", "matmul") or not rest:
        return False
    return rest[-1].name == "add" and all(op.kind == "cast" for op in rest[:-1])


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of the region's inputs to those of its results."""
    (product, sources), *_, (total, others) = region.steps
    out = total.out
    found = _bound(client, product, out)
    assert found is not None
    how, shape, ends = found
    multiply = lt.product(client, how, shape, ends=ends)
    beside = next(s for s in others if s < len(region.specs))
    places = (*sources[: 2 + ends.bias], beside)

    def run(*handles: Any) -> tuple[Any, ...]:
        x, y, *rest = given = [handles[i].address for i in places]
        if any(address & 15 for address in given):
            return (_one_by_one(region.steps, handles),)
        result = allocate(client.pool, out)
        multiply(x, y, result.address, rest[0] if ends.bias else 0, 0, rest[-1])
        return (result,)

    return run


def _one_by_one(steps: Sequence[Any], handles: Sequence[Any]) -> Any:
    """All operators, for addresses that the library was not asked about."""
    known = list(handles)
    for plan, sources in steps:
        known.append(plan.run(*(known[i] for i in sources)))
    return known[-1]
