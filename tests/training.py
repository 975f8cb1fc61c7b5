"""The training step that tests of compiled steps have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ruda.nn.functional as F
from ruda import nn, optim


def step_of(model: nn.Module, opt: Any, bound: float | None = None) -> Callable[[Any, Any], Any]:
    """Inputs and classes to the loss of one step, gradients bounded by a norm if there is one."""

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if bound is not None:
            optim.clip_grad_norm_(model.parameters(), bound)
        opt.step()
        opt.zero_grad()
        return loss

    return step
