"""Fused rows that are expressions of their operands: gradients of activations, SwiGLU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import map as maps
from ruda.backends.cuda.prim import region


def bind(client: Any, plan: Any) -> Callable[..., Any]:
    """The expression of the row as a map."""
    op = plan.op
    wanted = op.dtype_of_operands(plan)
    return maps.bind(client, plan, op.name, op.expr, op.args, plan.specs, wanted)


class _Step(NamedTuple):
    """A step of a region that no graph has."""

    plan: Any
    sources: tuple[int, ...]


def bind_pair(client: Any, plan: Any) -> Callable[..., Any]:
    """Both gradients of SwiGLU in one launch: a region of two steps over the same operands."""
    specs, outs = plan.specs, plan.out
    if outs[0].size == 0:
        return lambda *_: tuple(allocate(client.pool, out) for out in outs)
    wanted = plan.op.dtype_of_operands(plan)

    def step(expr: str, out: Any) -> _Step:
        row = SimpleNamespace(
            name=plan.op.name,
            kind="ternary",
            args=plan.op.args,
            expr=expr,
            dtype_of_operands=lambda _: wanted,
        )
        return _Step(SimpleNamespace(op=row, specs=specs, out=out), (0, 1, 2))

    steps = tuple(map(step, _SWIGLU, outs))
    whole = SimpleNamespace(specs=specs, out=outs, steps=steps, kept=(0, 1), paged=frozenset())
    return region.bind(client, whole)


_SWIGLU = ("ruda_silu_backward(T(g * up), gate)", "g * (gate * ruda_sigmoid(gate))")
_ACTIVATIONS = "sigmoid tanh relu silu gelu gelu_tanh"
KERNELS: dict[str, Callable[..., Any]] = {
    **{f"{name}_backward": bind for name in _ACTIVATIONS.split()},
    "swiglu": bind,
    "swiglu_backward": bind_pair,
}
