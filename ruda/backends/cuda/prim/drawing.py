"""Rows that draw one word an element, as steps of a region: dropout, its mask, uniform numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import raw_bits
from ruda.backends.cuda.prim.random import limit_of, uniform_parameters
from ruda.backends.cuda.types import computed
from ruda.core.dtypes import FLOAT, DType, bool_, compute_of, float32
from ruda.ops.dropout import kept_scale


class Drawing(NamedTuple):
    """How a row draws: an expression of ``word`` and of ``numbers``, as (C type, name).

    ``operands`` of the row are tensors, of the dtypes ``computed``; the others are scalars, and
    ``given`` makes the numbers of them, but for seed and draw number, which are the last two.
    """

    expr: str
    operands: tuple[str, ...]
    computed: tuple[DType, ...]
    numbers: tuple[tuple[str, str], ...]
    given: Callable[..., tuple[int, ...]]


def drawing_of(plan: Any) -> Drawing | None:
    """How the row of ``plan`` draws; None for other rows and for what no region does."""
    find, out = _DRAWINGS.get(plan.op.name), plan.out
    if find is None or not out.size or not out.contiguous:
        return None
    tensors = [s for s in plan.specs if not s.weak]
    if len(tensors) != (plan.op.name == "dropout"):
        return None
    return find(plan)


def _dropout(plan: Any) -> Drawing | None:
    x = plan.specs[0]
    if x.weak or x.dtype not in FLOAT:
        return None
    own = compute_of(x.dtype)
    bits = raw_bits(own)
    numbers = (("u64", "limit"), (computed(own), "scale"))

    def given(p: Any) -> tuple[int, ...]:
        return limit_of(p), bits(kept_scale(p))[0]

    # The product is not joined with a sum that follows: the row rounds it.
    return Drawing("word < limit ? T(0) : mul(x, scale)", ("x",), (own,), numbers, given)


def _below(expr: str) -> Callable[[Any], Drawing | None]:
    def find(plan: Any) -> Drawing | None:
        if plan.out.dtype is not bool_:
            return None
        return Drawing(expr, (), (), (("u64", "limit"),), lambda p: (limit_of(p),))

    return find


def _uniform(plan: Any) -> Drawing | None:
    dtype = plan.out.dtype
    # Other numbers take two words.
    if not dtype.is_floating or compute_of(dtype) is not float32:
        return None
    names = ("span", "offset", "least", "greatest")
    expr = "held(add(mul(unit(word), span), offset), least, greatest)"
    numbers = tuple(("float", name) for name in names)

    def given(low: Any, high: Any) -> tuple[int, ...]:
        return uniform_parameters(dtype, low, high)

    return Drawing(expr, (), (), numbers, given)


_DRAWINGS: dict[str, Callable[[Any], Drawing | None]] = {
    "dropout": _dropout,
    "dropout_mask": _below("!(word < limit)"),
    "bernoulli": _below("word < limit"),
    "uniform": _uniform,
}
