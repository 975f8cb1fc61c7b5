"""Large results: NumPy's loops in tiles and products in parts give what one call gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.backends.numpy import products
from ruda.ops.table import TABLE
from tests.backends.numpy.pairs import EPS, normal

SETTINGS = ["auto", "off"]
SIZE = (1 << 19) + 5


@pytest.fixture(params=SETTINGS, autouse=True)
def setting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra and without; plans are made anew by each test and after it."""
    monkeypatch.setenv("RUDA_CPU_KERNELS", request.param)
    ops = [TABLE[name] for name in ("add", "multiply", "tanh", "equal", "matmul", "linear")]
    for op in ops:
        op.clear()
    yield
    for op in ops:
        op.clear()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y,
        lambda x, y: x * 2.5,
        lambda x, y: -0.0 * x,
        lambda x, y: x == y,
    ],
)
def test_arithmetic_is_bit_equal(function: Any) -> None:
    a, b = normal(SIZE), np.round(normal(SIZE, seed=1))
    a[:8], a[-1] = b[:8], np.nan
    found = function(ruda.asarray(a), ruda.asarray(b)).numpy()
    expected = function(a, b)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def test_a_function_is_bit_equal() -> None:
    a = normal(4, SIZE // 4) * 10
    np.testing.assert_array_equal(ruda.exp(ruda.asarray(a)).numpy(), np.exp(a))


def test_operands_that_broadcast_or_lie_otherwise() -> None:
    a, row = normal(700, 800), normal(800, seed=1)
    x = ruda.asarray(a)
    np.testing.assert_array_equal((x + ruda.asarray(row)).numpy(), a + row)
    np.testing.assert_array_equal((x.mT * x.mT).numpy(), a.T * a.T)
    np.testing.assert_array_equal((x[:, ::2] + 1).numpy(), a[:, ::2] + np.float32(1))


def test_copies_in_another_order() -> None:
    a, b = normal(70, 90, 60), normal(70, 90, 20, seed=1)
    x, y = ruda.asarray(a), ruda.asarray(b)
    turned = x.permute_dims((2, 0, 1))
    np.testing.assert_array_equal(
        turned.reshape((60, -1)).numpy(), a.transpose(2, 0, 1).reshape(60, -1)
    )
    np.testing.assert_array_equal(ruda.contiguous(turned).numpy(), a.transpose(2, 0, 1))
    np.testing.assert_array_equal(ruda.concat([x, y], axis=2).numpy(), np.concatenate([a, b], 2))
    pair = [x.mT, x.mT[:, :7]]
    wanted = np.concatenate([a.transpose(0, 2, 1), a.transpose(0, 2, 1)[:, :7]], 1)
    np.testing.assert_array_equal(ruda.concat(pair, axis=1).numpy(), wanted)


PRODUCTS = [
    ((700, 300), (300, 500)),
    ((17, 2000), (2000, 900)),
    ((900, 2000), (2000, 3)),
    ((3, 70, 300), (300, 500)),
    ((5, 70, 300), (5, 300, 200)),
    ((2, 3, 128, 64), (2, 3, 64, 128)),
    ((1, 400), (400, 30000)),
    ((2, 5, 0), (0, 7)),
    ((0, 400), (400, 7)),
    ((3, 128, 64), (64, 1)),
]


@pytest.mark.parametrize("shapes", PRODUCTS)
@pytest.mark.parametrize("transposed", [False, True])
def test_products(shapes: Any, transposed: bool) -> None:
    a, b = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    x, y = ruda.asarray(a), ruda.asarray(b)
    if transposed:
        x, y = (ruda.asarray(v.swapaxes(-1, -2).copy()).mT for v in (a, b))
    exact = a.astype("f8") @ b.astype("f8")
    # Rounding errors of sums of k products grow with their sizes, and as a walk of k steps.
    bound = EPS * (4 + a.shape[-1] ** 0.5) * (np.abs(a) @ np.abs(b))
    assert (np.abs((x @ y).numpy() - exact) <= bound).all()
    if b.ndim == 2:
        bias = normal(b.shape[1], seed=3)
        weight = ruda.asarray(b.T.copy())
        found = ruda.nn.functional.linear(x, weight, ruda.asarray(bias)).numpy()
        assert (np.abs(found - exact - bias) <= bound + EPS * np.abs(exact + bias)).all()
        bare = ruda.nn.functional.linear(x, weight).numpy()
        assert (np.abs(bare - exact) <= bound).all()


def test_parts_of_a_product_depend_on_its_shape_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "enabled", lambda: True)
    assert products.cut(1000, 1000, 10) == products.cut(1000, 1000, 10)
    for rows, columns in ((1000, 30), (30, 1000)):
        axis, parts = products.cut(rows, 4000, columns)
        assert axis == (0 if rows > columns else 1)
        assert [i for p in parts for i in range(p.start, p.stop)] == list(range(1000))
        assert len(parts) == 4
    assert products.cut(4, 4, 4).parts == []
