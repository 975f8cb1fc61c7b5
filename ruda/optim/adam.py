"""Adam, with weight decay beside the gradient or in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ruda.ops.update import overwrite
from ruda.optim.base import Group, Optimizer, State, counter, zeros_beside
from ruda.tensor.tensor import RudaTensor


class _Adam(Optimizer):
    _decoupled: bool

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        maximize: bool,
        master: bool,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        for beta in settings["betas"]:
            self._refuse_unless(0 <= beta < 1, "betas", settings["betas"], "0 <= beta < 1")
        for name in ("eps", "weight_decay"):
            self._refuse_unless(settings[name] >= 0, name, settings[name], "0 or more")

    def _initial(self, master: RudaTensor, group: Group) -> State:
        return {
            "step": counter(master),
            "exp_avg": zeros_beside(master),
            "exp_avg_sq": zeros_beside(master),
        }

    def _updated(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> None:
        targets = (p, state["exp_avg"], state["exp_avg_sq"], state["step"])
        settings = (group["lr"], *group["betas"], group["eps"], group["weight_decay"] or None)
        values = (p, grad, *targets[1:], *settings)
        overwrite("adamw_step", targets, values, self._decoupled, group["maximize"])


class AdamW(_Adam):
    """Adam with decoupled weight decay.

    With betas (b1, b2) and step t, from 1: m = b1 * m + (1 - b1) * g, v = b2 * v + (1 - b2) * g²,
    p = p * (1 - lr * weight_decay) - lr * m' / (sqrt(v') + eps), with m' = m / (1 - b1^t) and
    v' = v / (1 - b2^t), whose corrections are float64. g is the gradient, or its negative to
    ``maximize``. Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    >>> weight = ruda.tensor([1.0, -1.0], requires_grad=True)
    >>> opt = ruda.optim.AdamW([weight], lr=0.1, weight_decay=0.0)
    >>> ruda.sum(weight * weight).backward()
    >>> opt.step(); ruda.round(weight * 10).tolist()
    [9.0, -9.0]
    """

    _decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, maximize, master)


class Adam(_Adam):
    """``AdamW`` with weight decay in the gradient: g + weight_decay * p, none by default.

    Kingma and Ba, "Adam: a method for stochastic optimization" (2015).
    """

    _decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, maximize, master)
