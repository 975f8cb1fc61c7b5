"""Two ways to write a step: by a row of the operator table, or in operators.

What is computed from scalars alone is float64 in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.core.dtypes import compute_of
from ruda.ops.cast import astype
from ruda.ops.update_formulas import overwrite
from ruda.optim.base import Group, Optimizer, State
from ruda.tensor.batches import Overwrite
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


def call_of_row(
    row: str,
    p: RudaTensor,
    grad: RudaTensor,
    state: State,
    names: Sequence[str],
    group: Group,
    *settings: Any,
) -> Overwrite:
    """The call of ``row`` on ``p``, the state of these ``names`` and the step count."""
    targets = (p, *(state[name] for name in names), state["step"])
    values = (p, grad, *targets[1:], group["lr"], *settings, group["weight_decay"] or None)
    decoupled = group.get("decoupled_weight_decay", False)
    return overwrite(row, targets, values, decoupled, group["maximize"])


def _widened(tensor: RudaTensor) -> RudaTensor:
    return astype(tensor, compute_of(tensor.dtype), copy=False) if tensor.dtype.is_half else tensor


def fit(value: Any, like: RudaTensor) -> Any:
    """A float64 0-d tensor in the dtype of ``like``; a number, which gives way to it, as it is."""
    return astype(value, like.dtype, copy=False) if isinstance(value, RudaTensor) else value


def averaged(mean: RudaTensor, value: RudaTensor, beta: Any) -> RudaTensor:
    """``beta * mean + (1 - beta) * value``."""
    return mean + (value - mean) * fit(1.0 - beta, mean)
