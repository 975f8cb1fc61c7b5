"""Pooling by powers, and maxima put back where they came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape
from ruda.ops.compare import equal
from ruda.ops.create import zeros
from ruda.ops.gather import scatter
from ruda.ops.movement import reshape
from ruda.ops.pool import avg_pool1d, avg_pool2d, avg_pool3d
from ruda.ops.scalars import real_number
from ruda.ops.select import where
from ruda.ops.table import composite
from ruda.ops.windows import check_rank, per_axis
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _power(
    name: str,
    average: Callable[..., RudaTensor],
    rank: int,
    x: RudaTensor,
    norm_type: Any,
    kernel_size: Any,
    stride: Any,
    ceil_mode: bool,
) -> RudaTensor:
    real_number(name, "norm_type", norm_type, 0, ends="()")
    check_rank(name, rank, x)
    kernel = per_axis(kernel_size, rank, name, "kernel_size")
    total = average(x**norm_type, kernel, stride, 0, ceil_mode) * math.prod(kernel)
    if norm_type == 1:
        return total
    # The root of zero has no slope: it is kept out of the gradient.
    empty = equal(total, 0)
    return where(empty, 0, where(empty, 1, total) ** (1 / norm_type))


@composite
@given_tensors
def lp_pool1d(
    input: RudaTensor,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
) -> RudaTensor:
    """``sum(x ** p) ** (1 / p)`` of each window of ``input [N, C, L]``; see ``lp_pool2d``."""
    return _power("lp_pool1d", avg_pool1d, 1, input, norm_type, kernel_size, stride, ceil_mode)


@composite
@given_tensors
def lp_pool2d(
    input: RudaTensor,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
) -> RudaTensor:
    """``sum(x ** p) ** (1 / p)`` of each window of ``input [N, C, H, W]``, ``p = norm_type``.

    As in PyTorch a partial window of ``ceil_mode`` counts as if it were whole, and the root of a
    negative sum, which odd powers can have, is NaN. Arguments and errors as ``avg_pool2d``; also
    ``ArgumentError`` unless p is positive.

    >>> lp_pool2d(ruda.asarray([[[3.0, 4.0]]]), 2, (1, 2)).tolist()
    [[[5.0]]]
    """
    return _power("lp_pool2d", avg_pool2d, 2, input, norm_type, kernel_size, stride, ceil_mode)


@composite
@given_tensors
def lp_pool3d(
    input: RudaTensor,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
) -> RudaTensor:
    """``sum(x ** p) ** (1 / p)`` of each window of ``[N, C, D, H, W]``; see ``lp_pool2d``."""
    return _power("lp_pool3d", avg_pool3d, 3, input, norm_type, kernel_size, stride, ceil_mode)


def _unpool(
    name: str,
    rank: int,
    x: RudaTensor,
    indices: RudaTensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Sequence[int] | None,
) -> RudaTensor:
    check_rank(name, rank, x)
    if x.shape != indices.shape:
        got = f"{x.shape} and {indices.shape}"
        raise ShapeError(name, "input and indices differ", got, "one shape")
    lead, sizes = x.shape[: x.ndim - rank], _sizes(name, rank, x, kernel_size, stride, padding)
    if output_size is not None:
        sizes = per_axis(tuple(output_size)[-rank:], rank, name, "output_size")
    base = zeros((*lead, math.prod(sizes)), dtype=x.dtype, device=x.device)
    flat = (*lead, math.prod(x.shape[x.ndim - rank :]))
    out = scatter(base, reshape(indices, flat), reshape(x, flat), axis=-1)
    return reshape(out, (*lead, *sizes))


def _sizes(
    name: str, rank: int, x: RudaTensor, kernel_size: Any, stride: Any, padding: Any
) -> Shape:
    """The least sizes that pooling with these settings brings to those of ``x``."""
    kernel = per_axis(kernel_size, rank, name, "kernel_size")
    steps = kernel if stride is None else per_axis(stride, rank, name, "stride")
    pads = per_axis(padding, rank, name, "padding", 0)
    axes = zip(x.shape[x.ndim - rank :], kernel, steps, pads, strict=True)
    return tuple((n - 1) * s + k - 2 * p for n, k, s, p in axes)


@composite
@given_tensors
def max_unpool1d(
    input: RudaTensor,
    indices: RudaTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> RudaTensor:
    """Maxima ``[N, C, L]`` back where ``max_pool1d`` found them; see ``max_unpool2d``."""
    settings = (kernel_size, stride, padding, output_size)
    return _unpool("max_unpool1d", 1, input, indices, *settings)


@composite
@given_tensors
def max_unpool2d(
    input: RudaTensor,
    indices: RudaTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> RudaTensor:
    """Maxima ``[N, C, H, W]`` back at the ``indices`` of ``max_pool2d``, zeros elsewhere.

    The result has ``output_size`` (spatial, or whole), else the least sizes that pooling with
    these settings brings to those of ``input``. Of several values for one place the last stays.
    Raises ``IndexRangeError`` for an index outside.

    >>> x = ruda.asarray([[[1.0, 2.0], [4.0, 3.0]]])
    >>> best, places = ruda.nn.functional.max_pool2d(x, 2, return_indices=True)
    >>> max_unpool2d(best, places, 2).tolist()
    [[[0.0, 0.0], [4.0, 0.0]]]
    """
    settings = (kernel_size, stride, padding, output_size)
    return _unpool("max_unpool2d", 2, input, indices, *settings)


@composite
@given_tensors
def max_unpool3d(
    input: RudaTensor,
    indices: RudaTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> RudaTensor:
    """Maxima ``[N, C, D, H, W]`` back where ``max_pool3d`` found them; see ``max_unpool2d``."""
    settings = (kernel_size, stride, padding, output_size)
    return _unpool("max_unpool3d", 3, input, indices, *settings)
