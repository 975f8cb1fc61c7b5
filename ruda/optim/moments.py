"""Relatives of Adam with other moments: NAdam, RAdam, Adan, Lion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ruda.core.dtypes import float64
from ruda.ops.arith import pow
from ruda.ops.cast import astype
from ruda.ops.create import ones
from ruda.ops.update_formulas import overwrite
from ruda.optim.base import Group, Optimizer, State, counter, zeros_beside
from ruda.optim.composed import call_of_row
from ruda.tensor.batches import Overwrite
from ruda.tensor.tensor import RudaTensor

_MOMENTS = ("exp_avg", "exp_avg_sq")


class NAdam(Optimizer):
    """Adam that looks ahead as Nesterov does.

    With step t from 1, m_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2) and M_t the product of all
    up to m_t: a = beta1 * a + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g² and
    p -= lr * ((1 - m_t) / (1 - M_t) * g + m_(t+1) / (1 - M_(t+1)) * a) / (sqrt(v') + eps), where
    v' = v / (1 - beta2^t). Weight decay adds weight_decay * p to g, or, with
    ``decoupled_weight_decay``, takes lr * weight_decay * p off p. Dozat, "Incorporating Nesterov
    momentum into Adam" (2016).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        self._check_betas(settings)
        self._refuse_below_zero(settings, "eps", "weight_decay", "momentum_decay")

    def _initial(self, master: RudaTensor, group: Group) -> State:
        return {
            "step": counter(master),
            "mu_product": ones((), dtype=float64, device=master.device),
            "exp_avg": zeros_beside(master),
            "exp_avg_sq": zeros_beside(master),
        }

    def _updated(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> None:
        beta, fading = group["betas"][0], 0.96 ** group["momentum_decay"]
        now = beta * (1.0 - 0.5 * pow(fading, astype(state["step"] + 1, float64)))
        state["mu_product"].assign(state["mu_product"] * now)
        settings = (state["mu_product"], *group["betas"], group["eps"], group["momentum_decay"])
        call_of_row("nadam_step", p, grad, state, _MOMENTS, group, *settings).run()


class RAdam(Optimizer):
    """Adam without its second moment until that can be trusted.

    With step t from 1: m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g²,
    R = 2 / (1 - beta2) - 1 and r = R - 2 * t * beta2^t / (1 - beta2^t). p -= lr * m' * c, where
    m' = m / (1 - beta1^t), and c is 1 as long as r <= 5, then
    sqrt((r - 4) * (r - 2) * R / ((R - 4) * (R - 2) * r) * (1 - beta2^t)) / (sqrt(v) + eps). Weight
    decay is that of ``NAdam``. Liu et al., "On the variance of the adaptive learning rate and
    beyond" (2020).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        self._check_betas(settings)
        self._refuse_below_zero(settings, "eps", "weight_decay")

    def _initial(self, master: RudaTensor, group: Group) -> State:
        return {"step": counter(master), **{name: zeros_beside(master) for name in _MOMENTS}}

    def _call(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> Overwrite:
        settings = (*group["betas"], group["eps"])
        return call_of_row("radam_step", p, grad, state, _MOMENTS, group, *settings)


class Adan(Optimizer):
    """Adaptive Nesterov momentum: a step along the gradient and along its change.

    With g the gradient and d its change since the step before, 0 in the first:
    m = b1 * m + (1 - b1) * g, v = b2 * v + (1 - b2) * d, n = b3 * n + (1 - b3) * (g + b2 * d)² and
    p -= lr * (m' + b2 * v') / (sqrt(n') + eps), where x' = x / (1 - b^t). Weight decay divides p by
    1 + lr * weight_decay after that, or, with ``no_prox``, multiplies it by 1 - lr * weight_decay
    before. Xie et al., "Adan: adaptive Nesterov momentum algorithm for faster optimizing deep
    models" (2022), with the defaults of its authors.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float, float] = (0.98, 0.92, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        no_prox: bool = False,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "no_prox": no_prox,
            "maximize": maximize,
        }
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        self._check_betas(settings, 3)
        self._refuse_below_zero(settings, "eps", "weight_decay")

    def _initial(self, master: RudaTensor, group: Group) -> State:
        names = ("exp_avg", "exp_avg_diff", "exp_avg_sq", "previous_grad")
        return {**{name: zeros_beside(master) for name in names}, "step": counter(master)}

    def _call(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> Overwrite:
        names = ("exp_avg", "exp_avg_diff", "exp_avg_sq", "previous_grad", "step")
        held = [state[name] for name in names]
        settings = (group["lr"], *group["betas"], group["eps"], group["weight_decay"] or None)
        flags = (not group["no_prox"], group["maximize"])
        return overwrite("adan_step", (p, *held), (p, grad, *held, *settings), *flags)


class Lion(Optimizer):
    """``p -= lr * sign(beta1 * m + (1 - beta1) * g)``, then m = beta2 * m + (1 - beta2) * g.

    Weight decay is decoupled: p *= 1 - lr * weight_decay before. All elements move by lr, so its
    rate is 3 to 10 times smaller than that of AdamW. Chen et al., "Symbolic discovery of
    optimization algorithms" (2023).

    >>> weight = ruda.tensor([1.0, -3.0], requires_grad=True)
    >>> opt = ruda.optim.Lion([weight], lr=0.5)
    >>> ruda.sum(weight * weight).backward()
    >>> opt.step(); weight.tolist()
    [0.5, -2.5]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        master: bool = True,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        self._check_betas(settings)
        self._refuse_below_zero(settings, "weight_decay")

    def _initial(self, master: RudaTensor, group: Group) -> State:
        return {"exp_avg": zeros_beside(master)}

    def _call(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> Overwrite:
        mean, decay = state["exp_avg"], group["weight_decay"] or None
        values = (p, grad, mean, group["lr"], *group["betas"], decay)
        return overwrite("lion_step", (p, mean), values, group["maximize"])
