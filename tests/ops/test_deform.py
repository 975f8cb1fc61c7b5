"""Deformable convolution against PyTorch's sampling and product, and against convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from tests.ops.peer import assert_near, assert_same, torch

# Stride, padding, dilation, groups, offset groups, whether there is a mask.
SETTINGS: dict[str, Any] = {
    "plain": ((1, 1), (0, 0), (1, 1), 1, 1, False),
    "mask": ((1, 1), (1, 1), (1, 1), 1, 1, True),
    "groups": ((2, 1), (1, 2), (1, 2), 2, 2, True),
    "offset groups": ((1, 2), (1, 0), (2, 1), 2, 4, True),
}
SIZES, KERNEL = (6, 7), (3, 2)


def expected(x: Any, offset: Any, w: Any, b: Any, mask: Any, how: tuple[Any, ...]) -> Any:
    """Columns by PyTorch's ``grid_sample``, one place of the kernel after the other."""
    stride, padding, dilation, groups, parts, _ = how
    n, height, width = offset.shape[0], *offset.shape[2:]
    moves = offset.reshape(n, parts, *KERNEL, 2, height, width)
    columns = []
    for g, image in enumerate(x.chunk(parts, 1)):
        places = []
        for i in range(KERNEL[0]):
            for j in range(KERNEL[1]):
                rows = torch().arange(height)[:, None] * stride[0] - padding[0] + i * dilation[0]
                cols = torch().arange(width)[None] * stride[1] - padding[1] + j * dilation[1]
                v, u = rows + moves[:, g, i, j, 0], cols + moves[:, g, i, j, 1]
                points = [(2 * u + 1) / SIZES[1] - 1, (2 * v + 1) / SIZES[0] - 1]
                grid = torch().stack(points, -1)
                read = torch().nn.functional.grid_sample(image, grid, align_corners=False)
                if mask is not None:
                    factors = mask.reshape(n, parts, *KERNEL, height, width)
                    read = read * factors[:, g, i, j][:, None]
                places.append(read)
        columns.append(torch().stack(places, 2))
    matrix = torch().cat(columns, 1).reshape(n, groups, -1, height * width)
    kernels = w.reshape(groups, w.shape[0] // groups, -1)
    return (kernels @ matrix).reshape(n, -1, height, width) + b.reshape(-1, 1, 1)


@pytest.mark.parametrize("name", SETTINGS)
def test_against_torch(name: str) -> None:
    stride, padding, dilation, groups, parts, masked = how = SETTINGS[name]
    rng = np.random.default_rng(len(name))
    axes = zip(SIZES, KERNEL, stride, padding, dilation, strict=True)
    counts = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)
    places = parts * KERNEL[0] * KERNEL[1]
    arrays = [
        rng.standard_normal((2, 4, *SIZES)),
        rng.uniform(-3, 3, (2, 2 * places, *counts)),
        rng.standard_normal((6, 4 // groups, *KERNEL)),
        rng.standard_normal(6),
    ] + [rng.random((2, places, *counts))] * masked

    def mine(x: Any, offset: Any, w: Any, b: Any, mask: Any = None) -> Any:
        return F.deform_conv2d(x, offset, w, b, stride, padding, dilation, mask, groups, parts)

    def theirs(x: Any, offset: Any, w: Any, b: Any, mask: Any = None) -> Any:
        return expected(x, offset, w, b, mask, how)

    assert_same(mine, theirs, *arrays)


def test_without_offsets_it_is_a_convolution() -> None:
    rng = np.random.default_rng(0)
    x, w = (ruda.asarray(rng.standard_normal(s)) for s in ((2, 4, 6, 5), (6, 2, 3, 3)))
    offset = ruda.zeros((2, 18, 3, 3), dtype="float64")
    got = F.deform_conv2d(x, offset, w, stride=2, padding=1, groups=2)
    assert_near(got, F.conv2d(x, w, stride=2, padding=1, groups=2))


def test_whole_offsets_shift_the_image() -> None:
    rng = np.random.default_rng(0)
    x, w = (ruda.asarray(rng.standard_normal(s)) for s in ((1, 2, 6, 6), (3, 2, 1, 1)))
    offset = ruda.asarray(np.stack([np.full((5, 6), 1.0), np.zeros((5, 6))])[None])
    got = F.deform_conv2d(x[:, :, :5], offset, w)
    moved = F.conv2d(x[:, :, 1:6], w).numpy(copy=True)
    moved[:, :, 4] = 0
    assert_near(got, moved)
