"""Products of bfloat16 that end in a gelu by tanh, or begin its gradient: one call of cuBLASLt.

The gelu is of the sum before it is rounded, so a result may differ from that of two operators by
the last bit, on the side of the exact one. Small products are left apart: nothing was gained there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.blas import cublaslt, layout
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import bfloat16
from ruda.core.mode import IEEE
from ruda.core.spec import Spec, is_absent, spec_of

_ARITHMETIC_COMPUTE = 68
# Elements of a result from which on a call was seen to be quicker than two.
_LEAST = 1 << 22
# The library wants rows of the matrix beside the result to begin at multiples of so many elements.
_WHOLE = 8

Bound = tuple[cublaslt.Arithmetic, layout.Geometry]


def joins(client: Any, plan: Any, step: Any, keeps: bool) -> bool:
    """Whether one call does the product ``plan`` and ``step``; ``keeps`` what is between them."""
    names = plan.op.name, step.op.name
    if names == ("linear", "gelu_tanh"):
        return _bound(client, plan, _forward(keeps)) is not None
    if names == ("matmul", "gelu_tanh_backward") and not keeps:
        z = step.specs[1]
        whole = z.shape == plan.out.shape and z.contiguous and z.dtype is bfloat16
        return whole and step.out is plan.out and _bound(client, plan, _BACKWARD) is not None
    return False


def is_ended(region: Any) -> bool:
    """Whether a region is a product and a gelu, or a product and its gradient."""
    names = tuple(step.plan.op.name for step in region.steps)
    return names in (("linear", "gelu_tanh"), ("matmul", "gelu_tanh_backward"))


_BACKWARD = cublaslt.Ends(then="gelu gradient")


def _forward(keeps: bool) -> cublaslt.Ends:
    return cublaslt.Ends(bias=True, then="gelu and input" if keeps else "gelu")


def _bound(client: Any, plan: Any, ends: cublaslt.Ends) -> Bound | None:
    """How the product is done; None where the library does not or it would not pay."""
    x, y, *bias = plan.specs
    out = plan.out
    if out.size < _LEAST or out.shape[-1] % _WHOLE or not out.contiguous or not x.size:
        return None
    if any(s.weak or is_absent(s) or s.dtype is not bfloat16 for s in (*plan.specs, out)):
        return None
    if bias and not bias[0].contiguous:
        return None
    if bias:
        y = spec_of(client, y.shape[::-1], y.dtype, y.strides[::-1])
    shape = layout.geometry((x.shape, x.strides), (y.shape, y.strides))
    allowed = plan.precision or IEEE
    if any(shape.copies) or not shape.is_single:
        return None
    name = out.dtype.name
    how = cublaslt.Arithmetic(
        name, name, _ARITHMETIC_COMPUTE, "float32", bool(allowed.half_reduction)
    )
    return (how, shape) if cublaslt.offers(client, how, shape, ends) else None


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of the region's inputs to those of its results."""
    (product, sources), (step, others) = region.steps
    forward = product.op.name == "linear"
    keeps = region.kept == (0, 1)
    ends = _forward(keeps) if forward else _BACKWARD
    found = _bound(client, product, ends)
    assert found is not None
    multiply = cublaslt.product(client, *found, ends=ends)
    beside = -1 if forward else others[1]
    out: Spec = step.out

    def run(*handles: Any) -> tuple[Any, ...]:
        result = allocate(client.pool, out)
        given = [handles[i] for i in sources]
        if any(h.address & 15 for h in handles):
            return _apart(given, handles)
        x, y, *bias = (h.address for h in given)
        if forward:
            between = allocate(client.pool, out) if keeps else None
            multiply(x, y, result.address, bias[0], 0 if between is None else between.address)
            return (result,) if between is None else (between, result)
        multiply(x, y, result.address, 0, handles[beside].address)
        return (result,)

    def _apart(given: list[Any], handles: tuple[Any, ...]) -> tuple[Any, ...]:
        """Both operators, for addresses that the library was not asked about."""
        between = product.run(*given)
        result = step.run(between) if forward else step.run(between, handles[beside])
        return (between, result) if keeps else (result,)

    return run
