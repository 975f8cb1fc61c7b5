"""Losses of predictions beside targets, as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.nn.module import Module
from ruda.ops.cross_entropy import check_reduction, cross_entropy
from ruda.ops.ctc import ctc_loss
from ruda.ops.likelihood import (
    dice_loss,
    gaussian_nll_loss,
    log_cosh_loss,
    lp_loss,
    msle_loss,
    poisson_nll_loss,
    quantile_loss,
    sigmoid_focal_loss,
)
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
from ruda.ops.transducer import rnnt_loss
from ruda.tensor.tensor import RudaTensor


class Loss(Module):
    """Calls ``_function`` with what it is given and the settings of the layer.

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

    def forward(self, *inputs: Any) -> RudaTensor:
        """The loss of a prediction beside a target, or of what else the function takes."""
        tensors = {name: getattr(self, name) for name in self._tensors}
        return type(self)._function(*inputs, **tensors, **self.settings)

    def extra_repr(self) -> str:
        """The settings."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


class CrossEntropyLoss(Loss):
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


class NLLLoss(Loss):
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


class MSELoss(Loss):
    """``(input - target)²``."""

    _function = staticmethod(mse_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class L1Loss(Loss):
    """``|input - target|``."""

    _function = staticmethod(l1_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class SmoothL1Loss(Loss):
    """``MSELoss / (2 beta)`` within ``beta``, ``L1Loss - beta / 2`` beyond."""

    _function = staticmethod(smooth_l1_loss)

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction, beta=beta)


class HuberLoss(Loss):
    """``MSELoss / 2`` within ``delta``, ``delta * (L1Loss - delta / 2)`` beyond."""

    _function = staticmethod(huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction, delta=delta)


class BCELoss(Loss):
    """``-(target log(input) + (1 - target) log(1 - input))`` of probabilities."""

    _function = staticmethod(binary_cross_entropy)

    def __init__(self, weight: RudaTensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)


class BCEWithLogitsLoss(Loss):
    """``BCELoss`` of ``sigmoid(input)``; ``pos_weight`` scales the part of ``target``."""

    _function = staticmethod(binary_cross_entropy_with_logits)

    def __init__(
        self,
        weight: RudaTensor | None = None,
        reduction: str = "mean",
        pos_weight: RudaTensor | None = None,
    ) -> None:
        super().__init__(reduction, weight=weight, pos_weight=pos_weight)


class KLDivLoss(Loss):
    """``target (log(target) - input)``, with log-probabilities for ``input``."""

    _function = staticmethod(kl_div)
    _reductions = ("none", "mean", "sum", "batchmean")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction, log_target=log_target)


class PoissonNLLLoss(Loss):
    """``exp(input) - target input``, or of rates themselves without ``log_input``."""

    _function = staticmethod(poisson_nll_loss)

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        *,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, log_input=log_input, full=full, eps=eps)


class GaussianNLLLoss(Loss):
    """``(log(var) + (input - target)² / var) / 2``; called with input, target and var."""

    _function = staticmethod(gaussian_nll_loss)

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction, full=full, eps=eps)


class SigmoidFocalLoss(Loss):
    """``-alpha_t (1 - p_t)^gamma log(p_t)`` with ``p = sigmoid(input)``."""

    _function = staticmethod(sigmoid_focal_loss)

    def __init__(self, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "mean") -> None:
        super().__init__(reduction, alpha=alpha, gamma=gamma)


class DiceLoss(Loss):
    """``1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth)`` of each example."""

    _function = staticmethod(dice_loss)

    def __init__(self, smooth: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction, smooth=smooth)


class LogCoshLoss(Loss):
    """``log(cosh(input - target))``."""

    _function = staticmethod(log_cosh_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class MSLELoss(Loss):
    """``(log(1 + input) - log(1 + target))²``."""

    _function = staticmethod(msle_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class LpLoss(Loss):
    """``|input - target|^p``."""

    _function = staticmethod(lp_loss)

    def __init__(self, p: float = 2.0, reduction: str = "mean") -> None:
        super().__init__(reduction, p=p)


class QuantileLoss(Loss):
    """``max(q d, (q - 1) d)`` with ``d = target - input``."""

    _function = staticmethod(quantile_loss)

    def __init__(self, q: float = 0.5, reduction: str = "mean") -> None:
        super().__init__(reduction, q=q)


class CTCLoss(Loss):
    """``-log`` of the probability that frames spell a sequence; called as ``ctc_loss``.

    >>> frames = ruda.full((3, 1, 2), ruda.log(ruda.asarray(0.5)).item())
    >>> round(ruda.nn.CTCLoss()(frames, ruda.asarray([[1]]), [3], [1]).item(), 4)
    0.2877
    """

    _function = staticmethod(ctc_loss)

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction, blank=blank, zero_infinity=zero_infinity)


class RNNTLoss(Loss):
    """``-log`` of the probability that a transducer spells a sequence; called as ``rnnt_loss``."""

    _function = staticmethod(rnnt_loss)

    def __init__(self, blank: int = -1, reduction: str = "mean") -> None:
        super().__init__(reduction, blank=blank)
