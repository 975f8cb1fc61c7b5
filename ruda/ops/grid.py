"""Sampling images at the points of a grid, and grids that come from affine maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.core.dtypes import FLOAT
from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import Shape, normalize_shape
from ruda.ops import pixels, rules
from ruda.ops.cast import astype
from ruda.ops.create import linspace, ones
from ruda.ops.join import concat, stack
from ruda.ops.matmul import matmul
from ruda.ops.movement import broadcast_to, expand_dims, matrix_transpose, moveaxis, reshape
from ruda.ops.reference import pixels as reference
from ruda.ops.rowwise import wide
from ruda.ops.rules import Specs
from ruda.ops.table import composite, fused
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _sampled(op: Any, specs: Specs, mode: str, *_: Any) -> Shape:
    x, grid = specs[0].shape, specs[1].shape
    rank = len(x) - 2
    if rank not in (2, 3) or len(grid) != len(x) or grid[-1] != rank or grid[0] != x[0]:
        expected = "input [N, C, *S] and grid [N, *sizes, axes] with 2 or 3 spatial axes"
        raise ShapeError(op.name, "input and grid do not fit", f"{x} and {grid}", expected)
    if 0 in x[2:]:
        raise ShapeError(op.name, "there is no pixel to sample", x)
    if mode == "bicubic" and rank != 2:
        raise ShapeError(op.name, "bicubic takes two spatial axes", x, hint='mode="bilinear"')
    return (*x[:2], *grid[1:-1])


@fused(
    "grid_sample",
    "x grid",
    "mode padding corners",
    shape=_sampled,
    dtype=rules.one_dtype,
    numpy=reference.grid_sample,
    accepts=FLOAT,
)
def _grid_sample(
    x: RudaTensor, grid: RudaTensor, mode: str, padding: str, corners: bool
) -> RudaTensor:
    """``x`` read at the points of ``grid``, which are pixels scaled to -1 … 1, last axis first."""
    image, sizes = wide(x), x.shape[2:]
    points = reshape(wide(grid), (x.shape[0], -1 if grid.size else 0, len(sizes)))
    positions = [
        _in_pixels(points[..., len(sizes) - 1 - axis], n, corners) for axis, n in enumerate(sizes)
    ]
    if mode == "bicubic":
        found = pixels.cubic(image, positions, padding, corners)
    else:
        kernel = pixels.linear if mode == "bilinear" else pixels.nearest
        found = kernel(image, pixels.padded(positions, sizes, padding, corners))
    out = reshape(moveaxis(found, 0, 1), (*x.shape[:2], *grid.shape[1:-1]))
    return astype(out, x.dtype, copy=False)


def _in_pixels(p: RudaTensor, size: int, corners: bool) -> RudaTensor:
    return (p + 1) * ((size - 1) / 2) if corners else ((p + 1) * size - 1) / 2


def grid_sample(
    input: RudaTensor,
    grid: RudaTensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> RudaTensor:
    """Read ``input [N, C, H, W]`` at ``grid [N, OH, OW, 2]``: ``[N, C, OH, OW]``; or in 3-D.

    Grid points are ``(x, y)`` or ``(x, y, z)`` in -1 … 1, the outer edges of the image or, with
    ``align_corners``, the centres of its outer pixels. ``mode``: ``bilinear`` (in 3-D trilinear),
    ``nearest``, ``bicubic`` (2-D). Outside lie ``zeros``, the ``border`` pixel or the
    ``reflection``; NaN counts as outside. One float dtype. Jaderberg et al., "Spatial Transformer
    Networks", 2015.

    Raises ``ShapeError``, ``DTypeError`` and ``ArgumentError``.

    >>> image = ruda.asarray([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> grid_sample(image, ruda.zeros((1, 1, 1, 2))).tolist()
    [[[[2.5]]]]
    """
    for what, value, known in (("mode", mode, _MODES), ("padding", padding_mode, _PADDINGS)):
        if value not in known:
            raise ArgumentError("grid_sample", f"unknown {what}", repr(value), f"one of {known}")
    return _grid_sample(input, grid, mode, padding_mode, bool(align_corners))


@composite
@given_tensors
def affine_grid(theta: RudaTensor, size: Sequence[int], align_corners: bool = False) -> RudaTensor:
    """The grid of ``grid_sample`` that maps each output pixel by ``theta [N, 2, 3]``.

    ``size`` is that of the output, ``(N, C, H, W)``: the result is ``[N, H, W, 2]``; with
    ``theta [N, 3, 4]`` and ``(N, C, D, H, W)`` it is ``[N, D, H, W, 3]``. Raises ``ShapeError``
    where they do not fit.

    >>> affine_grid(ruda.asarray([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    shape = normalize_shape(size, "affine_grid")
    rank = len(shape) - 2
    if rank not in (2, 3) or theta.shape != (shape[0], rank, rank + 1):
        expected = "theta [N, 2, 3] for (N, C, H, W), or [N, 3, 4] for (N, C, D, H, W)"
        got = f"{theta.shape} for {shape}"
        raise ShapeError("affine_grid", "theta and size do not fit", got, expected)
    spatial = shape[2:]
    axes = [
        broadcast_to(reshape(_centres(n, theta, align_corners), _along(i, rank)), spatial)
        for i, n in reversed(list(enumerate(spatial)))
    ]
    last = ones((*spatial, 1), dtype=theta.dtype, device=theta.device)
    points = reshape(concat([stack(axes, axis=-1), last], axis=-1), (-1, rank + 1))
    found = matmul(expand_dims(points, 0), matrix_transpose(theta))
    return reshape(found, (shape[0], *spatial, rank))


def _along(axis: int, rank: int) -> Shape:
    return tuple(-1 if i == axis else 1 for i in range(rank))


def _centres(n: int, theta: RudaTensor, corners: bool) -> RudaTensor:
    """The pixels of one axis in -1 … 1; a single one with aligned corners lies in the middle."""
    if corners:
        low, high = (-1.0, 1.0) if n > 1 else (0.0, 0.0)
    else:
        low, high = (1 - n) / max(n, 1), (n - 1) / max(n, 1)
    return linspace(low, high, n, dtype=theta.dtype, device=theta.device)
