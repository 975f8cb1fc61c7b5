"""Layers that bring activations to zero mean and unit variance, or to unit mean square."""

from __future__ import annotations

import operator
from typing import Any

from ruda.core.dtypes import finfo, int64
from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.mode import no_grad
from ruda.core.shapes import Shape
from ruda.nn import init
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.ops.create import empty, ones, zeros
from ruda.ops.local_norm import local_response_norm
from ruda.ops.movement import expand_dims, reshape, squeeze
from ruda.ops.norm import layer_norm, rms_norm
from ruda.ops.standard_norm import batch_norm, counted_batch_norm, group_norm, instance_norm
from ruda.tensor.tensor import RudaTensor


class _Affine(Module):
    """The optional scale and shift at the end of a norm."""

    weight: RudaTensor | None
    bias: RudaTensor | None

    def _set_affine(self, shape: Shape, weight: bool, bias: bool, where: dict[str, Any]) -> None:
        """Register ``weight`` of ones and ``bias`` of zeros, each None unless wanted."""
        self.register_parameter("weight", Parameter(empty(shape, **where)) if weight else None)
        self.register_parameter("bias", Parameter(empty(shape, **where)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the scale to one and the shift to zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


def _as_shape(size: Any) -> Shape:
    return tuple(size) if isinstance(size, tuple | list) else (operator.index(size),)


def _check_end(module: Module, x: RudaTensor, shape: Shape) -> int:
    """How many axes ``shape`` has, which must be the last ones of ``x``."""
    if x.shape[-len(shape) :] != shape or not shape:
        raise ShapeError(type(module).__name__, "the last axes do not fit", x.shape, shape)
    return len(shape)


class LayerNorm(_Affine):
    """Each sample brought to zero mean and unit variance over its last axes, then scaled, shifted.

    ``normalized_shape`` are the lengths of those axes (an integer: the last one); ``weight`` and
    ``bias`` have that shape. Ba et al., "Layer Normalization" (2016).

    >>> ruda.nn.LayerNorm(2)(ruda.asarray([[1.0, 3.0]])).tolist()
    [[-0.99999..., 0.99999...]]
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        where = {"device": device, "dtype": dtype}
        affine = elementwise_affine
        self._set_affine(self.normalized_shape, affine, affine and bias, where)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [*, *normalized_shape]``, normalised."""
        count = _check_end(self, input, self.normalized_shape)
        axis = -1 if count == 1 else tuple(range(-count, 0))
        return layer_norm(input, self.weight, self.bias, axis=axis, eps=self.eps)

    def extra_repr(self) -> str:
        """The normalised shape and eps."""
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(_Affine):
    """Each sample divided by its root mean square over its last axes, then scaled by ``weight``.

    ``eps`` is the machine epsilon of the input's dtype unless given. Zhang and Sennrich, "Root Mean
    Square Layer Normalization" (2019).

    >>> ruda.nn.RMSNorm(2, eps=1e-6)(ruda.asarray([[3.0, 3.0]])).shape
    (1, 2)
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        where = {"device": device, "dtype": dtype}
        self._set_affine(self.normalized_shape, elementwise_affine, False, where)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [*, *normalized_shape]``, normalised."""
        count = _check_end(self, input, self.normalized_shape)
        eps = finfo(input.dtype).eps if self.eps is None else self.eps
        if count == 1:
            return rms_norm(input, self.weight, eps=eps)
        rows = reshape(input, (*input.shape[: input.ndim - count], -1))
        weight = None if self.weight is None else reshape(self.weight, (-1,))
        return reshape(rms_norm(rows, weight, eps=eps), input.shape)

    def extra_repr(self) -> str:
        """The normalised shape and eps."""
        return f"{self.normalized_shape}, eps={self.eps}"


class GroupNorm(_Affine):
    """Each group of channels of ``[N, C, *]`` normalised per sample, then scaled per channel.

    Wu and He, "Group Normalization" (2018). Raises ``ArgumentError`` unless ``num_groups`` divides
    ``num_channels``.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            got = f"{num_channels} channels in {num_groups} groups"
            raise ArgumentError("GroupNorm", "channels do not divide", got)
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self._set_affine((num_channels,), affine, affine, {"device": device, "dtype": dtype})

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [N, C, *]``, normalised."""
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Groups, channels and eps."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}"


class _BatchNorm(_Affine):
    """Each channel of ``[N, C, *]`` normalised over the batch, then scaled and shifted."""

    ranks: Shape = ()
    running_mean: RudaTensor | None
    running_var: RudaTensor | None
    num_batches_tracked: RudaTensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        layout: str = "nchw",
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.layout = layout
        where = {"device": device, "dtype": dtype}
        self._set_affine((num_features,), affine, affine, where)
        tracks = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, **where) if tracks else None)
        self.register_buffer("running_var", ones(num_features, **where) if tracks else None)
        count = zeros((), dtype=int64, device=device) if tracks else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Forget the batches seen so far."""
        with no_grad():
            if self.running_mean is not None:
                self.running_mean.assign(0)
            if self.running_var is not None:
                self.running_var.assign(1)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.assign(0)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [N, C, *]``, normalised by its own statistics or by the running ones."""
        if input.ndim not in self.ranks:
            expected = " or ".join(f"{rank} axes" for rank in self.ranks)
            raise ShapeError(type(self).__name__, "wrong rank", input.shape, expected)
        mean, var, count = self.running_mean, self.running_var, self.num_batches_tracked
        affine, rest = (self.weight, self.bias), (self.eps, self.layout)
        if self.training and mean is not None and var is not None and count is not None:
            return counted_batch_norm(input, (mean, var, count), *affine, self.momentum, *rest)
        share = 0.0 if self.momentum is None else self.momentum
        training = self.training or mean is None
        return batch_norm(input, mean, var, *affine, training, share, self.eps, layout=self.layout)

    def extra_repr(self) -> str:
        """Features, eps and momentum, and a layout that is not nchw."""
        last = "" if self.layout == "nchw" else f", layout={self.layout!r}"
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}{last}"


class BatchNorm1d(_BatchNorm):
    """Channels of ``[N, C]`` or ``[N, C, L]``; see ``BatchNorm2d``."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Each channel of ``[N, C, H, W]`` normalised over the batch, then scaled and shifted.

    While training the statistics are those of the batch, and the buffers ``running_mean`` and
    ``running_var`` (unbiased) move towards them by ``momentum``; None weighs all batches equally.
    In ``eval`` the buffers are used. ``layout="nhwc"`` has the channels last. Ioffe and Szegedy,
    "Batch Normalization" (2015).

    >>> layer = ruda.nn.BatchNorm2d(3)
    >>> layer(ruda.ones((2, 3, 4, 4))).shape, layer.num_batches_tracked.item()
    ((2, 3, 4, 4), 1)
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Channels of ``[N, C, D, H, W]``; see ``BatchNorm2d``."""

    ranks = (5,)


class _InstanceNorm(_BatchNorm):
    """Each channel of each sample normalised over its spatial axes."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [N, C, *S]`` or ``[C, *S]``, normalised."""
        if input.ndim not in self.ranks:
            expected = " or ".join(f"{rank} axes" for rank in self.ranks)
            raise ShapeError(type(self).__name__, "wrong rank", input.shape, expected)
        batched = input if input.ndim == self.ranks[1] else expand_dims(input, 0)
        out = instance_norm(
            batched,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            self.momentum or 0.0,
            self.eps,
        )
        return out if batched is input else squeeze(out, 0)


class InstanceNorm1d(_InstanceNorm):
    """Channels of ``[N, C, L]`` or ``[C, L]``; see ``InstanceNorm2d``."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each sample of ``[N, C, H, W]`` normalised over its own elements.

    Without ``track_running_stats`` also in ``eval``. Ulyanov et al., "Instance Normalization"
    (2016).

    >>> ruda.nn.InstanceNorm2d(3)(ruda.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Channels of ``[N, C, D, H, W]`` or ``[C, D, H, W]``; see ``InstanceNorm2d``."""

    ranks = (4, 5)


class LocalResponseNorm(Module):
    """Each channel of ``[N, C, *S]`` over a power of the mean square of ``size`` channels around.

    Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks" (2012).
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [N, C, *S]``, normalised."""
        return local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The settings."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
