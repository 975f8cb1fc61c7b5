"""``where`` and ``clip``: values against NumPy, types, gradients where values tie."""

from __future__ import annotations

import numpy as np
import pytest

import ruda
from ruda.core.errors import DTypeError
from ruda.ops.reference import blend


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("size", [7, 5000])
def test_where(dtype: str, size: int, rng: np.random.Generator) -> None:
    """Small operands and large ones, which take another road, with NaN and -0.0 among them."""
    x, y = (rng.standard_normal((2, size)).astype(dtype) for _ in range(2))
    x.flat[:3], y.flat[3:6] = 0, 0
    if dtype not in ("bool", "int8"):
        x.flat[1], y.flat[4] = np.nan, -0.0
    cond = rng.random((2, size)) < 0.5
    for c in (cond, cond[:1]):
        got = ruda.where(ruda.asarray(c), ruda.asarray(x), ruda.asarray(y)).numpy()
        assert got.tobytes() == np.where(c, x, y).tobytes()
    scalar = np.zeros((), dtype)
    for a, b in ((x, scalar), (scalar, x), (x, -scalar if dtype != "bool" else scalar)):
        got = ruda.where(ruda.asarray(cond), ruda.asarray(a), ruda.asarray(b)).numpy()
        assert got.tobytes() == np.where(cond, a, b).tobytes()
    strided = blend.where(cond[:, ::2], x[:, ::2], y[:, ::-1][:, ::2])
    np.testing.assert_array_equal(strided, np.where(cond[:, ::2], x[:, ::2], y[:, ::-1][:, ::2]))


def test_types_of_where() -> None:
    cond = ruda.asarray([True, False])
    assert ruda.where(cond, 1, 0).dtype is ruda.int32
    assert ruda.where(cond, 1.0, 0).dtype is ruda.float32
    assert ruda.where(cond, ruda.asarray([1, 2], dtype="int8"), 0).dtype is ruda.int8
    assert ruda.where(cond, ruda.asarray([1, 2], dtype="int8"), 0.5).dtype is ruda.float32
    assert ruda.where(cond, np.array([1.0, 2.0]), 0).dtype is ruda.float64
    assert ruda.where(True, ruda.asarray([1.0]), 2.0).tolist() == [1.0]
    with pytest.raises(DTypeError, match="where: the condition is not bool"):
        ruda.where(ruda.asarray([1, 0]), 1, 0)


def test_where_stops_gradients_of_what_was_not_taken() -> None:
    x = ruda.tensor([-1.0, 0.0, 4.0], requires_grad=True)
    ruda.where(x > 0, ruda.sqrt(ruda.where(x > 0, x, 1)), 0).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.25]


def test_clip() -> None:
    values = np.array([-np.inf, -2.0, 0.5, 2.0, np.inf, np.nan], np.float32)
    x = ruda.asarray(values)
    for low, high in ((-1, 1), (None, 1), (0.25, None), (1, -1)):
        np.testing.assert_array_equal(ruda.clip(x, low, high).numpy(), np.clip(values, low, high))
    bounds = np.linspace(-1, 1, 6, dtype=np.float32)
    got = x.clip(ruda.asarray(bounds), ruda.asarray(bounds + 1))
    np.testing.assert_array_equal(got.numpy(), np.clip(values, bounds, bounds + 1))
    copy = ruda.clip(x)
    assert not np.shares_memory(copy.numpy(), x.numpy())


def test_clip_of_integers() -> None:
    x = ruda.asarray([-5, 2**31 - 1, 3])
    assert x.clip(0, 10).tolist() == [0, 10, 3]
    assert x.clip(None, 10).tolist() == [-5, 10, 3]
    assert x.clip(min=0).tolist() == [0, 2**31 - 1, 3]
    assert x.clip(min=0).dtype is ruda.int32
    assert x.clip(0.5).dtype is ruda.float32


def test_gradient_of_clip_at_its_ends() -> None:
    x = ruda.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], requires_grad=True)
    low = ruda.tensor(-1.0, requires_grad=True)
    high = ruda.tensor(1.0, requires_grad=True)
    ruda.clip(x, low, high).sum().backward()
    assert [t.grad.tolist() for t in (x, low, high)] == [[0, 1, 1, 1, 0], 1, 1]  # type: ignore[union-attr]
    x.grad = None
    ruda.clip(x, min=-1).sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 1, 1]
