"""One optimizer step from several micro-batches, each weighing what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ruda.core.dtypes import float32, float64
from ruda.core.errors import ArgumentError
from ruda.core.mode import no_grad
from ruda.ops.cast import astype
from ruda.ops.compare import not_equal
from ruda.ops.conversion import asarray
from ruda.ops.create import zeros
from ruda.ops.reduce import sum as sum_of
from ruda.optim.base import Optimizer
from ruda.optim.clip import clip_factor, grad_norm
from ruda.optim.scaler import GradScaler
from ruda.tensor.tensor import RudaTensor

_WEIGHTINGS = ("sample", "token")


class GradientAccumulator:
    """Steps ``optimizer`` after ``every`` micro-batches with the gradient of all of them as one.

    Each loss is a mean, over samples or over tokens (``weighting``); it enters with as many as its
    micro-batch has, and the sum is divided by the count of all, so unequal micro-batches give the
    gradient of the whole batch. ``max_norm`` clips that gradient, just before the step; ``scaler``
    scales losses and skips steps as it does alone.

    >>> weight = ruda.tensor([0.0], requires_grad=True)
    >>> acc = ruda.optim.GradientAccumulator(ruda.optim.SGD([weight], lr=1.0), every=2)
    >>> for batch in (ruda.ones((3, 1)), ruda.zeros((1, 1))):
    ...     acc.backward(ruda.mean(batch @ weight), batch)
    ...     done = acc.step()
    >>> done, weight.tolist()
    (True, [-0.75])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        every: int,
        weighting: str = "sample",
        *,
        max_norm: float | None = None,
        scaler: GradScaler | None = None,
        ignore_index: int = -100,
    ) -> None:
        if every < 1:
            raise ArgumentError("GradientAccumulator", "every out of range", every, "1 or more")
        if weighting not in _WEIGHTINGS:
            expected = " or ".join(_WEIGHTINGS)
            raise ArgumentError("GradientAccumulator", "no such weighting", weighting, expected)
        self.optimizer = optimizer
        self.every = every
        self.weighting = weighting
        self.max_norm = max_norm
        self.scaler = scaler
        self.ignore_index = ignore_index
        self.micro_batch = 0
        device = optimizer.lr.device
        self._total = zeros((), dtype=float64, device=device)
        self._norm = zeros((), dtype=float64, device=device)

    def __repr__(self) -> str:
        every = f"every={self.every}, weighting={self.weighting!r}"
        pending = f"micro_batch={self.micro_batch}"
        return f"GradientAccumulator({type(self.optimizer).__name__}, {every}, {pending})"

    @property
    def norm(self) -> RudaTensor:
        """The norm of the last gradient before clipping, a 0-d tensor; 0 without ``max_norm``."""
        return self._norm.detach()

    def backward(self, loss: RudaTensor, batch: Any) -> None:
        """Add the gradient of ``loss`` times the weight of ``batch``; works in a compiled step.

        ``batch`` is a tensor whose first axis counts samples; with ``weighting="token"`` the
        targets, of which those that are not ``ignore_index`` count; or the weight itself, a number
        or 0-d tensor.
        """
        weight = self._weight(batch)
        wide = astype(loss, float32) if loss.dtype.is_half else loss
        scaled = wide * astype(weight.to(loss.device), wide.dtype, copy=False)
        (scaled if self.scaler is None else self.scaler.scale(scaled)).backward()
        with no_grad():
            self._total.assign(self._total + weight.to(self._total.device))

    def _weight(self, batch: Any) -> RudaTensor:
        if not isinstance(batch, RudaTensor):
            return asarray(batch, dtype=float64, device=self._total.device)
        if batch.ndim == 0:
            return astype(batch, float64)
        if self.weighting == "sample":
            return asarray(batch.shape[0], dtype=float64, device=batch.device)
        if not batch.dtype.is_integer:
            hint = "the integer targets, or the number of tokens"
            raise ArgumentError("backward", "tokens cannot be counted", batch.spec, hint=hint)
        return astype(sum_of(not_equal(batch, self.ignore_index)), float64)

    def step(self, *, last: bool = False) -> bool:
        """Count a micro-batch; after ``every``, or the ``last``, update. Returns whether it did."""
        self.micro_batch += 1
        if self.micro_batch < self.every and not last:
            return False
        self.update()
        self.micro_batch = 0
        return True

    def update(self) -> None:
        """Step with the mean gradient and drop it; without counting, so that it can be compiled."""
        with no_grad():
            share = 1.0 / self._total
            if self.max_norm is not None:
                share = share * self._clipped(share)
            if self.scaler is None:
                self.optimizer.step(scale=share)
            else:
                self.scaler.step(self.optimizer, scale=share)
                self.scaler.update()
            self._total.assign(0.0)
        self.optimizer.zero_grad()

    def _clipped(self, share: RudaTensor) -> RudaTensor:
        groups = self.optimizer.param_groups
        norm = astype(grad_norm([p for group in groups for p in group["params"]]), float64) * share
        norm = norm if self.scaler is None else norm / self.scaler.get_scale()
        self._norm.assign(norm)
        return clip_factor(norm, self.max_norm)

    def state_dict(self) -> dict[str, Any]:
        """Micro-batches and weight so far; the pending gradients belong to the parameters."""
        return {"micro_batch": self.micro_batch, "total": self._total.detach()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on in the middle of a batch, with the gradients that the parameters have."""
        with no_grad():
            total = asarray(saved["total"], dtype=float64, device=self._total.device)
            self._total.assign(total)
        self.micro_batch = int(saved["micro_batch"])
