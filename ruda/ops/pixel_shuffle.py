"""Channels traded for resolution, and groups of channels mixed: reshapes and permutations alone."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import index
from ruda.ops.movement import permute_dims, reshape
from ruda.ops.table import composite
from ruda.tensor.tensor import RudaTensor


def _factor(op: str, name: str, value: Any) -> int:
    factor = index(value, op, name)
    if factor < 1:
        raise ArgumentError(op, f"{name} is too small", value, "at least 1")
    return factor


@composite
def pixel_shuffle(input: RudaTensor, upscale_factor: int) -> RudaTensor:
    """``input [*, C * r², H, W]`` to ``[*, C, H * r, W * r]`` with ``r = upscale_factor``.

    Raises ``ShapeError`` unless r² divides the channels. Shi et al., "Real-Time Single Image and
    Video Super-Resolution", 2016.

    >>> pixel_shuffle(ruda.ones((1, 4, 2, 3)), 2).shape
    (1, 1, 4, 6)
    """
    name, r = "pixel_shuffle", _factor("pixel_shuffle", "upscale_factor", upscale_factor)
    if input.ndim < 3 or input.shape[-3] % (r * r):
        expected = f"[*, C, H, W] with C divisible by {r * r}"
        raise ShapeError(name, "the input does not fit", input.shape, expected)
    *lead, channels, height, width = input.shape
    n = len(lead)
    apart = reshape(input, (*lead, channels // (r * r), r, r, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshape(permute_dims(apart, order), (*lead, channels // (r * r), height * r, width * r))


@composite
def pixel_unshuffle(input: RudaTensor, downscale_factor: int) -> RudaTensor:
    """``input [*, C, H * r, W * r]`` to ``[*, C * r², H, W]``: the inverse of ``pixel_shuffle``.

    Raises ``ShapeError`` unless r divides height and width.
    """
    name, r = "pixel_unshuffle", _factor("pixel_unshuffle", "downscale_factor", downscale_factor)
    if input.ndim < 3 or input.shape[-2] % r or input.shape[-1] % r:
        expected = f"[*, C, H, W] with H and W divisible by {r}"
        raise ShapeError(name, "the input does not fit", input.shape, expected)
    *lead, channels, height, width = input.shape
    n = len(lead)
    apart = reshape(input, (*lead, channels, height // r, r, width // r, r))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return reshape(permute_dims(apart, order), (*lead, channels * r * r, height // r, width // r))


@composite
def channel_shuffle(input: RudaTensor, groups: int) -> RudaTensor:
    """The channels of ``input [N, C, *S]``, which lie group after group, in turn from each group.

    Raises ``ShapeError`` unless ``groups`` divides the channels. Zhang et al., "ShuffleNet", 2018.

    >>> channel_shuffle(ruda.arange(4).reshape((1, 4)), 2).tolist()
    [[0, 2, 1, 3]]
    """
    count = _factor("channel_shuffle", "groups", groups)
    if input.ndim < 2 or input.shape[1] % count:
        expected = f"[N, C, *S] with C divisible by {count}"
        raise ShapeError("channel_shuffle", "the input does not fit", input.shape, expected)
    n, channels, *rest = input.shape
    apart = reshape(input, (n, count, channels // count, *rest))
    order = (0, 2, 1, *range(3, apart.ndim))
    return reshape(permute_dims(apart, order), input.shape)
