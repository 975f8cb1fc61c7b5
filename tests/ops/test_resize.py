"""Resizing against PyTorch, and what makes it the linear map it says it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from tests.ops.peer import assert_near, assert_same, torch

# The rank of the input after batch and channels, the mode and the settings.
CASES: list[tuple[int, str, dict[str, Any]]] = [
    (rank, mode, how)
    for rank, modes in (
        (1, ("nearest", "nearest-exact", "linear", "area")),
        (2, ("nearest", "nearest-exact", "bilinear", "bicubic", "area")),
        (3, ("nearest", "trilinear", "area")),
    )
    for mode in modes
    for how in (
        {"size": 5},
        {"size": 1},
        {"scale_factor": 1.7},
        {"scale_factor": 0.6, "recompute_scale_factor": True},
    )
] + [
    (1, "linear", {"size": 11, "align_corners": True}),
    (2, "bilinear", {"size": (3, 20), "align_corners": True}),
    (2, "bicubic", {"scale_factor": (0.4, 1.5), "align_corners": True}),
    (2, "bilinear", {"size": (3, 20), "antialias": True}),
    (2, "bicubic", {"size": (2, 3), "antialias": True}),
    (2, "lanczos", {"size": (3, 12), "antialias": True}),
    (2, "lanczos", {"scale_factor": (0.3, 0.8), "antialias": True}),
    (3, "trilinear", {"size": (2, 9, 1), "align_corners": True}),
]
SHAPES = {1: (2, 3, 7), 2: (2, 2, 7, 9), 3: (1, 2, 4, 5, 6)}


def values(*shape: int) -> Any:
    return np.random.default_rng(np.prod(shape, dtype=int)).standard_normal(shape)


@pytest.mark.parametrize(("rank", "mode", "how"), CASES, ids=str)
def test_against_torch(rank: int, mode: str, how: dict[str, Any]) -> None:
    theirs = torch().nn.functional.interpolate
    try:
        theirs(torch().zeros((1, 1, *(4,) * rank)), mode=mode, **how)
    except (NotImplementedError, ValueError) as error:
        if mode == "lanczos":
            pytest.skip(str(error))
        raise
    x = values(*SHAPES[rank])
    assert_same(
        lambda a: F.interpolate(a, mode=mode, **how), lambda a: theirs(a, mode=mode, **how), x
    )


def test_upsample_is_interpolate() -> None:
    x = ruda.asarray(values(1, 2, 4, 5))
    assert_near(F.upsample(x, (6, 8), mode="bilinear"), F.interpolate(x, (6, 8), mode="bilinear"))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos", "area", "nearest"])
def test_constants_stay(mode: str) -> None:
    out = F.interpolate(ruda.full((1, 1, 6, 7), 3.0, dtype="float64"), (4, 9), mode=mode)
    if mode == "lanczos":
        assert_near(out, np.full((1, 1, 4, 9), 3.0))
    np.testing.assert_allclose(out.numpy(), 3.0, rtol=1e-14)


def test_shrinking_by_many_is_a_product_with_the_whole_matrix() -> None:
    # More than eight terms for each output; in PyTorch's order of addition they differ by rounding.
    theirs = torch().nn.functional.interpolate
    assert_same(
        lambda a: F.interpolate(a, (2, 3), mode="bilinear", antialias=True),
        lambda a: theirs(a, (2, 3), mode="bilinear", antialias=True),
        values(1, 2, 40, 50),
    )


def test_nearest_keeps_integers_and_complex_numbers_go_by_parts() -> None:
    x = ruda.asarray([[[1, 2, 3]]], dtype="uint8")
    assert F.interpolate(x, 6).tolist() == [[[1, 1, 2, 2, 3, 3]]]
    z = values(1, 2, 5) + 1j * values(1, 5, 2).reshape(1, 2, 5)
    out = F.interpolate(ruda.asarray(z), 8, mode="linear")
    for part, number in ((ruda.real, z.real), (ruda.imag, z.imag)):
        assert_near(part(out), F.interpolate(ruda.asarray(number.copy()), 8, mode="linear"))


@pytest.mark.parametrize("size", range(1, 40))
def test_nearest_is_exact_in_integers(size: int) -> None:
    count = 3 * size + 1
    x = ruda.arange(size, dtype="float64").reshape((1, 1, size))
    expected = [i * size // count for i in range(count)]
    assert F.interpolate(x, count).tolist() == [[expected]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_round_once_for_each_axis(dtype: str) -> None:
    x = ruda.asarray(values(2, 2, 9)).astype(dtype)
    wide = F.interpolate(x.astype("float32"), 5, mode="linear")
    out = F.interpolate(x, 5, mode="linear")
    np.testing.assert_array_equal(out.numpy(), wide.astype(dtype).numpy())
