"""Convolution against PyTorch and NumPy: settings, dtypes, derivatives, autocast, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.ops.reference.conv import conv_forward
from tests.ops.peer import assert_near, assert_same, torch

SETTINGS: dict[str, Any] = {
    "plain": ((2, 3, 7), (4, 3, 3), {}),
    "stride": ((2, 3, 9, 8), (4, 3, 3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    "dilation": ((1, 4, 9, 9), (4, 4, 3, 3), {"dilation": 2, "padding": 2}),
    "groups": ((2, 4, 6, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 4, 6), (8, 1, 3), {"groups": 4, "stride": 2}),
    "same": ((2, 3, 6), (4, 3, 4), {"padding": "same"}),
    "valid": ((2, 3, 6, 6), (4, 3, 2, 2), {"padding": "valid"}),
    "solid": ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"stride": (1, 2, 1), "padding": 1}),
    "no batch axis": ((3, 6, 6), (4, 3, 2, 2), {}),
    "no images": ((0, 3, 6), (4, 3, 3), {}),
}
CONVS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}


def values(*shape: int, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(np.prod(shape, dtype=int))
    out = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        out = out + 1j * rng.standard_normal(shape)
    return out.astype(dtype)


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("name", SETTINGS)
def test_against_torch(name: str, bias: bool) -> None:
    x, w, options = SETTINGS[name]
    theirs = getattr(torch().nn.functional, f"conv{len(w) - 2}d")
    arrays = [values(*x), values(*w)] + [values(w[0])] * bias
    assert_same(lambda *a: CONVS[len(w)](*a, **options), lambda *a: theirs(*a, **options), *arrays)


TRANSPOSED: dict[str, Any] = {
    "plain": ((2, 3, 5), (3, 4, 3), {}),
    "stride": ((2, 3, 4, 5), (3, 4, 3, 2), {"stride": (2, 3), "output_padding": (1, 2)}),
    "groups": ((2, 4, 6), (4, 3, 3), {"groups": 2, "padding": 1, "dilation": 2}),
    "solid": ((1, 2, 3, 2, 3), (2, 2, 2, 2, 1), {"stride": 2}),
    "no batch axis": ((3, 4, 4), (3, 2, 2, 2), {}),
    "output padding of a dilation": (
        (2, 3, 4, 5),
        (3, 2, 2, 3),
        {"stride": (1, 2), "dilation": (3, 4), "padding": (1, 0), "output_padding": (2, 3)},
    ),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_against_torch(name: str) -> None:
    x, w, options = TRANSPOSED[name]
    call = f"conv_transpose{len(w) - 2}d"
    mine, theirs = getattr(F, call), getattr(torch().nn.functional, call)
    arrays = values(*x), values(*w), values(w[1] * options.get("groups", 1))
    assert_same(lambda *a: mine(*a, **options), lambda *a: theirs(*a, **options), *arrays)


LAYOUTS = [(layout, s) for layout in ("nchw", "nhwc") for s in ("direct", "implicit_gemm")]


@pytest.mark.parametrize(("layout", "strategy"), LAYOUTS)
@pytest.mark.parametrize("name", [n for n in SETTINGS if n != "no batch axis"])
def test_layouts_and_strategies_against_torch(name: str, layout: str, strategy: str) -> None:
    x, w, options = SETTINGS[name]
    theirs = getattr(torch().nn.functional, f"conv{len(w) - 2}d")
    last = layout == "nhwc"

    def mine(a: Any, *rest: Any) -> Any:
        given = ruda.moveaxis(a, 1, -1) if last else a
        out = CONVS[len(w)](given, *rest, **options, layout=layout, strategy=strategy)
        return ruda.moveaxis(out, -1, 1) if last else out

    arrays = values(*x), values(*w), values(w[0])
    assert_same(mine, lambda *a: theirs(*a, **options), *arrays)


@pytest.mark.parametrize("name", ["stride", "groups", "depthwise", "solid"])
def test_channels_last_throughout(name: str) -> None:
    x, w, options = SETTINGS[name]
    a, b, bias = (ruda.asarray(values(*s)) for s in (x, w, w[:1]))
    expected = CONVS[len(w)](a, b, bias, **options)
    got = F.conv_forward_nhwc(ruda.moveaxis(a, 1, -1), ruda.moveaxis(b, 1, -1), bias, **options)
    assert_near(ruda.moveaxis(got, -1, 1), expected)


def test_backwards_take_the_layout_of_the_input() -> None:
    x = ruda.tensor(values(2, 7, 4), requires_grad=True)
    w = ruda.tensor(values(6, 2, 3), requires_grad=True)
    settings = {"stride": 2, "padding": 1, "groups": 2, "layout": "nhwc"}
    out = F.conv1d(x, w, **settings)
    g = ruda.asarray(values(*out.shape))
    out.backward(g)
    assert_near(F.conv_data_backward(g, w, x.shape, **settings), x.grad)
    assert_near(F.conv_weight_backward(g, x, w.shape, **settings), w.grad)


def test_a_strategy_runs_or_raises() -> None:
    x, w = ruda.ones((1, 4, 8, 8)), ruda.ones((4, 1, 3, 3))
    told = F.explain_conv(ruda.moveaxis(x, 1, -1), w, layout="nhwc")
    assert told.chosen == "direct"
    assert told.strategies["implicit_gemm"] is True
    assert F.explain_conv(x, w, 2, 1, groups=4).chosen == "implicit_gemm"
    with pytest.raises(ruda.ShapeError, match="no window fits"):
        F.explain_conv(x, w, dilation=9)
    with pytest.raises(ruda.StrategyError, match="vendor") as caught:
        F.conv2d(x, w, groups=4, strategy="vendor")
    assert str(told.strategies["vendor"]) in str(caught.value)


def test_complex_against_torch() -> None:
    arrays = [values(s, 4, 5, dtype=np.complex128) for s in (2, 3)]
    theirs = torch().nn.functional.conv1d
    assert_same(
        lambda x, w: F.conv1d(x, w, padding=1), lambda x, w: theirs(x, w, padding=1), *arrays
    )


def test_uneven_padding_is_that_of_a_padded_input() -> None:
    x, w = values(1, 2, 5, 6), values(3, 2, 2, 3)
    out = F.conv2d(ruda.asarray(x), ruda.asarray(w), padding=((1, 0), (0, 2)))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)))
    assert_near(out, F.conv2d(ruda.asarray(padded), ruda.asarray(w)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_round_once(dtype: str) -> None:
    x, w = (ruda.asarray(values(2, 3, 8, dtype=np.float32)).astype(dtype) for _ in range(2))
    wide = conv_forward(
        x.astype("float32").numpy(), w.astype("float32").numpy(), (1,), ((1, 1),), (1,), 1
    )
    out = F.conv1d(x, w, padding=1)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out.numpy(), wide.astype(out.dtype.numpy))


def test_transposed_and_sliced_operands() -> None:
    x, w = values(6, 3, 2), values(4, 9)[:, ::3].reshape(4, 3, 1)
    out = F.conv1d(ruda.asarray(x).mT.mT[::2], ruda.asarray(w))
    assert_near(out, F.conv1d(ruda.asarray(x[::2].copy()), ruda.asarray(w.copy())))


def test_public_backwards_are_the_gradients() -> None:
    x = ruda.tensor(values(2, 3, 7), requires_grad=True)
    w = ruda.tensor(values(4, 3, 3), requires_grad=True)
    out = F.conv1d(x, w, stride=2, padding=1)
    g = ruda.asarray(values(*out.shape))
    out.backward(g)
    assert_near(F.conv_data_backward(g, w, x.shape, stride=2, padding=1), x.grad)
    assert_near(F.conv_weight_backward(g, x, w.shape, stride=2, padding=1), w.grad)


def test_autocast_lowers_the_product_and_the_bias() -> None:
    x, w, b = ruda.ones((1, 2, 4)), ruda.ones((3, 2, 2)).requires_grad_(), ruda.ones(3)
    with ruda.autocast("bfloat16"):
        out = F.conv1d(x, w, b)
    assert out.dtype == "bfloat16"
    ruda.sum(out).backward()
    assert w.grad is not None
    assert w.grad.dtype == "float32"


def test_a_double_input_does_not_widen_a_single_model() -> None:
    with pytest.raises(TypeError, match=r"Try w.astype\('float64'\)"):
        F.conv1d(ruda.asarray(values(1, 2, 4)), ruda.ones((3, 2, 2)))
