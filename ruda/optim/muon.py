"""Muon: momentum whose steps are orthogonal matrices, and AdamW for everything else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape
from ruda.ops.matmul import matmul
from ruda.ops.select import clip
from ruda.ops.statistics import vector_norm
from ruda.ops.update_formulas import overwrite
from ruda.optim.base import Group, State, counter, zeros_beside
from ruda.optim.composed import Composed, averaged, fit
from ruda.tensor.tensor import RudaTensor


class Muon(Composed):
    """``p = p * (1 - lr * weight_decay) - lr * c * orthogonal(momentum of g)`` for matrices.

    b = momentum * b + (1 - momentum) * g, and with ``nesterov`` the step follows
    (1 - momentum) * g + momentum * b. ``orthogonal`` brings all singular values near 1 by
    ``ns_steps`` Newton-Schulz steps X = a * X + (b * X Xᵀ + c * (X Xᵀ)²) X with
    ``ns_coefficients``, in the dtype of the update. For a matrix of shape (m, n), c is
    sqrt(max(1, m / n)) (``adjust_lr_fn`` "original" or None) or 0.2 * sqrt(max(m, n))
    ("match_rms_adamw"). Jordan et al., "Muon: an optimizer for hidden layers in neural networks"
    (2024).

    Groups with ``adamw=True`` (embeddings, heads, vectors) step as ``AdamW`` does, with ``betas``
    and ``adamw_eps``. Raises ``ShapeError`` for a parameter of another group that is no matrix.

    >>> layer = ruda.nn.Linear(4, 4)
    >>> rest = {"params": [layer.bias], "adamw": True, "lr": 1e-3}
    >>> opt = ruda.optim.Muon([{"params": [layer.weight]}, rest], lr=0.02)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        *,
        adamw: bool = False,
        betas: tuple[float, float] = (0.9, 0.999),
        adamw_eps: float = 1e-8,
        master: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
            "adamw": adamw,
            "betas": betas,
            "adamw_eps": adamw_eps,
        }
        super().__init__(params, defaults, master)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        self._check_betas(settings)
        self._refuse_below_zero(settings, "weight_decay", "momentum", "eps", "adamw_eps")
        steps, kind = settings["ns_steps"], settings["adjust_lr_fn"]
        self._refuse_unless(0 < steps < 100, "ns_steps", steps, "1 to 99")
        kinds = (None, "original", "match_rms_adamw")
        self._refuse_unless(kind in kinds, "adjust_lr_fn", kind, str(kinds))

    def _initial(self, master: RudaTensor, group: Group) -> State:
        if group["adamw"]:
            names = ("exp_avg", "exp_avg_sq")
            return {"step": counter(master), **{name: zeros_beside(master) for name in names}}
        if master.ndim != 2:
            hint = 'a group with "adamw": True'
            raise ShapeError("Muon", "a parameter is not a matrix", master.shape, hint=hint)
        return {"momentum_buffer": zeros_beside(master)}

    def _call(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> Any:
        if not group["adamw"]:
            return None
        targets = (p, state["exp_avg"], state["exp_avg_sq"], state["step"])
        decay = group["weight_decay"] or None
        settings = (group["lr"], *group["betas"], group["adamw_eps"], decay)
        return overwrite("adamw_step", targets, (p, grad, *targets[1:], *settings), True, False)

    def _next(
        self, p: RudaTensor, g: RudaTensor, state: State, group: Group
    ) -> tuple[RudaTensor, State]:
        rate, decay, momentum = group["lr"], group["weight_decay"], group["momentum"]
        buffer = averaged(state["momentum_buffer"], g, momentum)
        step = averaged(buffer, g, momentum) if group["nesterov"] else buffer
        step = orthogonalized(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        p = p * fit(1.0 - rate * decay, p) if decay else p
        p = p - step * fit(rate * _scale(p.shape, group["adjust_lr_fn"]), p)
        return p, {"momentum_buffer": buffer}


def _scale(shape: Shape, kind: str | None) -> float:
    m, n = shape
    if kind == "match_rms_adamw":
        return 0.2 * math.sqrt(max(m, n))
    return math.sqrt(max(1.0, m / n))


def orthogonalized(
    x: RudaTensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> RudaTensor:
    """The matrix ``x`` with its singular values moved near 1 by Newton-Schulz steps."""
    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    x = x.mT if tall else x
    x = x / clip(vector_norm(x), min=eps)
    for _ in range(steps):
        gram = matmul(x, x.mT)
        x = x * a + matmul(gram * b + matmul(gram, gram) * c, x)
    return x.mT if tall else x
