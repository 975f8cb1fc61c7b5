"""Small products with what is done to their results: one kernel of a compiled step.

Elementwise steps of the result's shape are done before it is written: the kernel reads what else
they need as it ends, and gives what its operators give one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.blas import gemm, small
from ruda.backends.cuda.blas.small_epilogue import End
from ruda.backends.cuda.codegen_steps import Step
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.region import fuses, step_of
from ruda.core.dtypes import float32
from ruda.core.spec import is_absent

_PRODUCTS = ("matmul", "linear")


def is_core(client: Any, plan: Any) -> bool:
    """Whether ``plan`` is a product whose kernel is ours, on operands as they lie."""
    if plan is None or plan.op.kind == "region" or plan.op.name not in _PRODUCTS:
        return False
    return gemm.own_of(client, plan) is not None


def takes(plan: Any, step: Any) -> bool:
    """Whether the kernel of the product ``plan`` can do ``step`` to its result."""
    if not fuses(step) or step.out.shape != plan.out.shape:
        return False
    return all(
        not s.weak and s.dtype is float32 and s.contiguous and s.shape == plan.out.shape
        for s in (*step.specs, step.out)
    )


def is_product(client: Any, whole: Any) -> bool:
    """Whether a region is a small product and steps behind it."""
    return is_core(client, whole.steps[0].plan)


def bind(client: Any, whole: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of a region's inputs to those of its results."""
    (core, given), *rest = whole.steps
    count = len(whole.specs)
    # What the steps read besides the product, as places among the inputs.
    read = sorted({s for step in rest for s in step.sources if s < count})
    places = {count: 0, **{place: 1 + j for j, place in enumerate(read)}}
    places.update((count + 1 + k, 1 + len(read) + k) for k in range(len(rest)))
    steps = tuple(_renamed(step_of(step.plan, step.sources), places) for step in rest)
    end = End(steps, tuple(whole.kept), (float32,) * len(read))
    own = gemm.own_of(client, core)
    assert own is not None, "another kernel runs this product"
    bound = small.Bound(client, *own, False, False, end)
    pool, outs = client.pool, whole.out
    biased = len(core.specs) > 2 and not is_absent(core.specs[2])

    def run(*handles: Any) -> tuple[Any, ...]:
        made = tuple(allocate(pool, spec) for spec in outs)
        x, y = (handles[place].address for place in given[:2])
        bias = handles[given[2]].address if biased else 0
        bound([h.address for h in (*made, *(handles[i] for i in read))], x, y, bias)
        return made

    return run


def _renamed(step: Step, places: dict[int, int]) -> Step:
    sources = tuple(places[source] for source in step.sources)
    return Step(step.op, step.expr, step.names, sources, step.computed, step.out)
