"""Exponentials, logarithms, trigonometric and hyperbolic functions against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import DTypeError
from ruda.testing import assert_close, gradcheck

NUMPY = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
ROOTS = ["sqrt", "square", "reciprocal", "rsqrt"]
EXPONENTIALS = ["exp", "exp2", "expm1", "log", "log1p", "log2", "log10"]
ANGLES = ["sin", "cos", "tan", "asin", "acos", "atan"]
HYPERBOLIC = ["sinh", "cosh", "tanh", "asinh", "acosh", "atanh"]
ALL = [*ROOTS, *EXPONENTIALS, *ANGLES, *HYPERBOLIC]
SPECIAL = np.array([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-30])


def reference(name: str, x: Any) -> Any:
    with np.errstate(all="ignore"):
        return NUMPY.get(name, getattr(np, name, None))(x)  # type: ignore[misc]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values(name: str, dtype: str) -> None:
    x = SPECIAL.astype(dtype)
    got, want = getattr(ruda, name)(ruda.asarray(x)).numpy(), reference(name, x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got) & (got == 0), np.signbit(want) & (want == 0))


@pytest.mark.parametrize("name", ALL)
def test_method_and_scalar(name: str) -> None:
    x = ruda.asarray([0.25, 0.75])
    assert_close(getattr(x, name)(), reference(name, np.array([0.25, 0.75], np.float32)))
    scalar = getattr(ruda, name)(0.75)
    assert scalar.dtype is ruda.float32
    assert scalar.shape == ()


@pytest.mark.parametrize("name", [n for n in ALL if n != "square"])
def test_integers_give_the_default_float(name: str) -> None:
    x = ruda.asarray([1, 2, 3])
    got = getattr(ruda, name)(x)
    assert got.dtype is ruda.float32
    assert_close(got, reference(name, np.array([1, 2, 3], np.float32)))


@pytest.mark.parametrize("name", ALL)
def test_half_types_round_once(name: str, rng: np.random.Generator) -> None:
    low, high = ruda_domain(name)
    for dtype in ("float16", "bfloat16"):
        x = ruda.asarray(rng.uniform(low, high, 100)).astype(dtype)
        want = reference(name, x.astype("float32").numpy()).astype(x.numpy().dtype)
        np.testing.assert_array_equal(getattr(ruda, name)(x).numpy(), want)


def ruda_domain(name: str) -> tuple[float, float]:
    return (1.1, 3.0) if name == "acosh" else (0.1, 0.9)


@pytest.mark.parametrize("name", ALL)
def test_complex_values(name: str, rng: np.random.Generator) -> None:
    x = rng.uniform(-2, 2, 40) + 1j * rng.uniform(-2, 2, 40)
    assert_close(getattr(ruda, name)(ruda.asarray(x)), reference(name, x))
    got = getattr(ruda, name)(ruda.asarray(x.astype(np.complex64)))
    assert got.dtype is ruda.complex64


# The square above holds points on both sides of every branch cut, away from the cuts themselves.
@pytest.mark.parametrize("name", ALL)
def test_complex_gradients_in_all_quadrants(name: str) -> None:
    x = np.array([0.7 + 0.9j, -0.7 + 0.9j, -0.7 - 0.9j, 0.7 - 0.9j])
    gradcheck(getattr(ruda, name), [x])


def test_functions_of_two() -> None:
    x, y = SPECIAL[:, None], SPECIAL[None, :]
    for name, numpy in (("atan2", np.arctan2), ("logaddexp", np.logaddexp)):
        with np.errstate(all="ignore"):
            want = numpy(x, y)
        got = getattr(ruda, name)(ruda.asarray(x), ruda.asarray(y))
        np.testing.assert_array_equal(got.numpy(), want)
    with pytest.raises(DTypeError, match="atan2: "):
        ruda.atan2(ruda.asarray([1j]), 1.0)


def test_gradient_of_logaddexp_at_infinities() -> None:
    x = ruda.tensor([-math.inf, 0.0, math.inf, 800.0], requires_grad=True)
    y = ruda.tensor([-math.inf, -math.inf, math.inf, -800.0], requires_grad=True)
    ruda.logaddexp(x, y).backward(ruda.ones(4))
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.tolist() == [0.5, 1.0, 0.5, 1.0]
    assert y.grad.tolist() == [0.5, 0.0, 0.5, 0.0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sigmoid_and_its_logarithm(dtype: str) -> None:
    x = np.array([-1e4, -700, -90, -20, -1, 0, 1, 20, 90, 1e4, np.inf, -np.inf, np.nan], dtype)
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        want = 1 / (1 + np.exp(-wide))
        log = np.where(wide < 0, wide - np.log1p(np.exp(wide)), -np.log1p(np.exp(-wide)))
    eps, tiny = np.finfo(dtype).eps, np.finfo(dtype).tiny
    got = ruda.sigmoid(ruda.asarray(x)).numpy()
    np.testing.assert_allclose(got, want.astype(dtype), rtol=4 * eps, atol=tiny)
    got = ruda.log_sigmoid(ruda.asarray(x)).numpy()
    np.testing.assert_allclose(got, log.astype(dtype), rtol=4 * eps, atol=tiny)
    inside = ruda.asarray(np.array([1e-6, 0.25, 0.5, 0.9], dtype))
    np.testing.assert_allclose(ruda.sigmoid(ruda.logit(inside)).numpy(), inside.numpy(), rtol=1e-5)
    assert ruda.logit(ruda.asarray([0.0, 1.0])).tolist() == [-math.inf, math.inf]


def test_xlogy() -> None:
    x, y = ruda.asarray([0.0, 0.0, 0.0, 2.0]), ruda.asarray([0.0, math.inf, math.nan, math.e])
    got = ruda.xlogy(x, y).numpy()
    np.testing.assert_allclose(got, [0.0, 0.0, math.nan, 2.0], rtol=1e-6)
    x = ruda.tensor([0.0, 2.0], requires_grad=True)
    ruda.xlogy(x, x).sum().backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()


def test_result_type_and_can_cast() -> None:
    x = ruda.ones(2, dtype="float16")
    assert ruda.result_type(x, 1.5) is ruda.float16
    assert ruda.result_type(x, ruda.bfloat16) is ruda.float32
    assert ruda.result_type("int8", np.array([1], np.uint8)) is ruda.int16
    assert ruda.result_type(ruda.int8, 1j) is ruda.complex64
    assert ruda.result_type(1, 2.0) is ruda.float32
    assert ruda.can_cast(x, ruda.float32)
    assert ruda.can_cast("uint8", ruda.int16)
    assert not ruda.can_cast(ruda.float64, ruda.float32)
    assert not ruda.can_cast(ruda.int64, ruda.uint64)
    with pytest.raises(DTypeError, match="no integer type holds both"):
        ruda.result_type(ruda.int64, ruda.uint64)
