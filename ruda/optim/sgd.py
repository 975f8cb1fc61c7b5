"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ruda.core.errors import ArgumentError
from ruda.ops.update_formulas import overwrite
from ruda.optim.base import Group, Optimizer, State, counter, zeros_beside
from ruda.tensor.batches import Overwrite
from ruda.tensor.tensor import RudaTensor


class SGD(Optimizer):
    """``p -= lr * g``, with momentum ``b = momentum * b + (1 - dampening) * g; p -= lr * b``.

    g is the gradient (its negative to ``maximize``) plus ``weight_decay * p``. The first step has
    b = g. ``nesterov`` follows g + momentum * b. Sutskever et al., "On the importance of
    initialization and momentum in deep learning" (2013).

    >>> weight = ruda.tensor([1.0, 2.0], requires_grad=True)
    >>> opt = ruda.optim.SGD([weight], lr=0.5)
    >>> ruda.sum(weight * weight).backward()
    >>> opt.step(); weight.tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        self._refuse_below_zero(settings, "momentum", "weight_decay")
        if settings["nesterov"] and not (settings["momentum"] > 0 and settings["dampening"] == 0):
            got = f"momentum {settings['momentum']}, dampening {settings['dampening']}"
            what, expected = "nesterov has no meaning here", "momentum > 0 and dampening 0"
            raise ArgumentError("SGD", what, got, expected)

    def _initial(self, master: RudaTensor, group: Group) -> State:
        if group["momentum"] == 0:
            return {}
        return {"step": counter(master), "momentum_buffer": zeros_beside(master)}

    def _call(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> Overwrite:
        rate, decay, uphill = group["lr"], group["weight_decay"] or None, group["maximize"]
        if "momentum_buffer" not in state:
            return overwrite("sgd_step", (p,), (p, grad, rate, decay), uphill)
        buffer, step = state["momentum_buffer"], state["step"]
        settings = (rate, group["momentum"], group["dampening"], decay)
        values = (p, grad, buffer, step, *settings)
        flags = (group["nesterov"], uphill)
        return overwrite("momentum_step", (p, buffer, step), values, *flags)
