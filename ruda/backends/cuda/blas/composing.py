"""A product with all around it: operands made ready, memory for the result, a cast of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.blas import layout
from ruda.backends.cuda.blas.dispatch import Multiply, Task
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import DType
from ruda.core.spec import Spec, spec_of


def composed(
    task: Task, shape: layout.Geometry, multiply: Multiply, operand: DType, result: DType
) -> Callable[..., Any]:
    """Operands made ready, the product, and the result cast where it must be."""
    client, out = task.client, task.out
    ready = [
        _ready(client, spec, operand, copied)
        for spec, copied in zip((task.x, task.y), shape.copies, strict=True)
    ]
    if task.bias is not None:
        ready.append(_ready(client, task.bias, result, not task.bias.contiguous))
    raw = out if result is out.dtype else spec_of(client, out.shape, result)
    cast = None if raw is out else client.copier(out, raw)
    pool = client.pool
    if not any(ready) and cast is None:
        return _direct(pool, out, multiply, task.bias is not None)

    def run(*handles: Any) -> Any:
        given = [h if make is None else make(h) for make, h in zip(ready, handles, strict=False)]
        product = allocate(pool, raw)
        multiply(given[0].address, given[1].address, product.address, *_rest(given))
        return product if cast is None else cast(product)

    return run


def _rest(given: list[Any]) -> tuple[int, ...]:
    return tuple(h.address for h in given[2:])


def _direct(pool: Any, out: Spec, multiply: Multiply, with_bias: bool) -> Callable[..., Any]:
    """The common case: every operand goes in as it lies."""

    def run(hx: Any, hy: Any, *_: Any) -> Any:
        result = allocate(pool, out)
        multiply(hx.address, hy.address, result.address)
        return result

    def run_with_bias(hx: Any, hy: Any, hb: Any) -> Any:
        result = allocate(pool, out)
        multiply(hx.address, hy.address, result.address, hb.address)
        return result

    return run_with_bias if with_bias else run


def _ready(client: Any, spec: Spec, dtype: DType, copied: bool) -> Callable[[Any], Any] | None:
    """The function that copies an operand densely in ``dtype``; None where it is taken as it is."""
    if spec.dtype is dtype and not copied:
        return None
    return client.copier(spec_of(client, spec.shape, dtype), spec)
