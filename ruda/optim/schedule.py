"""The object that sets an optimizer's learning rates by a function of the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ruda.core.dtypes import float64, int64
from ruda.core.mode import no_grad, state_changed
from ruda.ops.conversion import asarray
from ruda.ops.create import zeros
from ruda.ops.movement import copy
from ruda.optim.base import Optimizer, OptimizerStateError
from ruda.optim.factors import Factor


class Schedule:
    """Sets the learning rates of ``optimizer`` to ``factor(step, **settings)`` times the initial.

    The rates follow step 0 from the start; each ``step()`` goes on by one and assigns to the
    optimizer's rate tensors, reading nothing.

    >>> weight = ruda.tensor([1.0], requires_grad=True)
    >>> opt = ruda.optim.SGD([weight], lr=0.5)
    >>> schedule = ruda.optim.Schedule(opt, ruda.optim.linear_warmup, warmup=2)
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

    def __repr__(self) -> str:
        settings = [f"{name}={_shown(value)}" for name, value in self.settings.items()]
        facts = ", ".join([type(self.optimizer).__name__, _shown(self.factor), *settings])
        return f"Schedule({facts})"

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


def _shown(value: Any) -> str:
    """A setting in few words: functions by name, however their arguments are bound."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    function = getattr(value, "func", value)
    return str(getattr(function, "__name__", value))
