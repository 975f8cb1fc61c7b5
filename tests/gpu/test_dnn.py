"""Attention and convolution by cuDNN and by kernels of our own, against the CPU in float64."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.devices import client
from ruda.core.errors import StrategyError
from ruda.testing import assert_close

needs_cudnn = pytest.mark.skipif(importlib.util.find_spec("cudnn") is None, reason="no cuDNN")


def normal(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


def both_ways(where: str, dtype: str, arrays: Any, function: Any, g: Any) -> list[ruda.Tensor]:
    """The result and the gradients of `function`, whose operands were rounded to half first."""
    rounded = [ruda.asarray(a, dtype="bfloat16").astype(dtype).to(where) for a in arrays]
    operands = [x.detach().requires_grad_() for x in rounded]
    out = function(*operands)
    out.backward(ruda.asarray(g, dtype="bfloat16").astype(dtype).to(where))
    return [out.detach(), *(x.grad for x in operands)]


ATTENTION = {
    "full": ((2, 4, 64, 64), (2, 4, 64, 64), {}),
    "causal": ((2, 4, 130, 64), (2, 4, 130, 64), {"is_causal": True}),
    "grouped": ((1, 8, 96, 128), (1, 2, 96, 128), {"is_causal": True, "scale": 0.2}),
    "longer keys": ((2, 2, 32, 64), (2, 2, 80, 64), {"is_causal": True}),
    "window": ((1, 2, 128, 64), (1, 2, 128, 64), {"is_causal": True, "window": (17, 0)}),
}


@needs_cudnn
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_by_the_vendor(name: str, device: str) -> None:
    q, k, settings = ATTENTION[name]
    arrays, g = (normal(0, *q), normal(1, *k), normal(2, *k)), normal(3, *q)

    def attend(*x: ruda.Tensor) -> ruda.Tensor:
        return F.attention(*x, **settings)

    assert ruda.explain("attention", *on(device, arrays)).chosen == "vendor"
    found = both_ways(device, "bfloat16", arrays, attend, g)
    exact = both_ways("cpu", "float64", arrays, attend, g)
    for got, want in zip(found, exact, strict=True):
        # Probabilities are rounded to half before the second product, so errors are absolute ones.
        scale = float(np.abs(want.numpy()).max())
        assert_close(got.to("cpu"), want.numpy(), length=k[2], scale=scale, name=name)


def on(device: str, arrays: Any) -> list[ruda.Tensor]:
    return [ruda.asarray(a, dtype="bfloat16", device=device) for a in arrays]


@needs_cudnn
def test_what_the_vendor_cannot_do_is_said(device: str) -> None:
    x = ruda.ones((1, 2, 8, 64), device=device)
    with pytest.raises(StrategyError, match="float16 and bfloat16"):
        F.attention(x, x, x, strategy="vendor")
    h = x.astype("bfloat16")
    with pytest.raises(StrategyError, match="softcap"):
        F.attention(h, h, h, softcap=10.0, strategy="vendor")
    assert F.attention(h, h, h, softcap=10.0).shape == x.shape


CONVOLUTIONS = {
    "plain": ((4, 8, 20, 22), (16, 8, 3, 3), {"padding": 1}),
    "stride": ((4, 8, 21, 20), (16, 8, 3, 3), {"padding": 1, "stride": 2}),
    "dilated": ((2, 8, 20, 20), (8, 8, 3, 3), {"dilation": 2}),
    "groups": ((2, 16, 12, 12), (16, 8, 3, 3), {"padding": 1, "groups": 2}),
    "depthwise": ((2, 16, 12, 12), (16, 1, 5, 5), {"padding": 2, "groups": 16}),
    "uneven": ((2, 8, 12, 12), (8, 8, 4, 4), {"padding": "same"}),
    "pointwise": ((2, 8, 12, 12), (24, 8, 1, 1), {}),
}


@pytest.mark.parametrize("strategy", ["auto", "direct", "implicit_gemm"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str, dtype: str, strategy: str, device: str) -> None:
    x, w, settings = CONVOLUTIONS[name]
    arrays = (normal(0, *x), normal(1, *w))
    for layout in ("nchw", "nhwc"):
        given = (arrays[0] if layout == "nchw" else np.moveaxis(arrays[0], 1, -1), arrays[1])

        def convolve(*x: ruda.Tensor, how: str = strategy, layout: str = layout) -> ruda.Tensor:
            how = how if x[0].device != "cpu" else "auto"
            return F.conv2d(*x, **settings, layout=layout, strategy=how)

        shape = convolve(*(ruda.asarray(a) for a in given)).shape
        g = normal(2, *shape)
        found = both_ways(device, dtype, given, convolve, g)
        exact = both_ways("cpu", "float64", given, convolve, g)
        for got, want in zip(found, exact, strict=True):
            scale = float(np.abs(want.numpy()).max())
            assert_close(got.to("cpu"), want.numpy(), length=2000, scale=scale, name=name)


@pytest.mark.parametrize(("function", "rank"), [(F.conv1d, 1), (F.conv3d, 3)])
def test_convolution_in_other_dimensions(function: Any, rank: int, device: str) -> None:
    x, w = normal(0, 2, 8, *(9, 7, 6)[:rank]), normal(1, 8, 8, *(3,) * rank)
    out = function(ruda.asarray(x), ruda.asarray(w), padding=1)
    g = normal(2, *out.shape)

    def convolve(*x: ruda.Tensor) -> ruda.Tensor:
        return function(*x, padding=1)

    found = both_ways(device, "float32", (x, w), convolve, g)
    exact = both_ways("cpu", "float64", (x, w), convolve, g)
    for got, want in zip(found, exact, strict=True):
        scale = float(np.abs(want.numpy()).max())
        assert_close(got.to("cpu"), want.numpy(), length=2000, scale=scale)


@needs_cudnn
def test_an_image_of_three_channels_goes_in_by_pairs_of_pixels(device: str) -> None:
    arrays, g = (normal(0, 8, 3, 256, 256), normal(1, 64, 3, 7, 7)), normal(2, 8, 128, 128, 64)

    def convolve(x: ruda.Tensor, w: ruda.Tensor) -> ruda.Tensor:
        return F.conv2d(x.permute_dims((0, 2, 3, 1)).copy(), w, None, 2, 3, layout="nhwc")

    found = both_ways(device, "bfloat16", arrays, convolve, g)
    exact = both_ways("cpu", "float32", arrays, convolve, g)
    for got, want in zip(found, exact, strict=True):
        scale = float(np.abs(want.numpy()).max())
        assert_close(got.to("cpu"), want.numpy(), length=64, scale=scale)


@needs_cudnn
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ordered_convolutions_repeat_bit_by_bit(dtype: str, device: str) -> None:
    """Of this one in float32 the fastest kernel for the gradient of x adds in any order."""
    arrays, g = (normal(0, 32, 512, 7, 7), normal(1, 512, 512, 3, 3)), normal(2, 32, 512, 7, 7)
    x, w, dy = (ruda.asarray(a, dtype=dtype, device=device) for a in (*arrays, g))

    def run() -> list[ruda.Tensor]:
        operands = [t.detach().requires_grad_() for t in (x, w)]
        F.conv2d(*operands, padding=1).backward(dy)
        return [t.grad for t in operands]

    assert "conv_data_backward" in client(device).ordered_prices
    with ruda.deterministic():
        first = run()
        for _ in range(10):
            assert all(bool((a == b).all()) for a, b in zip(run(), first, strict=True))


@needs_cudnn
def test_leave_for_products_is_none_for_convolutions(device: str) -> None:
    x, w = (ruda.asarray(normal(i, 8, 32, 16, 16), dtype="float32", device=device) for i in (0, 1))
    want = F.conv2d(x, w[:, :, :3, :3].copy(), padding=1)
    with ruda.precision(matmul="tf32"):
        got = F.conv2d(x, w[:, :, :3, :3].copy(), padding=1)
    assert bool((got == want).all())
