"""Maps whose expression the table's row alone does not give: storage codes, halves, attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.prim import map as maps
from ruda.core.dtypes import DType, float32, int64
from ruda.core.spec import weak_spec

_CODES, _SPECIAL = "ruda/fp8.cuh", "ruda/special.cuh"


def conversion(source: DType, out: DType) -> str | None:
    """The expression that converts ``x`` where a side is a storage dtype, or None for neither."""
    if source is out or "storage" not in (source.kind, out.kind):
        return None
    value = f"decode_{source}(x)" if source.kind == "storage" else "to<float>(x)"
    return f"encode_{out}({value})" if out.kind == "storage" else value


def astype(client: Any, plan: Any) -> Callable[..., Any] | None:
    """A cast from or to a storage dtype; None for all others, which need no formula."""
    source, out = plan.specs[0], plan.out
    expr = conversion(source.dtype, out.dtype)
    if expr is None:
        return None
    return maps.bind(client, plan, "astype", expr, ("x",), (source,), (source.dtype,), _CODES)


def full(client: Any, plan: Any) -> Callable[..., Any] | None:
    """One code everywhere; None for a dtype that computes."""
    if plan.out.dtype.kind != "storage":
        return None
    expr = f"encode_{plan.out.dtype}(x)"
    return maps.bind(client, plan, "full", expr, ("x",), plan.specs, (float32,), _CODES)


def nextafter(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The neighbour of a half among halves; None for float32 and float64."""
    if not plan.out.dtype.is_half:
        return None
    kind = "half" if plan.out.dtype.name == "float16" else "bhalf"
    wanted = plan.op.dtype_of_operands(plan)
    expr = f"ruda_nextafter(to<{kind}>(x), to<{kind}>(y))"
    return maps.bind(client, plan, "nextafter", expr, plan.op.args, plan.specs, wanted, _SPECIAL)


def polygamma(client: Any, plan: Any) -> Callable[..., Any]:
    """The order goes by value: one kernel serves all of them."""
    (order,) = plan.attrs
    specs = (*plan.specs, weak_spec(client, "int"))
    wanted = (*plan.op.dtype_of_operands(plan), int64)
    expr = "ruda_polygamma(x, order)"
    run = maps.bind(client, plan, "polygamma", expr, ("x", "order"), specs, wanted, _SPECIAL)
    return lambda h: run(h, order)


KERNELS = {"astype": astype, "full": full, "nextafter": nextafter, "polygamma": polygamma}
