"""Optimizers that divide a gradient by the size of those before: RMSprop, Adagrad, Adadelta."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ruda.ops.arith import sqrt
from ruda.ops.create import full
from ruda.optim.base import Group, Optimizer, State, counter, zeros_beside
from ruda.optim.composed import Composed, averaged, call_of_row, fit
from ruda.tensor.batches import Overwrite
from ruda.tensor.tensor import RudaTensor


class RMSprop(Composed):
    """``p -= lr * g / (sqrt(v) + eps)`` with v = alpha * v + (1 - alpha) * g².

    g is the gradient (its negative to ``maximize``) plus ``weight_decay * p``. ``centered`` takes
    v - a² for v, a the average of g. With ``momentum``: b = momentum * b + g / (sqrt(v) + eps) and
    p -= lr * b. Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5 (2012).

    >>> weight = ruda.tensor([1.0], requires_grad=True)
    >>> opt = ruda.optim.RMSprop([weight], lr=0.1, alpha=0.0)
    >>> ruda.sum(weight * weight).backward()
    >>> opt.step(); ruda.round(weight * 10).tolist()
    [9.0]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        self._refuse_below_zero(settings, "alpha", "eps", "weight_decay", "momentum")

    def _initial(self, master: RudaTensor, group: Group) -> State:
        names = ["square_avg"]
        names += ["grad_avg"] * bool(group["centered"])
        names += ["momentum_buffer"] * (group["momentum"] > 0)
        return {"step": counter(master), **{name: zeros_beside(master) for name in names}}

    def _call(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> Any:
        if "grad_avg" in state or "momentum_buffer" in state:
            return None
        settings = (group["alpha"], group["eps"])
        return call_of_row("rmsprop_step", p, grad, state, ["square_avg"], group, *settings)

    def _next(
        self, p: RudaTensor, g: RudaTensor, state: State, group: Group
    ) -> tuple[RudaTensor, State]:
        """The formula of the row, with spread and momentum."""
        g = g + p * group["weight_decay"] if group["weight_decay"] else g
        alpha, spread = group["alpha"], averaged(state["square_avg"], g * g, group["alpha"])
        new = {"step": state["step"] + 1, "square_avg": spread}
        if "grad_avg" in state:
            new["grad_avg"] = averaged(state["grad_avg"], g, alpha)
            spread = spread - new["grad_avg"] * new["grad_avg"]
        step = g / (sqrt(spread) + group["eps"])
        if "momentum_buffer" in state:
            step = new["momentum_buffer"] = state["momentum_buffer"] * group["momentum"] + step
        return p - step * fit(group["lr"], p), new


class Adagrad(Optimizer):
    """``p -= r * g / (sqrt(s) + eps)`` with s += g² and r = lr / (1 + (t - 1) * lr_decay).

    t counts steps from 1, s begins at ``initial_accumulator_value``, and g is the gradient (its
    negative to ``maximize``) plus ``weight_decay * p``. Duchi et al., "Adaptive subgradient methods
    for online learning and stochastic optimization" (2011).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
            "maximize": maximize,
        }
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        names = ("lr_decay", "weight_decay", "initial_accumulator_value", "eps")
        self._refuse_below_zero(settings, *names)

    def _initial(self, master: RudaTensor, group: Group) -> State:
        value = group["initial_accumulator_value"]
        total = full(master.shape, value, dtype=master.dtype, device=master.device)
        return {"step": counter(master), "sum": total}

    def _call(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> Overwrite:
        settings = (group["lr_decay"], group["eps"])
        return call_of_row("adagrad_step", p, grad, state, ["sum"], group, *settings)


class Adadelta(Optimizer):
    """``p -= lr * d`` with d = g * sqrt(u + eps) / sqrt(v + eps).

    v = rho * v + (1 - rho) * g² before, u = rho * u + (1 - rho) * d² after that; g is the gradient
    (its negative to ``maximize``) plus ``weight_decay * p``. Zeiler, "ADADELTA: an adaptive
    learning rate method" (2012).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        rho = settings["rho"]
        self._refuse_unless(0 <= rho <= 1, "rho", rho, "0 <= rho <= 1")
        self._refuse_below_zero(settings, "eps", "weight_decay")

    def _initial(self, master: RudaTensor, group: Group) -> State:
        names = ("square_avg", "acc_delta")
        return {"step": counter(master), **{name: zeros_beside(master) for name in names}}

    def _call(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> Overwrite:
        settings, names = (group["rho"], group["eps"]), ["square_avg", "acc_delta"]
        return call_of_row("adadelta_step", p, grad, state, names, group, *settings)
