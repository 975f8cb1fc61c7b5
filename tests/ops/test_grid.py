"""Grids and sampling at their points against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from tests.ops.peer import assert_near, assert_same, torch

SHAPES: dict[int, Any] = {2: ((2, 3, 5, 6), (2, 4, 3, 2)), 3: ((2, 2, 3, 4, 5), (2, 2, 3, 2, 3))}
CASES = [
    (rank, mode, padding, corners)
    for rank in (2, 3)
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for corners in (False, True)
    if (rank, mode) != (3, "bicubic")
]


@pytest.mark.parametrize(("rank", "mode", "padding", "corners"), CASES)
def test_against_torch(rank: int, mode: str, padding: str, corners: bool) -> None:
    theirs = torch().nn.functional.grid_sample
    rng = np.random.default_rng(rank)
    x, grid = rng.standard_normal(SHAPES[rank][0]), rng.uniform(-1.7, 1.7, SHAPES[rank][1])
    how = (mode, padding, corners)
    if mode == "nearest":
        # Where it is flat: PyTorch says zeros, ruda nothing.
        fixed = ruda.asarray(grid), torch().tensor(grid)
        assert_same(
            lambda a: F.grid_sample(a, fixed[0], *how), lambda a: theirs(a, fixed[1], *how), x
        )
        return
    assert_same(lambda a, b: F.grid_sample(a, b, *how), lambda a, b: theirs(a, b, *how), x, grid)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 3, 4, 2), (1, 1, 1, 3)], ids=str)
def test_affine_grid(size: tuple[int, ...], corners: bool) -> None:
    theirs = torch().nn.functional.affine_grid
    rank = len(size) - 2
    theta = np.random.default_rng(rank).standard_normal((size[0], rank, rank + 1))
    assert_same(
        lambda t: F.affine_grid(t, size, corners), lambda t: theirs(t, size, corners), theta
    )


def test_the_identity_gives_the_image_back() -> None:
    x = ruda.asarray(np.random.default_rng(0).standard_normal((1, 2, 4, 5)))
    theta = ruda.asarray([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], dtype="float64")
    for corners in (False, True):
        grid = F.affine_grid(theta, x.shape, corners)
        assert_near(F.grid_sample(x, grid, align_corners=corners), x)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_points_far_outside_or_nan_read_the_padding(mode: str, padding: str) -> None:
    x = ruda.ones((1, 1, 3, 3), dtype="float64")
    far = [[[[np.nan, 0.0], [1e300, 0.0], [-np.inf, np.nan]]]]
    out = F.grid_sample(x, ruda.asarray(far, dtype="float64"), mode, padding).numpy()
    np.testing.assert_array_equal(out, np.full((1, 1, 1, 3), float(padding != "zeros")))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_round_once(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = ruda.asarray(rng.standard_normal((1, 2, 4, 4))).astype(dtype)
    grid = ruda.asarray(rng.uniform(-1, 1, (1, 3, 2, 2))).astype(dtype)
    wide = F.grid_sample(x.astype("float32"), grid.astype("float32"))
    np.testing.assert_array_equal(F.grid_sample(x, grid).numpy(), wide.astype(dtype).numpy())
