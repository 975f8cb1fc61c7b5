"""Each kernel of the extra ``cpu`` against the NumPy reference of its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from tests.backends.numpy.pairs import EPS, SPECIAL, both, check, normal

pytest.importorskip("numba")
pytest.importorskip("threadpoolctl")

# Odd ones, none, one, more than a tile.
SIZES = [0, 1, 7, 1000, (1 << 18) + 3, 3 * (1 << 18) + 1]
UNARY = ["tanh", "sigmoid", "silu", "gelu", "gelu_tanh"]
BINARY = ["silu_backward", "swiglu", "gelu_backward", "gelu_tanh_backward", "relu_backward"]
ROWS = [(1, 1), (3, 7), (0, 5), (5, 1000), (700, 1000), (2, 3, 129)]


def pointwise_bound(*values: Any) -> Any:
    """A dozen roundings of factors that grow with the operands."""
    with np.errstate(all="ignore"):
        return 16 * EPS * np.prod([1 + np.abs(v) for v in values], axis=0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", UNARY)
def test_activations(name: str, size: int) -> None:
    x = normal(size) * 4
    check(*both(name, [x]), pointwise_bound(x))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", BINARY)
def test_gradients_of_activations(name: str, size: int) -> None:
    g, x = normal(size), normal(size, seed=1) * 3
    check(*both(name, [g, x]), pointwise_bound(g, x, x))


@pytest.mark.parametrize("name", UNARY)
def test_special_values_of_activations(name: str) -> None:
    x = np.array(SPECIAL, np.float32)
    check(*both(name, [x]), pointwise_bound(np.clip(x, -1e3, 1e3)))


@pytest.mark.parametrize("name", BINARY)
def test_special_values_of_gradients(name: str) -> None:
    x = np.repeat(np.array([v for v in SPECIAL if not abs(v) > 1e6], np.float32), 2)
    x = np.append(x, np.float32([np.nan, np.inf, -np.inf]))
    g = np.resize(np.float32([1, -2]), x.size)
    check(*both(name, [g, x]), pointwise_bound(g, np.where(np.isfinite(x), x, 0)))


def test_a_view_in_another_order_is_left_to_numpy() -> None:
    x = ruda.asarray(normal(600, 700)).mT
    expected = normal(600, 700).T
    found = ruda.nn.functional.silu(x).numpy()
    exact = expected / (1 + np.exp(-expected.astype(np.float64)))
    assert np.abs(found - exact).max() <= 32 * EPS


def row_bound(x: Any, factor: float = 8.0) -> Any:
    """Sums of n terms in any order, on results of about 1."""
    return factor * EPS * (8 + x.shape[-1] ** 0.5)


@pytest.mark.parametrize("shape", ROWS)
def test_softmax(shape: tuple[int, ...]) -> None:
    x, g, axis = normal(*shape), normal(*shape, seed=1), len(shape) - 1
    for name in ("softmax", "log_softmax"):
        found, expected = both(name, [x], axis)
        check(found, expected, row_bound(x))
        check(*both(f"{name}_backward", [g, expected[0]], axis), 4 * row_bound(x))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_rows_with_special_values(name: str) -> None:
    x = np.zeros((7, 5), np.float32)
    x[0, 2], x[1, 1], x[2, 3], x[3] = np.nan, np.inf, -np.inf, -np.inf
    x[4, 0], x[5, 4], x[6] = -np.float32(np.nan), 3e38, -3e38
    allowed = 8 * EPS if name == "softmax" else np.where(np.abs(x) > 1, np.abs(x) * EPS, 8 * EPS)
    check(*both(name, [x], 1), np.broadcast_to(allowed, x.shape).astype(np.float64) + 8 * EPS)


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("affine", [True, False])
def test_norms(shape: tuple[int, ...], affine: bool) -> None:
    x, g, axis, n = normal(*shape) + 1, normal(*shape, seed=1), len(shape) - 1, shape[-1]
    w, b = (normal(n, seed=2), normal(n, seed=3)) if affine else (None, None)
    rows = max(int(np.prod(shape[:-1])), 1)
    # A row of one element has no spread: there 1 / sqrt(eps) scales every rounding.
    scale = 1.0 if n > 1 else 300.0
    bound, sums = 16 * scale * row_bound(x), 16 * scale * EPS * (8 + rows)
    _, mean, rstd = both("layer_norm", [x, w, b], axis, 1e-5)[1]
    check(*both("layer_norm", [x, w, b], axis, 1e-5), bound)
    check(*both("layer_norm_backward", [g, x, w, mean, rstd], axis), [bound, sums, sums])
    _, rstd = both("rms_norm", [x, w], axis, 1e-6)[1]
    check(*both("rms_norm", [x, w], axis, 1e-6), bound)
    check(*both("rms_norm_backward", [g, x, w, rstd], axis), [bound, sums])


@pytest.mark.parametrize("settings", [(-100, 0.0, 0.0), (3, 0.1, 0.0), (-100, 0.2, 0.01)])
@pytest.mark.parametrize("shape", [(1, 4), (9, 33), (400, 1000), (2, 3, 7)])
def test_cross_entropy(shape: tuple[int, ...], settings: tuple[Any, ...]) -> None:
    x, axis, rows = normal(*shape) * 3, len(shape) - 1, shape[:-1]
    target = np.arange(int(np.prod(rows)), dtype=np.int32).reshape(rows) % shape[-1]
    target[(0,) * len(rows)] = settings[0] if settings[0] >= 0 else 0
    found, expected = both("cross_entropy", [x, target, None], axis, *settings)
    check(found, expected, 16 * row_bound(x))
    g = normal(*rows, seed=5)
    values = [g, x, target, expected[1], None]
    check(*both("cross_entropy_backward", values, axis, *settings), 16 * row_bound(x))


def test_a_class_out_of_range_raises_as_ever() -> None:
    x, target = normal(300, 300), np.zeros(300, np.int64)
    target[7] = 300
    with pytest.raises(ruda.IndexRangeError, match=r"cross_entropy: no such class. Got 300 at"):
        ruda.nn.functional.cross_entropy(ruda.asarray(x), ruda.asarray(target))


ATTENTION = [
    # q, heads of k, keys, Dv, causal, window
    ((2, 4, 64, 32), 4, 64, 32, True, None),
    ((1, 2, 5, 3), 1, 9, 4, True, None),
    ((1, 2, 9, 3), 2, 5, 4, True, None),
    ((2, 6, 70, 16), 2, 70, 8, False, (5, 3)),
    ((1, 1, 700, 8), 1, 900, 8, False, None),
    ((3, 2, 33, 8), 2, 33, 8, False, (None, -40)),
]


@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case: Any) -> None:
    shape, heads, keys, width, causal, window = case
    q, k = normal(*shape), normal(shape[0], heads, keys, shape[3], seed=1)
    v, attrs = normal(shape[0], heads, keys, width, seed=2), (causal, 0.3, None, window, "auto")
    none = [None] * 5
    found, expected = both("attention", [q, k, v, *none], *attrs)
    bound = 16 * EPS * (8 + keys**0.5)
    check(found, expected, bound)
    g, dlse = normal(*expected[0].shape, seed=3), normal(*shape[:3], seed=4)
    for second in (dlse, None):
        values = [g, second, q, k, v, *expected, *none]
        group = shape[2] * shape[1] // heads
        check(*both("attention_backward", values, *attrs), 16 * EPS * (8 + max(group, keys)))


def test_attention_of_transposed_operands() -> None:
    packed = normal(2, 40, 3, 4, 16)
    q, k, v = (ruda.asarray(packed).permute_dims((2, 0, 3, 1, 4))[i] for i in range(3))
    attrs = (True, 0.25, None, None, "auto")
    check(*both("attention", [q, k, v, *[None] * 5], *attrs), 16 * EPS * 15)


CONVS = [
    ((2, 4, 9, 9), (6, 4, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((3, 4, 11, 8), (6, 2, 3, 2), (2, 1), ((0, 1), (2, 0)), (1, 2), 2),
    ((1, 3, 400), (5, 3, 1), (1,), ((0, 0),), (1,), 1),
    ((4, 16, 64, 64), (8, 16, 5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1), 1),
]


@pytest.mark.parametrize("case", CONVS)
def test_convolution(case: Any) -> None:
    shape, kernel, *settings = case
    x, w, attrs = normal(*shape), normal(*kernel, seed=1), (*settings, "nchw", "auto")
    found, expected = both("conv", [x, w], *attrs)
    depth = int(np.prod(kernel[1:]))
    check(found, expected, 8 * EPS * (8 + depth))
    g = normal(*expected[0].shape, seed=2)
    places = g.size // kernel[0]
    bound = 8 * EPS * (8 + places**0.5) * 8
    check(*both("conv_weight_backward", [g, x], kernel, *attrs), bound)
    if all(s == 1 for s in settings[0]):
        check(*both("conv_data_backward", [g, w], shape, *attrs), 8 * EPS * (8 + depth))


@pytest.mark.parametrize("size", [1, 5, 1000, 3 * (1 << 18) + 1])
@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("maximize", [True, False])
def test_adamw(size: int, decoupled: bool, maximize: bool) -> None:
    p, g, m, v = (normal(size, seed=i) for i in range(4))
    values = [p, g, m, v * v, np.array(3), np.array(0.1), 0.9, 0.99, 1e-8, 0.2]
    allowed = 32 * EPS * (1 + np.abs(p) + np.abs(m) / np.sqrt(v * v * 0.99))
    bounds = [allowed, 8 * EPS * (1 + np.abs(m)), 8 * EPS * (1 + v * v), 0]
    check(*both("adamw_step", values, decoupled, maximize), bounds)


@pytest.mark.parametrize("step", [0, 4])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("decay", [None, 0.1])
def test_momentum(step: int, nesterov: bool, decay: float | None) -> None:
    p, g, b = (normal(1001, seed=i) for i in range(3))
    values = [p, g, b, np.array(step), np.array(0.1), 0.9, 0.3, decay]
    bound = 8 * EPS * (4 + np.abs(p) + np.abs(g) + np.abs(b))
    check(*both("momentum_step", values, nesterov, step == 4), [bound, bound, 0])


@pytest.mark.parametrize("size", [0, 1, 1001, 3 * (1 << 18) + 1])
def test_casts_are_bit_equal(size: int) -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, size, dtype=np.uint32)
    x = bits.view(np.float32)
    found, expected = both("astype", [x], ruda.bfloat16)
    seen = [a.view(np.uint16).astype(np.int32) for a in (found[0], expected[0])]
    np.testing.assert_array_equal(*seen)
    wide = ruda.asarray(expected[0])
    found, expected = both("astype", [wide], ruda.float32)
    np.testing.assert_array_equal(found[0].view(np.uint32), expected[0].view(np.uint32))
