"""Ordered weight gradients of convolutions with windows of one pixel: products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.backends.cuda.dnn import pointwise
from ruda.core.devices import client
from ruda.ops import conv_rows as rows
from ruda.ops.table import TABLE
from ruda.testing import assert_close


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def plan_of(dy: ruda.Tensor, x: ruda.Tensor, layout: str, strategy: str = "auto") -> Any:
    rank, high = x.ndim - 2, dy.shape[1 if layout == "nchw" else -1]
    deep, ones = x.shape[1 if layout == "nchw" else -1], (1,) * (x.ndim - 2)
    kernel = (high, deep, *ones) if layout == "nchw" else (high, *ones, deep)
    attrs = (kernel, ones, ((0, 0),) * rank, ones, 1, layout, strategy)
    return TABLE["conv_weight_backward"].lookup((dy.spec, x.spec), attrs)


# Many pixels, few of many channels (parts would be larger than the operands), one image.
SHAPES = [((4, 24, 9, 7), 16), ((3, 96, 2, 2), 80), ((1, 8, 33), 5), ((2, 6, 3, 4, 5), 7)]
SHAPES += [((5, 12, 1, 1), 20), ((2, 20, 1, 6), 17)]


@pytest.mark.parametrize("layout", rows.LAYOUTS)
@pytest.mark.parametrize(("shape", "high"), SHAPES)
def test_the_gradient(device: str, shape: tuple[int, ...], high: int, layout: str) -> None:
    arrays = [normal(0, shape[0], high, *shape[2:]), normal(1, *shape)]
    given = [np.moveaxis(a, 1, -1) if layout == "nhwc" else a for a in arrays]
    planes = [a.astype(np.float64).reshape(*a.shape[:2], -1) for a in arrays]
    want = np.einsum("nop,ncp->oc", *planes)
    places = int(np.prod(shape)) // shape[1]
    dense = [ruda.asarray(np.ascontiguousarray(a), device=device) for a in given]
    views = [backwards(a, device) for a in given]
    with ruda.deterministic():
        for dy, x in (dense, views, [dense[0], views[1]]):
            plan = plan_of(dy, x, layout)
            assert plan.run.strategy == "product"
            for together in (False, True):
                run = pointwise.bind(client(device), plan, together)
                handle = run(dy.handle, x.handle)
                found = ruda.Tensor(client(device), handle, plan.out.shape, plan.out.dtype)
                got = np.asarray(found.to("cpu")).reshape(want.shape)
                assert_close(got, want, length=places, scale=np.sqrt(places))


@pytest.mark.parametrize("layout", rows.LAYOUTS)
@pytest.mark.parametrize("name", ["conv", "conv_data_backward"])
@pytest.mark.parametrize(("shape", "high"), SHAPES)
def test_images(device: str, name: str, shape: tuple[int, ...], high: int, layout: str) -> None:
    deep, ones = shape[1], (1,) * (len(shape) - 2)
    w = normal(2, *((high, deep, *ones) if layout == "nchw" else (high, *ones, deep)))
    forward = name == "conv"
    channels, letters = (deep, "oc,nc...->no...") if forward else (high, "oc,no...->nc...")
    given = normal(3, shape[0], channels, *shape[2:])
    want = np.einsum(letters, w.reshape(high, deep).astype(np.float64), given)
    if layout == "nhwc":
        given, want = (np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in (given, want))
    settings = (ones, ((0, 0),) * len(ones), ones, 1, layout, "auto")
    attrs = settings if forward else (want.shape, *settings)
    weight = ruda.asarray(w, device=device)
    for image in (ruda.asarray(given, device=device), backwards(given, device)):
        plan = TABLE[name].lookup((image.spec, weight.spec), attrs)
        handle = pointwise.bind_image(client(device), plan)(image.handle, weight.handle)
        got = ruda.Tensor(client(device), handle, plan.out.shape, plan.out.dtype)
        assert_close(got.to("cpu"), want, length=channels, scale=np.sqrt(channels))


def backwards(array: np.ndarray, device: str) -> ruda.Tensor:
    """The same values through a negative stride."""
    return ruda.asarray(np.ascontiguousarray(array[::-1]), device=device)[::-1]
