"""Fused rows that are one expression of their operands: gradients of activations, SwiGLU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.prim import map as maps


def bind(client: Any, plan: Any) -> Callable[..., Any]:
    """The expression of the row as a map."""
    op = plan.op
    wanted = op.dtype_of_operands(plan)
    return maps.bind(client, plan, op.name, op.expr, op.args, plan.specs, wanted)


_ACTIVATIONS = "sigmoid tanh relu silu gelu gelu_tanh"
KERNELS = dict.fromkeys([*(f"{name}_backward" for name in _ACTIVATIONS.split()), "swiglu"], bind)
