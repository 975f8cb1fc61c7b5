"""Adam, with weight decay beside the gradient or in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ruda.core.dtypes import float64
from ruda.ops.arith import maximum, pow, sqrt
from ruda.ops.cast import astype
from ruda.ops.compare import greater
from ruda.ops.select import clip
from ruda.ops.statistics import mean as mean_of
from ruda.ops.update_formulas import overwrite
from ruda.optim.base import Group, State, counter, zeros_beside
from ruda.optim.composed import Composed, averaged, fit
from ruda.tensor.tensor import RudaTensor


class _Adam(Composed):
    _decoupled: bool

    def __init__(
        self, params: Iterable[Any], lr: Any, settings: dict[str, Any], master: bool
    ) -> None:
        super().__init__(params, {"lr": lr, **settings}, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        self._check_betas(settings)
        self._refuse_below_zero(settings, "eps", "weight_decay")

    def _initial(self, master: RudaTensor, group: Group) -> State:
        names = ["exp_avg", "exp_avg_sq", *["max_exp_avg_sq"] * bool(group["amsgrad"])]
        return {"step": counter(master), **{name: zeros_beside(master) for name in names}}

    def _call(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> Any:
        if group["cautious"]:
            return None
        names = ["exp_avg", "exp_avg_sq"]
        row = "adamw_step"
        if "max_exp_avg_sq" in state:
            names, row = [*names, "max_exp_avg_sq"], "amsgrad_step"
        targets = (p, *(state[name] for name in names), state["step"])
        settings = (group["lr"], *group["betas"], group["eps"], group["weight_decay"] or None)
        values = (p, grad, *targets[1:], *settings)
        return overwrite(row, targets, values, self._decoupled, group["maximize"])

    def _next(
        self, p: RudaTensor, g: RudaTensor, state: State, group: Group
    ) -> tuple[RudaTensor, State]:
        """The formula of the rows with the mask of caution."""
        rate, decay, (b1, b2) = group["lr"], group["weight_decay"], group["betas"]
        if decay and self._decoupled:
            p = p * fit(1.0 - rate * decay, p)
        elif decay:
            g = g + p * decay
        t = astype(state["step"] + 1, float64)
        mean = averaged(state["exp_avg"], g, b1)
        square = averaged(state["exp_avg_sq"], g * g, b2)
        new = {"step": state["step"] + 1, "exp_avg": mean, "exp_avg_sq": square}
        if "max_exp_avg_sq" in state:
            square = new["max_exp_avg_sq"] = maximum(state["max_exp_avg_sq"], square)
        step = mean / (sqrt(square) / fit(sqrt(1.0 - pow(b2, t)), p) + group["eps"])
        step = step * _caution(mean, g)
        return p - step * fit(rate / (1.0 - pow(b1, t)), p), new


def _caution(mean: RudaTensor, g: RudaTensor) -> RudaTensor:
    """1 where the step goes down the gradient, else 0, over the share of ones."""
    agrees = astype(greater(mean * g, 0.0), g.dtype)
    return agrees / clip(mean_of(agrees), min=1e-3)


class AdamW(_Adam):
    """Adam with decoupled weight decay.

    With betas (b1, b2) and step t, from 1: m = b1 * m + (1 - b1) * g, v = b2 * v + (1 - b2) * g²,
    p = p * (1 - lr * weight_decay) - lr * m' / (sqrt(v') + eps), with m' = m / (1 - b1^t) and
    v' = v / (1 - b2^t), whose corrections are float64. g is the gradient, or its negative to
    ``maximize``. Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    ``amsgrad`` takes the largest v so far for v: Reddi et al., "On the convergence of Adam and
    beyond" (2018). ``cautious`` moves only elements where m * g > 0, all the further the fewer they
    are: their step is divided by their share, at least 1e-3. Liang et al., "Cautious optimizers:
    improving training with one line of code" (2024).

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
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        cautious: bool = False,
        master: bool = True,
    ) -> None:
        settings = {
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "cautious": cautious,
        }
        super().__init__(params, lr, settings, master)


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
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        cautious: bool = False,
        master: bool = True,
    ) -> None:
        settings = {
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "cautious": cautious,
        }
        super().__init__(params, lr, settings, master)
