"""grid_sample on an emulated GPU: every mode and padding, odd points, layouts, gradients."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.nn import functional as F
from ruda.testing import assert_close

PADDINGS = ("zeros", "border", "reflection")


def points(rng: np.random.Generator, *shape: int) -> Any:
    """Inside, far outside, and no numbers at all."""
    found = rng.uniform(-1.6, 1.6, shape)
    found.reshape(-1)[:8] = (np.nan, 0.1, np.inf, -np.inf, 1e6, -7.3, 1.0, -1.0)
    return found


def compare(image: Any, grid: Any, device: str, dtype: str = "float32", **settings: Any) -> None:
    found = []
    for where in ("cpu", device):
        x = ruda.moveaxis(ruda.asarray(image, dtype=dtype, device=where), -1, 1)
        at = ruda.asarray(grid, dtype=dtype, device=where)
        found.append(F.grid_sample(x, at, **settings).to("cpu"))
    assert_close(found[1], found[0].numpy().astype("d"), length=256)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_modes(mode: str, device: str, rng: np.random.Generator) -> None:
    image, grid = rng.standard_normal((2, 5, 7, 3)), points(rng, 2, 4, 70, 2)
    for padding, corners in product(PADDINGS, (False, True)):
        settings = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        compare(image, grid, device, **settings)


def test_three_axes_halves_and_turned_images(device: str, rng: np.random.Generator) -> None:
    compare(rng.standard_normal((2, 3, 4, 5, 3)), points(rng, 2, 3, 4, 5, 3), device)
    image, grid = rng.standard_normal((2, 5, 7, 3)), rng.uniform(-1, 1, (2, 4, 5, 2))
    compare(image, grid, device, "bfloat16")
    compare(image[:, ::-1], grid[:, ::-1], device)
    x = ruda.asarray(image, device=device)
    got = F.grid_sample(ruda.moveaxis(x, -1, 1)[:, :, ::-1], ruda.asarray(grid, device=device))
    turned = np.ascontiguousarray(np.moveaxis(image, -1, 1)[:, :, ::-1])
    want = F.grid_sample(ruda.asarray(turned), ruda.asarray(grid)).numpy()
    assert_close(got.to("cpu"), want, length=256)
    empty = ruda.zeros((2, 0, 5, 7), dtype="float64", device=device)
    assert F.grid_sample(empty, ruda.asarray(grid, device=device)).shape == (2, 0, 4, 5)


def test_what_lies_outside_is_not_read(device: str) -> None:
    x = ruda.full((1, 1, 2, 2), float("inf"), device=device)
    at = ruda.asarray([[[[9.0, 9.0], [-9.0, 0.0]]]], device=device)
    assert F.grid_sample(x, at).tolist() == [[[[0.0, 0.0]]]]
