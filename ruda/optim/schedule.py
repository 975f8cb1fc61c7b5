"""Learning rates as functions of the step, in operators, and the object that applies one.

A schedule's function gives the factor of the initial learning rate; its step is a number or a 0-d
tensor, so that a captured training step computes the rate on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ruda.core.dtypes import float64, int64
from ruda.core.errors import ArgumentError
from ruda.core.mode import no_grad, state_changed
from ruda.ops.cast import astype
from ruda.ops.compare import less
from ruda.ops.create import asarray, ones_like, zeros
from ruda.ops.movement import copy
from ruda.ops.select import clip, where
from ruda.ops.trig import cos
from ruda.optim.base import Optimizer, OptimizerStateError
from ruda.tensor.tensor import RudaTensor

Factor = Callable[..., RudaTensor]


def _position(step: Any) -> RudaTensor:
    """The step as a float64 0-d tensor."""
    tensor = step if isinstance(step, RudaTensor) else asarray(step, dtype=float64)
    return astype(tensor, float64, copy=False)


def constant(step: Any) -> RudaTensor:
    """The factor 1 at every step."""
    return ones_like(_position(step))


def linear_warmup(step: Any, warmup: int) -> RudaTensor:
    """``(step + 1) / warmup`` for the first ``warmup`` steps, then 1.

    >>> [linear_warmup(step, warmup=4).item() for step in (0, 3, 9)]
    [0.25, 1.0, 1.0]
    """
    return clip((_position(step) + 1.0) / max(warmup, 1), max=1.0)


def cosine(step: Any, total: int, warmup: int = 0, final: float = 0.0) -> RudaTensor:
    """Linear warm-up, then half a cosine from 1 to ``final``, which step ``total`` reaches.

    ``final + (1 - final) * (1 + cos(pi * t)) / 2`` with t from 0 at step ``warmup`` to 1.
    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017).

    >>> [round(cosine(step, total=10, final=0.1).item(), 3) for step in (0, 5, 10, 20)]
    [1.0, 0.55, 0.1, 0.1]
    """
    if not 0 <= warmup < total:
        raise ArgumentError("cosine", "the warm-up leaves no step", warmup, f"0 to {total - 1}")
    position = _position(step)
    share = clip((position - warmup) / (total - warmup), min=0.0, max=1.0)
    falling = final + (0.5 * (1.0 - final)) * (1.0 + cos(share * math.pi))
    return where(less(position, float(warmup)), linear_warmup(position, warmup), falling)


class Schedule:
    """Sets the learning rates of ``optimizer`` to ``factor(step, **settings)`` times the initial.

    The rates follow step 0 from the start; each ``step()`` goes on by one and assigns to the
    optimizer's rate tensors, reading nothing.

    >>> weight = ruda.tensor([1.0], requires_grad=True)
    >>> opt = ruda.optim.SGD([weight], lr=0.5)
    >>> schedule = Schedule(opt, linear_warmup, warmup=2)
    >>> before = opt.lr.item(); schedule.step(); before, opt.lr.item()
    (0.25, 0.5)
    """

    _ruda_version = 0

    def __init__(self, optimizer: Optimizer, factor: Factor, **settings: Any) -> None:
        self.optimizer = optimizer
        self.factor = factor
        self.settings = settings
        with no_grad():
            self.count = zeros((), dtype=int64, device=optimizer.lr.device)
            self.initial = [copy(group["lr"]) for group in optimizer.param_groups]
            self._apply()

    def __setattr__(self, name: str, value: Any) -> None:
        state_changed(self, name, value)
        super().__setattr__(name, value)

    def step(self) -> None:
        """Go on by one step and set the learning rates."""
        with no_grad():
            self.count.assign(self.count + 1)
            self._apply()

    def _apply(self) -> None:
        factor = self.factor(self.count, **self.settings)
        for rate, group in zip(self.initial, self.optimizer.param_groups, strict=True):
            group["lr"] = rate * factor.to(rate.device)

    def state_dict(self) -> dict[str, Any]:
        """The step and the initial rates, as tensors that share memory."""
        return {"step": self.count.detach(), "initial": [rate.detach() for rate in self.initial]}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``: step, initial rates, and the rates that follow."""
        if len(saved["initial"]) != len(self.initial):
            got, own = len(saved["initial"]), len(self.initial)
            raise OptimizerStateError("load_state_dict", "the groups do not match", got, own)
        with no_grad():
            self.count.assign(asarray(saved["step"], device=self.count.device))
            for rate, value in zip(self.initial, saved["initial"], strict=True):
                rate.assign(asarray(value, dtype=float64, device=rate.device))
            self._apply()
