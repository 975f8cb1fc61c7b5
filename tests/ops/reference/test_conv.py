"""Convolution references against loops over every window, each other's transposes, and PyTorch."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from ruda.ops.reference import conv
from ruda.ops.reference.windows import Array


class Case(NamedTuple):
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def setup(self) -> tuple[object, ...]:
        return self.stride, self.padding, self.dilation, self.groups


CASES = {
    "plain": Case((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "same": Case((3, 2, 5, 5), (2, 2, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "pointwise": Case((2, 4, 5, 3), (6, 4, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "pointwise strided": Case((2, 4, 5, 4), (6, 2, 1, 1), (2, 3), ((0, 0), (0, 0)), (1, 1), 2),
    "odd": Case((2, 4, 9, 11), (6, 2, 3, 2), (2, 3), ((2, 0), (1, 3)), (2, 1), 2),
    "depthwise": Case((2, 3, 7, 6), (3, 1, 3, 3), (1, 1), ((1, 1), (2, 0)), (1, 2), 3),
    "multiplier": Case((1, 2, 7, 6), (6, 1, 2, 3), (2, 1), ((1, 0), (0, 0)), (1, 1), 2),
    "over-padded": Case((2, 2, 4, 4), (3, 2, 2, 1), (1, 1), ((3, 2), (1, 0)), (1, 1), 1),
    "kernel beyond input": Case((2, 2, 2, 3), (2, 2, 5, 3), (1, 1), ((2, 1), (0, 2)), (1, 1), 1),
    "unread tail": Case((1, 2, 8, 8), (2, 2, 2, 2), (3, 5), ((0, 0), (0, 0)), (1, 1), 1),
    "one axis": Case((3, 4, 13), (2, 2, 4), (3,), ((1, 2),), (2,), 2),
    "three axes": Case(
        (2, 2, 4, 5, 3), (4, 1, 2, 3, 2), (1, 2, 1), ((0, 1), (1, 1), (0, 0)), (2, 1, 1), 2
    ),
    "no image": Case((0, 2, 5, 5), (3, 2, 3, 3), (1, 2), ((1, 1), (0, 0)), (1, 1), 1),
    "no channel out": Case((2, 2, 5, 5), (0, 2, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "no channel in": Case((2, 0, 5, 5), (3, 0, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def draw(case: Case, dtype: str = "float64") -> tuple[Array, Array, Array]:
    """Draw x, w and an output gradient."""
    rng = np.random.default_rng(7)
    shape = conv.conv_output_shape(case.x, case.w, *case.setup[:3])

    def normal(size: tuple[int, ...]) -> Array:
        values = rng.standard_normal(size)
        if np.dtype(dtype).kind == "c":
            values = values + 1j * rng.standard_normal(size)
        return values.astype(dtype)

    return normal(case.x), normal(case.w), normal(shape)


def correlate(x: Array, w: Array, case: Case) -> Array:
    """Apply the definition: one sum per output element."""
    padded = np.pad(x, ((0, 0), (0, 0), *case.padding))
    out = np.zeros(conv.conv_output_shape(x.shape, w.shape, *case.setup[:3]), x.dtype)
    per_group = w.shape[0] // case.groups
    for n, o, *at in product(*map(range, out.shape)):
        first = o // per_group * w.shape[1] if per_group else 0
        for c, *k in product(*map(range, w.shape[1:])):
            where = [
                i * s + j * d for i, j, s, d in zip(at, k, case.stride, case.dilation, strict=True)
            ]
            out[(n, o, *at)] += w[(o, c, *k)] * padded[(n, first + c, *where)]
    return out


def tolerance(dtype: str) -> float:
    """Bound the error of a sum of at most 2 ** 10 products of order one, relative to its norm."""
    return 2.0**5 * float(np.finfo(dtype).eps)


def assert_near(actual: Array, expected: Array, dtype: str) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == np.dtype(dtype)
    assert actual.flags.c_contiguous
    error = np.linalg.norm((actual - expected).reshape(-1))
    assert error <= tolerance(dtype) * np.linalg.norm(expected.reshape(-1))


@each_case
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_forward_is_the_definition(case: Case, dtype: str) -> None:
    x, w, _ = draw(case, dtype)
    wide = "complex128" if np.dtype(dtype).kind == "c" else "float64"
    expected = correlate(x.astype(wide), w.astype(wide), case)
    assert_near(conv.conv_forward(x, w, *case.setup), expected, dtype)


@each_case
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_backwards_are_transposes(case: Case, dtype: str) -> None:
    x, w, g = draw(case, dtype)
    dx = conv.conv_data_backward(g, w, x.shape, *case.setup)
    dw = conv.conv_weight_backward(g, x, w.shape, *case.setup)
    assert dx.shape == x.shape
    assert dx.dtype == x.dtype
    assert dw.shape == w.shape
    assert dw.dtype == w.dtype
    direct = correlate(x, w, case)
    scale = tolerance(dtype) * (np.abs(direct) * np.abs(g)).sum()
    assert abs((direct * g).sum() - (x * dx).sum()) <= scale
    assert abs((direct * g).sum() - (w * dw).sum()) <= scale


@each_case
def test_data_backward_per_element(case: Case) -> None:
    x, w, g = draw(case)
    dx = conv.conv_data_backward(g, w, x.shape, *case.setup)
    for at in np.random.default_rng(1).integers(0, max(x.size, 1), 5 if x.size else 0):
        unit = np.zeros(x.shape)
        unit.reshape(-1)[at] = 1
        assert dx.reshape(-1)[at] == pytest.approx((correlate(unit, w, case) * g).sum(), abs=1e-12)


@pytest.mark.parametrize("tile_bytes", [1, 500, 3000])
@pytest.mark.parametrize("name", ["odd", "same", "one axis", "three axes", "pointwise strided"])
def test_tiling_changes_nothing(
    name: str, tile_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    x, w, g = draw(case)
    monkeypatch.setattr(conv, "_TILE_BYTES", tile_bytes)
    assert_near(conv.conv_forward(x, w, *case.setup), correlate(x, w, case), "float64")
    dx = conv.conv_data_backward(g, w, x.shape, *case.setup)
    dw = conv.conv_weight_backward(g, x, w.shape, *case.setup)
    assert (x * dx).sum() == pytest.approx((w * dw).sum(), rel=1e-12)


def test_strided_and_expanded_operands() -> None:
    case = CASES["odd"]
    x, w, g = draw(case)
    turned = np.asfortranarray(x), np.ascontiguousarray(w[..., ::-1])[..., ::-1]
    flat = np.broadcast_to(g[:1, :1, :1, :1], g.shape)
    assert_near(conv.conv_forward(*turned, *case.setup), correlate(x, w, case), "float64")
    for gradient in (np.asfortranarray(g), flat):
        copied = np.array(gradient, order="C")
        assert_near(
            conv.conv_data_backward(gradient, turned[1], x.shape, *case.setup),
            conv.conv_data_backward(copied, w, x.shape, *case.setup),
            "float64",
        )
        assert_near(
            conv.conv_weight_backward(gradient, turned[0], w.shape, *case.setup),
            conv.conv_weight_backward(copied, x, w.shape, *case.setup),
            "float64",
        )


@each_case
def test_matches_torch(case: Case) -> None:
    torch = pytest.importorskip("torch")
    if 0 in case.x or 0 in case.w:
        pytest.skip("PyTorch refuses some empty convolutions")
    x, w, g = draw(case)
    functional = torch.nn.functional
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[len(case.stride) - 1]
    tx, tw = (torch.tensor(a, requires_grad=True) for a in (x, w))
    sides = [side for pair in reversed(case.padding) for side in pair]
    y = convolve(
        functional.pad(tx, sides),
        tw,
        stride=case.stride,
        dilation=case.dilation,
        groups=case.groups,
    )
    dx, dw = torch.autograd.grad(y, (tx, tw), torch.tensor(g))
    assert_near(conv.conv_forward(x, w, *case.setup), y.detach().numpy(), "float64")
    assert_near(conv.conv_data_backward(g, w, x.shape, *case.setup), dx.numpy(), "float64")
    assert_near(conv.conv_weight_backward(g, x, w.shape, *case.setup), dw.numpy(), "float64")


def test_output_shape_tells_when_nothing_fits() -> None:
    shape = conv.conv_output_shape((1, 1, 2), (1, 1, 5), (1,), ((1, 1),), (1,))
    assert shape == (1, 1, 0)
