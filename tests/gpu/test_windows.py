"""Pooling, columns and resampling on the GPU: large images, channels last, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.nn import functional as F
from ruda.testing import assert_close

Function = Callable[[Any], Any]

FUNCTIONS: dict[str, Function] = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max gaps": lambda x: F.max_pool2d(x, 3, 2, 1, (2, 3), True),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (7, 5)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (7, 5)),
    "mean": lambda x: F.adaptive_avg_pool2d(x, 1),
    "columns": lambda x: F.unfold(x, 3, 1, 1, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, (50, 130), mode="bicubic"),
    "antialias": lambda x: F.interpolate(x, (20, 30), mode="bilinear", antialias=True),
    "lanczos": lambda x: F.interpolate(x, (20, 130), mode="lanczos"),
}


@pytest.mark.parametrize("last", [False, True], ids=["dense", "last"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_large_images(device: str, name: str, dtype: str, last: bool) -> None:
    values = np.random.default_rng(0).standard_normal((4, 65, 67, 48)).astype("f")
    found = []
    for where in ("cpu", device):
        x = ruda.asarray(values, dtype=dtype, device=where).requires_grad_()
        turned = ruda.moveaxis(x, -1, 1)
        y = FUNCTIONS[name](turned if last else turned.contiguous())
        g = np.cos(np.arange(y.size)).reshape(y.shape)
        y.backward(ruda.asarray(g, dtype=dtype, device=where))
        found.append([y.detach().to("cpu"), x.grad.to("cpu")])
    for want, got in zip(*found, strict=True):
        # Sums of halves in another order round to a neighbour now and then.
        assert_close(got, want.numpy().astype("d"), length=65 * 67)


def test_the_same_bits_every_time(device: str) -> None:
    x = ruda.asarray(np.random.default_rng(0).standard_normal((8, 16, 64, 64)), dtype="float32")
    x = x.to(device).requires_grad_()
    for function in (FUNCTIONS["max"], FUNCTIONS["bilinear"], FUNCTIONS["adaptive"]):
        grads = []
        for _ in range(3):
            x.grad = None
            y = function(x)
            y.backward(ruda.ones_like(y.detach()))
            grads.append(x.grad.numpy())
        np.testing.assert_array_equal(grads[0], grads[1])
        np.testing.assert_array_equal(grads[0], grads[2])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_grid_sample_and_deformable_convolution(device: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    image, grid = rng.standard_normal((2, 8, 40, 48)), rng.uniform(-1.2, 1.2, (2, 30, 31, 2))
    offset, weight = rng.standard_normal((2, 18, 38, 46)), rng.standard_normal((4, 8, 3, 3))
    found = []
    for where in ("cpu", device):
        x, points, moves, w = (
            ruda.asarray(v, dtype=dtype, device=where).requires_grad_()
            for v in (image, grid, offset, weight)
        )
        a, b = F.grid_sample(x, points), F.deform_conv2d(x, moves, w)
        for out in (a, b):
            out.backward(ruda.ones_like(out.detach()))
        found.append([t.detach().to("cpu") for t in (a, b, x.grad, points.grad, w.grad)])
    for want, got in zip(*found, strict=True):
        assert_close(got, want.numpy().astype("d"), length=40 * 48)
