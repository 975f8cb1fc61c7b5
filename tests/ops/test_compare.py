"""Comparison, logic, closeness, bits and rounding against NumPy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import DTypeError, IntegerRangeError

COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan])
WHOLE = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 2.0**52 + 1, 3.0, -0.0])


def equal(got: ruda.Tensor, want: Any) -> None:
    array = got.numpy()
    assert array.dtype == np.asarray(want).dtype
    np.testing.assert_array_equal(array, want)


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64", "bool"])
def test_comparisons(name: str, dtype: str) -> None:
    values = np.nan_to_num(SPECIAL) if dtype[0] in "iu" else SPECIAL
    with np.errstate(all="ignore"):
        values = np.abs(values).astype(dtype) if dtype[0] == "u" else values.astype(dtype)
    x, y = values[:, None], values[None, :]
    equal(COMPARISONS[name](ruda.asarray(x), ruda.asarray(y)), getattr(np, name)(x, y))
    equal(COMPARISONS[name](ruda.asarray(values), 1), getattr(np, name)(values, 1))
    equal(COMPARISONS[name](1, ruda.asarray(values)), getattr(np, name)(1, values))
    equal(COMPARISONS[name](values, ruda.asarray(values)), getattr(np, name)(values, values))


def test_equality_with_foreign_objects() -> None:
    x = ruda.asarray([1.0, 2.0])
    for foreign in (None, "x", object(), [1.0, 2.0]):
        assert (x == foreign) is False
        assert (foreign == x) is False
        assert (x != foreign) is True
    assert x not in [None]
    assert {x: 1}[x] == 1
    with pytest.raises(TypeError, match="not supported"):
        x < None  # noqa: B015


def test_order_of_complex_numbers_is_refused() -> None:
    x = ruda.asarray([1j])
    assert (x == 1j).tolist() == [True]
    for name in ("less", "less_equal", "greater", "greater_equal"):
        with pytest.raises(DTypeError, match=f"{name}: "):
            COMPARISONS[name](x, 1.0)


def test_a_python_integer_that_does_not_fit_has_no_answer() -> None:
    with pytest.raises(IntegerRangeError, match="256"):
        ruda.asarray([1], dtype="uint8") < 256  # noqa: B015


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name: str) -> None:
    x, y = SPECIAL[:, None], SPECIAL.astype(np.float32)[None, :]
    equal(getattr(ruda, name)(ruda.asarray(x), ruda.asarray(y)), getattr(np, name)(x, y))
    flags = np.array([True, False])
    equal(getattr(ruda, name)(ruda.asarray(flags), True), getattr(np, name)(flags, True))
    wide, unsigned = np.array([0, -1]), np.array([0, 2], np.uint64)
    got = getattr(ruda, name)(ruda.asarray(wide), ruda.asarray(unsigned))
    equal(got, getattr(np, name)(wide, unsigned))


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite", "signbit", "logical_not"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
def test_tests_of_values(name: str, dtype: str) -> None:
    values = np.nan_to_num(SPECIAL, posinf=9, neginf=-9) if dtype == "int32" else SPECIAL
    x = ruda.asarray(values).astype(dtype)
    equal(getattr(ruda, name)(x), getattr(np, name)(x.astype("float64").numpy()))


def test_tests_of_complex_values() -> None:
    values = np.array([1 + 1j, complex(np.nan, 0), complex(0, np.inf)])
    for name in ("isnan", "isinf", "isfinite"):
        equal(getattr(ruda, name)(ruda.asarray(values)), getattr(np, name)(values))


@pytest.mark.parametrize("equal_nan", [False, True])
def test_closeness(equal_nan: bool) -> None:
    x, y = SPECIAL[:, None], SPECIAL[None, :] + 1e-9
    with np.errstate(all="ignore"):
        want = np.isclose(x, y, equal_nan=equal_nan)
    equal(ruda.isclose(ruda.asarray(x), ruda.asarray(y), equal_nan=equal_nan), want)
    big = ruda.asarray([2**63], dtype="uint64")
    assert ruda.allclose(big, big)
    assert not ruda.allclose(ruda.asarray([0], dtype="uint8"), ruda.asarray([255], dtype="uint8"))
    assert ruda.allclose(ruda.asarray([1.0]), 1.0 + 1e-7)
    assert not ruda.allclose(ruda.asarray([1.0, 2.0]), ruda.asarray([1.0, 2.1]))


BITS = {
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64"])
def test_bits(name: str, dtype: str, rng: np.random.Generator) -> None:
    x, y = (rng.integers(0, 100, (4, 1)).astype(dtype) for _ in range(2))
    equal(BITS[name](ruda.asarray(x), ruda.asarray(y)), getattr(np, name)(x, y))
    equal(BITS[name](x, ruda.asarray(y)), getattr(np, name)(x, y))
    scalar = True if dtype == "bool" else 5
    equal(BITS[name](ruda.asarray(x), scalar), getattr(np, name)(x, np.array(scalar, dtype)))
    equal(BITS[name](scalar, ruda.asarray(x)), getattr(np, name)(x, np.array(scalar, dtype)))
    equal(~ruda.asarray(x), np.invert(x))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_shifts_by_the_width_and_beyond(dtype: str) -> None:
    info = np.iinfo(dtype)
    width = info.bits
    values = [info.min, -1, 1, 5, info.max] if info.min < 0 else [0, 1, 5, info.max]
    counts = [0, 1, width - 1, width, width + 1, 100]
    x = ruda.asarray(np.array(values, dtype)[:, None])
    n = ruda.asarray(np.array(counts, dtype)[None, :])
    left, right = (x << n).numpy(), (x >> n).numpy()
    for i, value in enumerate(values):
        for j, count in enumerate(counts):
            kept = (value << count) % 2**width
            assert int(left[i, j]) % 2**width == kept
            assert int(right[i, j]) == value >> count


def test_shifts_by_a_negative_count_empty_the_number() -> None:
    x = ruda.asarray([5, -5])
    assert (x << -1).tolist() == [0, 0]
    assert (x >> -1).tolist() == [0, -1]


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding(name: str, dtype: str) -> None:
    x = np.concatenate([WHOLE, SPECIAL]).astype(dtype)
    want = np.rint(x) if name == "round" else getattr(np, name)(x)
    got = getattr(ruda, name)(ruda.asarray(x))
    equal(got, want)
    np.testing.assert_array_equal(np.signbit(got.numpy()), np.signbit(want))


def test_rounding_of_integers_keeps_every_bit() -> None:
    x = ruda.asarray([2**53 + 1, -(2**62) - 1], dtype="int64")
    for name in ("floor", "ceil", "trunc", "round"):
        out = getattr(ruda, name)(x)
        assert out.dtype is ruda.int64
        assert out.tolist() == x.tolist()
        assert not np.shares_memory(out.numpy(), x.numpy())


def test_rounding_has_slope_zero_and_keeps_the_graph() -> None:
    x = ruda.tensor([0.3, 1.7], requires_grad=True)
    (ruda.round(x) + ruda.floor(x) + ruda.sign(x)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0]


def test_complex_rounding() -> None:
    assert ruda.round(ruda.asarray([1.5 + 2.5j])).tolist() == [2 + 2j]
    with pytest.raises(DTypeError, match="floor: "):
        ruda.floor(ruda.asarray([1j]))
