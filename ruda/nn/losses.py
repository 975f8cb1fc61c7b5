"""Losses as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.nn.module import Module
from ruda.ops.cross_entropy import check_reduction, cross_entropy
from ruda.ops.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from ruda.tensor.tensor import RudaTensor


class _Loss(Module):
    """Calls ``_function`` with input, target and the settings of the layer.

    Tensors among the settings are buffers, so that they move with the module.
    """

    _function: Callable[..., Any]
    _reductions: tuple[str, ...] = ("none", "mean", "sum")

    def __init__(self, reduction: str, /, **settings: Any) -> None:
        super().__init__()
        check_reduction(type(self).__name__, reduction, self._reductions)
        self.settings = {"reduction": reduction}
        self._tensors: tuple[str, ...] = ()
        for name, value in settings.items():
            if value is None or isinstance(value, RudaTensor):
                self.register_buffer(name, value)
                self._tensors += (name,)
            else:
                self.settings[name] = value

    def forward(self, input: RudaTensor, target: RudaTensor) -> RudaTensor:
        """The loss of ``input`` beside ``target``."""
        tensors = {name: getattr(self, name) for name in self._tensors}
        return type(self)._function(input, target, **tensors, **self.settings)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The settings."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


class CrossEntropyLoss(_Loss):
    """``-log softmax(logits)[target]`` over the classes along ``axis``.

    ``weight [V]`` scales each class, ``ignore_index`` leaves examples out, ``label_smoothing``
    spreads that part of the target over all classes, ``z_loss`` adds that multiple of the squared
    log-sum-exp.

    >>> loss = ruda.nn.CrossEntropyLoss()
    >>> round(loss(ruda.zeros((2, 4)), ruda.asarray([0, 3])).item(), 4)
    1.3863
    """

    _function = staticmethod(cross_entropy)

    def __init__(
        self,
        weight: RudaTensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        axis: int = -1,
        z_loss: float = 0.0,
    ) -> None:
        super().__init__(
            reduction,
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            axis=axis,
            z_loss=z_loss,
        )


class NLLLoss(_Loss):
    """``-input[target]`` along ``axis``, for log-probabilities."""

    _function = staticmethod(nll_loss)

    def __init__(
        self,
        weight: RudaTensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        axis: int = -1,
    ) -> None:
        super().__init__(reduction, weight=weight, ignore_index=ignore_index, axis=axis)


class MSELoss(_Loss):
    """``(input - target)²``."""

    _function = staticmethod(mse_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class L1Loss(_Loss):
    """``|input - target|``."""

    _function = staticmethod(l1_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class SmoothL1Loss(_Loss):
    """``MSELoss / (2 beta)`` within ``beta``, ``L1Loss - beta / 2`` beyond."""

    _function = staticmethod(smooth_l1_loss)

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction, beta=beta)


class HuberLoss(_Loss):
    """``MSELoss / 2`` within ``delta``, ``delta * (L1Loss - delta / 2)`` beyond."""

    _function = staticmethod(huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction, delta=delta)


class BCELoss(_Loss):
    """``-(target log(input) + (1 - target) log(1 - input))`` of probabilities."""

    _function = staticmethod(binary_cross_entropy)

    def __init__(self, weight: RudaTensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)


class BCEWithLogitsLoss(_Loss):
    """``BCELoss`` of ``sigmoid(input)``; ``pos_weight`` scales the part of ``target``."""

    _function = staticmethod(binary_cross_entropy_with_logits)

    def __init__(
        self,
        weight: RudaTensor | None = None,
        reduction: str = "mean",
        pos_weight: RudaTensor | None = None,
    ) -> None:
        super().__init__(reduction, weight=weight, pos_weight=pos_weight)


class KLDivLoss(_Loss):
    """``target (log(target) - input)``, with log-probabilities for ``input``."""

    _function = staticmethod(kl_div)
    _reductions = ("none", "mean", "sum", "batchmean")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction, log_target=log_target)
