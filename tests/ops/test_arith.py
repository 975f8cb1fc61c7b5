"""Arithmetic against NumPy: dtypes, integers at their limits, special values, gradients."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError, DTypeError, IntegerRangeError
from ruda.testing import assert_close, gradcheck

OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": operator.pow,
}
NUMPY = {"pow": np.power}
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, np.inf, -np.inf, np.nan])
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def reference(name: str) -> Any:
    return NUMPY.get(name) or getattr(np, name)


def same(got: ruda.Tensor, want: Any) -> None:
    """Equal, with NaN equal to itself and zeros of one sign; the same dtype too."""
    array = got.numpy()
    assert array.dtype == want.dtype
    np.testing.assert_array_equal(array, want)
    np.testing.assert_array_equal(np.signbit(array) & (array == 0), np.signbit(want) & (want == 0))


@pytest.mark.parametrize("name", OPERATORS)
def test_either_side_of_every_operator(name: str) -> None:
    """Tensor, array, Python and NumPy scalars: one result, always a tensor, never an ndarray."""
    x, y = np.array([1.5, 2.0, 4.0], np.float32), np.array([2.0, 0.5, 1.5], np.float32)
    run, want = OPERATORS[name], reference(name)(x, y)
    left, right = ruda.asarray(x), ruda.asarray(y)
    for a, b in ((left, right), (x, right), (left, y)):
        result = run(a, b)
        assert isinstance(result, ruda.Tensor)
        assert_close(result, want)
    for scalar in (2, 2.0, np.float64(2.0), np.int64(2), np.float32(2.0)):
        assert_close(run(left, scalar), reference(name)(x, np.float32(2)))
        assert_close(run(scalar, left), reference(name)(np.float32(2), x))
        assert run(scalar, left).dtype is ruda.float32


@pytest.mark.parametrize("name", OPERATORS)
def test_in_place_keeps_the_tensor_and_its_dtype(name: str) -> None:
    inplace = {"divide": "truediv", "floor_divide": "floordiv", "remainder": "mod"}
    short = {"subtract": "sub", "multiply": "mul"} | inplace
    run = getattr(operator, f"i{short.get(name, name)}")
    values = np.array([1.5, 2.0, 4.0], np.float32)
    x = ruda.tensor(values)
    view, before = x[1:], x
    x = run(x, 2.0)
    assert x is before
    assert x.dtype is ruda.float32
    assert_close(x, reference(name)(values, np.float32(2)))
    assert_close(view, x.numpy()[1:])


def test_in_place_refuses_a_result_of_another_kind() -> None:
    x = ruda.asarray([1, 2])
    with pytest.raises(DTypeError, match="would lose its kind"):
        x /= 2
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize("name", OPERATORS)
def test_foreign_operands_are_left_to_python(name: str) -> None:
    x = ruda.asarray([1.0])
    for foreign in (None, {}, object()):
        with pytest.raises(TypeError, match="unsupported operand"):
            OPERATORS[name](x, foreign)
        with pytest.raises(TypeError, match="unsupported operand"):
            OPERATORS[name](foreign, x)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_as_in_numpy(name: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 0, 1, 7], dtype)
    x, y = values[:, None], values[None, :]
    with np.errstate(all="ignore"):
        same(getattr(ruda, name)(ruda.asarray(x), ruda.asarray(y)), getattr(np, name)(x, y))


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_quotients(name: str, dtype: str) -> None:
    """Signs as Python has them; by zero gives zero; the lowest by -1 wraps around."""
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 0, 1, 2, 7], dtype)
    if info.min < 0:
        values = np.concatenate([values, np.array([-1, -2, -7], dtype)])
    x, y = values[:, None], values[None, :]
    got = getattr(ruda, name)(ruda.asarray(x), ruda.asarray(y)).numpy()
    assert got.dtype == dtype
    run = OPERATORS[name]
    for (i, a), (j, b) in itertools.product(enumerate(values.tolist()), repeat=2):
        exact = run(a, b) if b else 0
        assert got[i, j] == np.array(exact).astype(np.int64 if exact < 0 else np.uint64).astype(
            dtype
        ), (a, b)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "floor_divide"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values(name: str, dtype: str) -> None:
    x, y = SPECIAL.astype(dtype)[:, None], SPECIAL.astype(dtype)[None, :]
    with np.errstate(all="ignore"):
        same(getattr(ruda, name)(ruda.asarray(x), ruda.asarray(y)), getattr(np, name)(x, y))


def test_floor_divide_and_remainder_of_infinities() -> None:
    inf, nan = np.inf, np.nan
    x = ruda.asarray([5.0, -5.0, inf, 5.0, 0.0, nan], dtype="float64")
    y = ruda.asarray([inf, inf, 2.0, 0.0, 0.0, 1.0], dtype="float64")
    np.testing.assert_array_equal((x // y).numpy(), [0.0, -1.0, nan, inf, nan, nan])
    np.testing.assert_array_equal((x % y).numpy(), [5.0, inf, nan, nan, nan, nan])
    signs = ruda.asarray([5.0, -5.0, 5.0, -5.0]) % ruda.asarray([3.0, 3.0, -3.0, -3.0])
    assert signs.tolist() == [2.0, 1.0, -1.0, -2.0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_power_of_special_values(dtype: str) -> None:
    """Exponents as tensors and as Python scalars: the short cuts change no special case."""
    x, y = SPECIAL.astype(dtype)[:, None], SPECIAL.astype(dtype)[None, :]
    with np.errstate(all="ignore"):
        same(ruda.pow(ruda.asarray(x), ruda.asarray(y)), np.power(x, y))
        for n in (0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5):
            exponent = np.full(SPECIAL.shape, n, dtype)
            got = ruda.pow(ruda.asarray(x[:, 0]), n)
            want = np.power(x[:, 0], exponent)
            np.testing.assert_allclose(got.numpy(), want, rtol=4 * np.finfo(dtype).eps)
            np.testing.assert_array_equal(np.signbit(got.numpy()), np.signbit(want))


def test_small_powers_keep_subnormal_results() -> None:
    x = np.array([1e-20, 1e20, 3e-13], np.float32)
    for n in (3, -1, -2, 4):
        with np.errstate(over="ignore", under="ignore"):
            want = np.power(x.astype(np.float64), n).astype(np.float32)
        got = (ruda.asarray(x) ** n).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=3e-45)


def test_integer_powers() -> None:
    x = ruda.asarray([-3, 0, 7])
    assert (x**2).tolist() == [9, 0, 49]
    assert (x**3).dtype is ruda.int32
    assert (2 ** x.astype("float32")).tolist() == [0.125, 1.0, 128.0]
    assert (x**2.0).dtype is ruda.float32
    for bad in (lambda: x**-1, lambda: ruda.pow(x, -2), lambda: x**x, lambda: x ** np.int64(-1)):
        with pytest.raises(ArgumentError, match="pow: an integer to a negative power"):
            bad()


def test_python_integers_that_do_not_fit() -> None:
    small = ruda.asarray([1, 2], dtype="int8")
    assert (small + 127).tolist() == [-128, -127]
    for bad in (lambda: small + 128, lambda: -129 * small, lambda: small == 300):
        with pytest.raises(IntegerRangeError, match="does not fit"):
            bad()
    with pytest.raises(IntegerRangeError, match="-1"):
        ruda.asarray([1], dtype="uint8") + (-1)


def test_bools_count_as_numpy_has_it() -> None:
    x, y = np.array([True, True, False]), np.array([True, False, False])
    for name in ("add", "multiply", "maximum", "minimum", "floor_divide", "remainder"):
        with np.errstate(all="ignore"):
            same(getattr(ruda, name)(ruda.asarray(x), ruda.asarray(y)), getattr(np, name)(x, y))
    assert (ruda.asarray(x) ** ruda.asarray(y)).dtype is ruda.int8
    assert (ruda.asarray(x) / ruda.asarray(y)).dtype is ruda.float32
    assert ruda.abs(ruda.asarray(x)).dtype is ruda.bool
    assert (1 - ruda.asarray(x)).tolist() == [0, 0, 1]
    assert (ruda.asarray(x) + 1.5).tolist() == [2.5, 2.5, 1.5]


def test_dtypes_of_results() -> None:
    i8, i32, f16 = (ruda.ones(2, dtype=d) for d in ("int8", "int32", "float16"))
    bf16, c64 = ruda.ones(2, dtype="bfloat16"), ruda.ones(2, dtype="complex64")
    assert (i8 + i32).dtype is ruda.int32
    assert (i32 + f16).dtype is ruda.float16
    assert (f16 + bf16).dtype is ruda.float32
    assert (i32 / i32).dtype is ruda.float32
    assert (i32 * 0.5).dtype is ruda.float32
    assert (f16 * 1j).dtype is ruda.complex64
    assert ruda.abs(c64).dtype is ruda.float32
    assert ruda.sqrt(i32).dtype is ruda.float32
    with pytest.raises(DTypeError, match="add: no integer type holds both"):
        ruda.ones(2, dtype="int64") + ruda.ones(2, dtype="uint64")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["add", "multiply", "divide", "pow", "hypot"])
def test_half_types_round_once(name: str, dtype: str, rng: np.random.Generator) -> None:
    x = ruda.asarray(rng.uniform(0.5, 2, 200)).astype(dtype)
    y = ruda.asarray(rng.uniform(0.5, 2, 200)).astype(dtype)
    wide = reference(name)(x.astype("float32").numpy(), y.astype("float32").numpy())
    want = wide.astype(x.numpy().dtype)
    np.testing.assert_array_equal(getattr(ruda, name)(x, y).numpy(), want)


def test_a_scalar_enters_half_arithmetic_unrounded() -> None:
    x = ruda.asarray([1.0], dtype="bfloat16")
    # 1 / 3 is not a bfloat16: rounding it first would give 3.0039 here.
    assert (x / (1 / 3)).item() == 3.0


def test_complex_sign_and_abs() -> None:
    x = ruda.asarray([3 + 4j, 0j, -2 + 0j])
    assert ruda.abs(x).tolist() == [5.0, 0.0, 2.0]
    assert_close(ruda.sign(x), np.array([0.6 + 0.8j, 0, -1], np.complex64))
    x = ruda.tensor([3 + 4j, 0j], requires_grad=True)
    ruda.abs(x).sum().backward()
    assert x.grad is not None
    assert_close(x.grad, np.array([0.6 + 0.8j, 0], np.complex64))


def test_neighbours() -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        one = ruda.ones((), dtype=dtype)
        step = ruda.nextafter(one, ruda.asarray(2.0, dtype=dtype)).item() - 1
        assert step == ruda.finfo(dtype).eps
    assert ruda.nextafter(ruda.asarray(0.0), ruda.asarray(-1.0)).item() < 0


def test_signs_of_zero_and_nan() -> None:
    x, y = SPECIAL[:, None], SPECIAL[None, :]
    same(ruda.copysign(ruda.asarray(x), ruda.asarray(y)), np.copysign(x, y))
    same(ruda.hypot(ruda.asarray(x), ruda.asarray(y)), np.hypot(x, y))
    for name in ("maximum", "minimum"):
        got = getattr(ruda, name)(ruda.asarray(x), ruda.asarray(y)).numpy()
        np.testing.assert_array_equal(got, getattr(np, name)(x, y))


def gradients(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    leaves = [ruda.tensor(x, requires_grad=True) for x in inputs]
    function(*leaves).sum().backward()
    return [leaf.grad.tolist() for leaf in leaves]


def test_gradient_of_power_at_zero_and_below() -> None:
    assert gradients(lambda x: x**2, [0.0, -3.0]) == [[0.0, -6.0]]
    assert gradients(lambda x: x**1, [0.0, -3.0]) == [[1.0, 1.0]]
    assert gradients(lambda x: x**0, [0.0, -3.0]) == [[0.0, 0.0]]
    assert gradients(lambda x: x**3.0, [0.0, -3.0]) == [[0.0, 27.0]]
    base, exponent = gradients(operator.pow, [0.0, 0.0, 0.0, 2.0], [0.0, 1.0, 2.0, 0.0])
    assert base == [0.0, 1.0, 0.0, 0.0]
    assert exponent[:3] == [0.0, 0.0, 0.0]
    assert exponent[3] == pytest.approx(np.log(2))
    # The exponent of a negative base has no real gradient.
    assert np.isnan(gradients(operator.pow, [-2.0], [2.0])[1]).all()


def test_second_order_of_power_at_exponent_zero() -> None:
    """d/dy of ``y * x ** (y - 1)`` at ``y = 0`` is ``1 / x``: a mask there would lose it."""
    x = ruda.tensor(2.0, dtype="float64", requires_grad=True)
    y = ruda.tensor(0.0, dtype="float64", requires_grad=True)
    (x**y).backward(create_graph=True)
    assert x.grad is not None
    first, y.grad = x.grad, None
    first.backward()
    assert y.grad is not None
    assert y.grad.item() == pytest.approx(0.5)


def test_gradients_at_ties_and_kinks() -> None:
    ties = [1.0, 2.0, 3.0], [1.0, 3.0, 2.0]
    assert gradients(ruda.maximum, *ties) == [[0.5, 0.0, 1.0], [0.5, 1.0, 0.0]]
    assert gradients(ruda.minimum, *ties) == [[0.5, 1.0, 0.0], [0.5, 0.0, 1.0]]
    assert gradients(ruda.abs, [0.0, -2.0]) == [[0.0, -1.0]]
    by_x, by_y = gradients(ruda.hypot, [0.0, 3.0], [0.0, 4.0])
    assert by_x == pytest.approx([0.0, 0.6])
    assert by_y == pytest.approx([0.0, 0.8])


@pytest.mark.parametrize("run", [operator.mul, operator.truediv, operator.pow, operator.sub])
def test_gradients_of_real_and_complex_mixed(run: Any, rng: np.random.Generator) -> None:
    real = rng.uniform(0.5, 2, 4)
    both = rng.uniform(0.5, 2, 4) + 1j * rng.uniform(0.5, 2, 4)
    gradcheck(run, [real, both])
    gradcheck(run, [both, real])
    x = ruda.tensor(real, requires_grad=True)
    ruda.real(x * (1 + 2j)).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is ruda.float64


def test_real_base_below_zero_with_complex_exponent() -> None:
    gradcheck(operator.pow, [np.array([-1.5, -0.5]), np.array([0.5 + 0.5j, 1 - 1j])])


def test_scalars_have_gradients_through_the_tensor_alone() -> None:
    assert gradients(lambda x: 3 / x - 2 * x + x / 4 + 2**x, [1.0]) == [
        [pytest.approx(-3 - 2 + 0.25 + 2 * np.log(2), rel=1e-6)]
    ]


@pytest.mark.parametrize("scalar", [1 / 3, 0.3 + 0.7j, 2, np.float64(0.1)])
@pytest.mark.parametrize("run", [*OPERATORS.values(), ruda.hypot, ruda.copysign, ruda.logaddexp])
def test_scalars_are_not_rounded_in_gradients(run: Any, scalar: Any) -> None:
    """A scalar beside a float64 tensor counts with all its digits, in the vjp as well."""
    x = np.array([0.77, 1.93])
    real_only = run in (operator.floordiv, operator.mod, ruda.hypot, ruda.copysign, ruda.logaddexp)
    if isinstance(scalar, complex):
        if real_only:
            pytest.skip("defined for real numbers alone")
        gradcheck(lambda x: run(x, scalar), [x + 0.2j])
        gradcheck(lambda x: run(scalar, x), [x + 0.2j])
    gradcheck(lambda x: run(x, scalar), [x])
    gradcheck(lambda x: run(scalar, x), [x])


def test_power_of_a_scalar_keeps_the_digits_of_its_logarithm() -> None:
    x = ruda.tensor(2.0, dtype="float64", requires_grad=True)
    (3**x).backward()
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(9 * np.log(3), rel=1e-15)
    assert np.isnan(gradients(lambda x: (-2.0) ** x, [2.0])[0]).all()
    assert gradients(lambda x: 0**x, [2.0]) == [[0.0]]


def test_out_is_written_and_returned() -> None:
    x = ruda.asarray([1.0, 2.0])
    for call, want in (
        (lambda out: ruda.add(x, x, out=out), [2.0, 4.0]),
        (lambda out: ruda.multiply(x, 3, out=out), [3.0, 6.0]),
        (lambda out: ruda.sqrt(x * x, out=out), [1.0, 2.0]),
        (lambda out: ruda.pow(x, 2, out=out), [1.0, 4.0]),
        (lambda out: ruda.where(x > 1, x, 0, out=out), [0.0, 2.0]),
        (lambda out: ruda.clip(x, max=1.5, out=out), [1.0, 1.5]),
    ):
        out = ruda.zeros(2)
        assert call(out) is out
        assert out.tolist() == want
    with pytest.raises(DTypeError, match="would lose its kind"):
        ruda.add(x, x, out=ruda.asarray([0, 0]))
