"""Optimizers whose step is written in operators, for formulas that a row of their own is not worth.

What is computed from scalars alone is float64, as in the rows.
"""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import compute_of
from ruda.ops.cast import astype
from ruda.optim.base import Group, Optimizer, State
from ruda.tensor.tensor import RudaTensor


class Composed(Optimizer):
    """A base whose subclasses have ``_next``; half parameters without master compute in float32."""

    def _next(
        self, p: RudaTensor, g: RudaTensor, state: State, group: Group
    ) -> tuple[RudaTensor, State]:
        """The parameter and the state after a step down ``g``."""
        raise NotImplementedError

    def _updated(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> None:
        wide = compute_of(p.dtype)
        held = {name: _widened(value) for name, value in state.items()}
        g = astype(grad, wide, copy=False)
        uphill = group.get("maximize", False)
        new_p, new = self._next(_widened(p), -g if uphill else g, held, group)
        for target, value in ((p, new_p), *((state[name], value) for name, value in new.items())):
            target.assign(astype(value, target.dtype, copy=False))


def _widened(tensor: RudaTensor) -> RudaTensor:
    return astype(tensor, compute_of(tensor.dtype), copy=False) if tensor.dtype.is_half else tensor


def fit(value: Any, like: RudaTensor) -> Any:
    """A float64 0-d tensor in the dtype of ``like``; a number, which gives way to it, as it is."""
    return astype(value, like.dtype, copy=False) if isinstance(value, RudaTensor) else value


def averaged(mean: RudaTensor, value: RudaTensor, beta: Any) -> RudaTensor:
    """``beta * mean + (1 - beta) * value``."""
    return mean + (value - mean) * fit(1.0 - beta, mean)


def decayed(p: RudaTensor, g: RudaTensor, group: Group) -> tuple[RudaTensor, RudaTensor]:
    """Parameter and gradient after weight decay: ``decoupled_weight_decay`` or in the gradient."""
    decay = group["weight_decay"]
    if not decay:
        return p, g
    if group.get("decoupled_weight_decay", False):
        return p * fit(1.0 - group["lr"] * decay, p), g
    return p, g + p * decay
