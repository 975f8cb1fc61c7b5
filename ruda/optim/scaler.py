"""Loss scaling, which keeps small float16 gradients from vanishing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ruda.core.dtypes import float32, int64
from ruda.core.errors import ArgumentError, DTypeError
from ruda.core.mode import no_grad
from ruda.ops.arith import multiply
from ruda.ops.cast import astype
from ruda.ops.compare import greater_equal, isfinite, logical_and
from ruda.ops.conversion import asarray
from ruda.ops.create import zeros
from ruda.ops.joint_norm import joint_finite
from ruda.ops.movement import copy
from ruda.ops.select import where
from ruda.optim.base import Optimizer
from ruda.optim.clip import scale_all
from ruda.tensor.tensor import RudaTensor


class GradScaler:
    """Scales losses up and gradients down again, by a factor that adapts itself.

    ``scale(loss).backward()``, then ``step(optimizer)``, then ``update()``. A step with a gradient
    that is not finite changes nothing, moments and step counts included, and multiplies the scale
    by ``backoff_factor``; after ``growth_interval`` steps without one it is multiplied by
    ``growth_factor``. All of that is decided on the device: nothing is read, so it works in a
    compiled step. Micikevicius et al., "Mixed precision training" (2018).

    >>> weight = ruda.tensor([1.0], requires_grad=True)
    >>> opt, scaler = ruda.optim.SGD([weight], lr=0.5), ruda.optim.GradScaler()
    >>> scaler.scale(ruda.sum(weight * weight)).backward()
    >>> scaler.step(opt); scaler.update(); weight.tolist()
    [0.0]
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        *,
        device: Any = None,
    ) -> None:
        if not growth_factor > 1 > backoff_factor > 0:
            got = f"growth {growth_factor}, backoff {backoff_factor}"
            raise ArgumentError("GradScaler", "factors out of range", got, "growth > 1 > backoff")
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        self._scale = asarray(init_scale, dtype=float32, device=device)
        self._good = zeros((), dtype=int64, device=device)
        # Whether all gradients since the last update were finite.
        self._finite = asarray(True, device=device)
        self._unscaled: list[Optimizer] = []

    def __repr__(self) -> str:
        factors = f"growth_factor={self.growth_factor}, backoff_factor={self.backoff_factor}"
        return f"GradScaler({factors}, growth_interval={self.growth_interval})"

    def get_scale(self) -> RudaTensor:
        """The present factor, a 0-d float32 tensor."""
        return copy(self._scale)

    def scale(self, value: RudaTensor) -> RudaTensor:
        """``value`` times the factor, in the dtype of ``value``: a loss, or a bound for a norm.

        float16 holds factors up to 65504 only: a half loss is computed in float32 first.
        """
        wide = astype(value, float32) if value.dtype.is_half else value
        return multiply(wide, astype(self._scale.to(value.device), wide.dtype, copy=False))

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of ``optimizer`` by the factor before ``step``, to clip them.

        Raises ``DTypeError`` for half gradients, which would lose what scaling has saved, and
        ``ArgumentError`` the second time since ``update``.
        """
        if any(optimizer is done for done in self._unscaled):
            raise ArgumentError("unscale_", "the gradients are unscaled already")
        with no_grad():
            grads = _gradients(optimizer)
            for g in grads:
                if g.dtype.is_half:
                    hint = "clip_grad_norm_(parameters, scaler.scale(max_norm)), without unscale_"
                    raise DTypeError("unscale_", "a half gradient would round", g.spec, hint=hint)
            self._look_at(grads)
            inverse = 1.0 / self._scale
            for client, some in _by(grads, lambda g: g.spec.client):
                scale_all(some, inverse.to(client.device))
        self._unscaled.append(optimizer)

    def _look_at(self, grads: Iterable[RudaTensor]) -> None:
        finite = self._finite
        for _, some in _by(grads, lambda g: (g.spec.client, g.spec.dtype)):
            finite = logical_and(finite, joint_finite(some).to(finite.device))
        self._finite.assign(finite)

    def step(self, optimizer: Optimizer, *, scale: Any = None) -> None:
        """Step with unscaled gradients, if all that were seen since ``update`` are finite.

        They are taken times ``scale`` besides, a number or 0-d tensor.
        """
        if any(optimizer is done for done in self._unscaled):
            optimizer.step(where=self._finite, scale=scale)
            return
        with no_grad():
            self._look_at(_gradients(optimizer))
            inverse = 1.0 / self._scale
            inverse = inverse if scale is None else inverse * scale
            optimizer.step(where=self._finite, scale=inverse)

    def update(self) -> None:
        """Adapt the factor to what the gradients have shown; once after all steps."""
        with no_grad():
            good = self._good + 1
            grows = greater_equal(good, self.growth_interval)
            grown = self._scale * self.growth_factor
            # A factor that has grown beyond float32 would stay there.
            grown = where(logical_and(grows, isfinite(grown)), grown, self._scale)
            scale = where(self._finite, grown, self._scale * self.backoff_factor)
            self._good.assign(where(logical_and(self._finite, ~grows), good, 0))
            self._scale.assign(scale)
            self._finite.assign(True)
        self._unscaled.clear()

    def state_dict(self) -> dict[str, Any]:
        """Factor and count of good steps as tensors that share memory, and the settings."""
        return {
            "scale": self._scale.detach(),
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self._good.detach(),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``, PyTorch's included."""
        with no_grad():
            self._scale.assign(asarray(saved["scale"], dtype=float32, device=self._scale.device))
            self._good.assign(asarray(saved["_growth_tracker"], device=self._good.device))
        for name in ("growth_factor", "backoff_factor", "growth_interval"):
            setattr(self, name, saved[name])


def _gradients(optimizer: Optimizer) -> list[RudaTensor]:
    params = (p for group in optimizer.param_groups for p in group["params"])
    return [g for g in (p.grad for p in params) if g is not None]


def _by(grads: Iterable[RudaTensor], key: Callable[[RudaTensor], Any]) -> Iterable[Any]:
    """Pairs of what ``key`` gives and the gradients that it is given for."""
    found: dict[Any, list[RudaTensor]] = {}
    for g in grads:
        found.setdefault(key(g), []).append(g)
    return found.items()
