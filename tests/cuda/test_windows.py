"""Pooling, columns and resampling on an emulated GPU: layouts, settings, gradients of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.nn import functional as F
from ruda.testing import assert_close

Function = Callable[..., Any]
Pick = Callable[[Any], Any]

# From [N, H, W, C] as it lies to [N, C, H, W] as it is read: channels last, first, and in between.
LAYOUTS: dict[str, Pick] = {
    "last": lambda x: ruda.moveaxis(x, -1, 1),
    "dense": lambda x: ruda.moveaxis(x, -1, 1).contiguous(),
    "turned": lambda x: ruda.moveaxis(x, -1, 1)[:, ::-1, :, ::-1],
    "expanded": lambda x: ruda.broadcast_to(ruda.moveaxis(x, -1, 1)[:1], (2, 20, 9, 11)),
}


def image(rng: np.random.Generator, *shape: int) -> Any:
    """Distinct values, so that a maximum has one place."""
    return rng.permutation(int(np.prod(shape))).reshape(shape).astype("f") / 7


def check(
    function: Function,
    values: Any,
    device: str,
    *,
    dtype: str = "float32",
    length: int = 64,
    pick: Pick = lambda x: x,
) -> None:
    """Outputs, and of the first one the gradient and the gradient of that: as on the CPU."""
    found = []
    for where in ("cpu", device):
        x = ruda.asarray(values, dtype=dtype, device=where).requires_grad_()
        outs = function(pick(x))
        outs = outs if isinstance(outs, tuple) else (outs,)
        g = wave(outs[0].shape, dtype, where).requires_grad_()
        outs[0].backward(g, create_graph=True)
        dx = x.grad
        dx.backward(wave(dx.shape, dtype, where))
        found.append([t.detach().to("cpu") for t in (*outs, dx, g.grad)])
    for want, got in zip(*found, strict=True):
        wide = want.numpy().astype("d") if want.dtype.is_floating else want.numpy()
        assert_close(got, wide, length=length)


def wave(shape: tuple[int, ...], dtype: str, where: str) -> ruda.Tensor:
    values = np.cos(np.arange(int(np.prod(shape)))).reshape(shape)
    return ruda.asarray(values, dtype=dtype, device=where)


POOLS: dict[str, Function] = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "max gaps ceil": lambda x: F.max_pool2d(
        x, (2, 3), (2, 1), ((1, 0), (0, 1)), (2, 3), True, return_indices=True
    ),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average ceil": lambda x: F.avg_pool2d(x, (3, 2), 2, ((1, 0), (0, 1)), True, False),
    "average divisor": lambda x: F.avg_pool2d(x, 2, 1, 0, divisor_override=3),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (4, 7), return_indices=True),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (4, 13)),
    "mean": lambda x: F.adaptive_avg_pool2d(x, 1),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pools(name: str, layout: str, device: str, rng: np.random.Generator) -> None:
    values = image(rng, 2, 9, 11, 20)
    check(POOLS[name], values, device, pick=LAYOUTS[layout])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["max", "average"])
def test_pools_of_dtypes(name: str, dtype: str, device: str, rng: np.random.Generator) -> None:
    check(POOLS[name], rng.standard_normal((2, 3, 9, 11)), device, dtype=dtype)


def test_pools_in_one_and_three_dimensions(device: str, rng: np.random.Generator) -> None:
    check(lambda x: F.max_pool1d(x, 3, 2, return_indices=True), image(rng, 2, 3, 40), device)
    check(lambda x: F.avg_pool3d(x, 2, 2, 1), image(rng, 2, 3, 4, 5, 6), device)
    check(lambda x: F.max_pool3d(x, 2, return_indices=True), image(rng, 3, 4, 5, 6), device)
    check(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), image(rng, 3, 4, 5, 6), device)
    check(lambda x: F.lp_pool2d(abs(x), 2, 2), image(rng, 1, 3, 4, 6), device)


def test_many_planes_and_large_ones(device: str, rng: np.random.Generator) -> None:
    check(POOLS["max"], image(rng, 1100, 1, 5, 4), device)
    check(POOLS["average"], image(rng, 1, 1, 70, 90), device)


def test_a_maximum_of_nan_ties_and_nothing(device: str) -> None:
    rows = [[np.nan, 1, 2, 2], [-np.inf] * 4, [3, np.nan, np.nan, 0], [0.0, -0.0, 5, 5]]
    for where in ("cpu", device):
        x = ruda.asarray(np.array(rows, "f")[:, None], device=where)
        values, indices = F.max_pool1d(x, 2, return_indices=True)
        assert indices.numpy()[:, 0].tolist() == [[0, 2], [0, 2], [1, 2], [0, 2]]
        np.testing.assert_array_equal(
            values.numpy()[:, 0], [[np.nan, 2], [-np.inf] * 2, [np.nan] * 2, [0, 5]]
        )
    empty = ruda.zeros((0, 3, 8, 8), device=device)
    assert F.max_pool2d(empty, 2).shape == (0, 3, 4, 4)
    whole = ruda.asarray(np.arange(-6, 6, dtype="i4").reshape(1, 3, 4), device=device)
    assert F.max_pool2d(whole, 2).tolist() == [[[-1, 1]]]


def test_the_same_gradient_twice(device: str, rng: np.random.Generator) -> None:
    x = ruda.asarray(rng.standard_normal((2, 3, 9, 9)), dtype="float32", device=device)
    x.requires_grad_()
    grads = []
    for _ in range(2):
        x.grad = None
        out = F.max_pool2d(x, 3, 1)
        out.backward(wave(out.shape, "float32", device))
        grads.append(x.grad.numpy())
    np.testing.assert_array_equal(*grads)


@pytest.mark.parametrize("layout", ["last", "turned"])
def test_columns(layout: str, device: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal((2, 9, 11, 20))
    pick = LAYOUTS[layout]
    check(lambda x: F.unfold(pick(x), 3, 1, 1, 2), values, device)
    check(lambda x: F.unfold(pick(x), (2, 3), (2, 3), (1, 0), 1), values, device)


def test_columns_added_up(device: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal((2, 18, 20))
    check(lambda x: F.fold(x, (5, 7), (2, 3), 1, 0, 1), values, device)
    check(lambda x: F.fold(ruda.permute(x, (2, 1, 0)), (5, 7), (2, 3)), values.T, device)
    check(lambda x: F.fold(x, (9, 9), 3, 2, 1, 2), rng.standard_normal((18, 16)), device)


def test_windows_along_one_axis(device: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal((3, 10, 4))
    check(lambda x: ruda.unfold(x, 4, step=3, axis=1) * 2.0, values, device)
    check(lambda x: ruda.unfold(x, 2, axis=-1) * 2.0, values, device, dtype="bfloat16")
    check(lambda x: ruda.fold(x, 13, step=2, axis=0), rng.standard_normal((6, 5, 3)), device)
    values = rng.standard_normal((3, 5, 3))
    check(lambda x: ruda.fold(ruda.permute(x, (1, 0, 2)), 7, step=2, axis=1), values, device)


RESIZED: dict[str, dict[str, Any]] = {
    "nearest": {"size": (5, 22), "mode": "nearest"},
    "nearest-exact": {"scale_factor": (1.7, 0.6), "mode": "nearest-exact"},
    "bilinear": {"scale_factor": 2, "mode": "bilinear"},
    "corners": {"size": (18, 6), "mode": "bilinear", "align_corners": True},
    "bicubic": {"size": (5, 23), "mode": "bicubic"},
    "antialias": {"size": (4, 3), "mode": "bicubic", "antialias": True},
    "lanczos": {"size": (4, 17), "mode": "lanczos"},
    "area": {"size": (4, 5), "mode": "area"},
}


@pytest.mark.parametrize("name", RESIZED)
@pytest.mark.parametrize("layout", ["dense", "last"])
def test_resizing(name: str, layout: str, device: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal((2, 9, 11, 3))
    check(lambda x: F.interpolate(LAYOUTS[layout](x), **RESIZED[name]), values, device, length=2000)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64"])
def test_resizing_in_packs_of_16_bytes(dtype: str, device: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal((2, 3, 6, 16))
    settings: dict[str, Any] = {"size": (12, 32), "mode": "bilinear"}
    check(lambda x: F.interpolate(x, **settings), values, device, dtype=dtype)
    # One element further on nothing is aligned.
    values = rng.standard_normal(2 * 3 * 6 * 16 + 1)

    def moved(x: ruda.Tensor) -> ruda.Tensor:
        return F.interpolate(x[1:].reshape((2, 3, 6, 16)), **settings)

    check(moved, values, device, dtype=dtype)


def test_resizing_one_and_three_axes_and_integers(device: str, rng: np.random.Generator) -> None:
    check(lambda x: F.interpolate(x, 7, mode="linear"), rng.standard_normal((2, 3, 5)), device)
    values = rng.standard_normal((2, 3, 4, 3, 5))
    check(lambda x: F.interpolate(x, (3, 6, 8), mode="trilinear"), values, device)
    whole = np.arange(24).reshape((2, 3, 4)).astype("i4")
    want = F.interpolate(ruda.asarray(whole), 7).numpy()
    got = F.interpolate(ruda.asarray(whole, device=device), 7).numpy()
    np.testing.assert_array_equal(got, want)
    assert F.interpolate(ruda.ones((0, 3, 4), device=device), 7).shape == (0, 3, 7)


def test_what_runs_a_convolution_is_told_with_its_settings(device: str) -> None:
    """Tiles of 64 would be all but empty for few windows: a stride decides."""
    x, w = ruda.ones((1, 16, 9, 9), device=device), ruda.ones((16, 16, 3, 3), device=device)
    told = F.explain_conv(x, w)
    assert told.chosen == "implicit_gemm"
    assert isinstance(told.strategies["vendor"], str)
    assert F.explain_conv(x, w, stride=4).chosen == "direct"
