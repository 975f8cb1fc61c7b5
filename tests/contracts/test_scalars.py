"""Scalars and arrays beside tensors, and NumPy's arithmetic of integers."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ruda
from ruda.tensor.dispatch import OPS

OPERATORS: dict[str, Any] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
BITWISE: dict[str, Any] = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")
SCALARS = [
    2,
    2.0,
    np.float64(2),
    np.float32(2),
    np.float16(2),
    np.longdouble(2),
    ml_dtypes.bfloat16(2),
    np.int64(2),
    np.uint8(2),
    np.int8(2),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("symbol", OPERATORS)
def test_scalars_are_weak_on_either_side(symbol: str, scalar: Any) -> None:
    f = OPERATORS[symbol]
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        x = ruda.asarray([1.0, 2.0, 4.0], dtype=dtype)
        for got, expected in (
            (f(x, scalar), f(x.numpy().astype(np.float64), 2.0)),
            (f(scalar, x), f(2.0, x.numpy().astype(np.float64))),
        ):
            assert got.__class__ is ruda.Tensor
            assert got.dtype == ("bool" if symbol in COMPARISONS else dtype)
            assert got.tolist() == expected.tolist()


def test_a_float_scalar_takes_integers_to_the_default_float() -> None:
    x = ruda.asarray([1, 2], dtype="int8")
    for scalar in (2.0, np.float64(2), np.float32(2), np.float16(2)):
        assert (x * scalar).dtype is ruda.float32 and (scalar - x).dtype is ruda.float32
    assert (x * 2).dtype is ruda.int8 and (x * np.int64(2)).dtype is ruda.int8
    assert (x * True).dtype is ruda.int8 and (x * np.bool_(True)).dtype is ruda.int8
    assert (x * 2j).dtype is ruda.complex64 and (x / 2).dtype is ruda.float32
    assert (ruda.asarray([True]) + 1).dtype is ruda.int32
    assert (ruda.asarray([1.0], dtype="float64") * 1j).dtype is ruda.complex128


def test_the_kind_of_a_scalar_is_part_of_what_is_remembered() -> None:
    x, i = ruda.asarray([1.5]), ruda.asarray([2])
    for _ in range(2):
        assert [(i * s).dtype.name for s in (1, True, 1.0)] == ["int32", "int32", "float32"]
    assert (x / 0.0).item() == np.inf and (x / -0.0).item() == -np.inf
    assert (x * np.nan).tolist() != (x * np.nan).tolist()
    assert [ruda.copysign(x, s).item() for s in (0.0, -0.0)] == [1.5, -1.5]


def test_zero_d_tensors_and_arrays_are_strong() -> None:
    x = ruda.ones(2)
    assert (x * ruda.asarray(2.0, dtype="float64")).dtype is ruda.float64
    assert (x * np.asarray(2.0)).dtype is ruda.float64


@pytest.mark.parametrize("symbol", OPERATORS)
def test_arrays_on_either_side_give_tensors(symbol: str) -> None:
    f = OPERATORS[symbol]
    a, b = np.array([1.0, 5.0, 2.0]), np.array([2.0, 3.0, 2.0])
    for left, right in ((ruda.asarray(a), b), (a, ruda.asarray(b))):
        got = f(left, right)
        assert got.__class__ is ruda.Tensor and got.tolist() == f(a, b).tolist()
    mixed = f(ruda.asarray(a, dtype="float32"), b)
    assert mixed.dtype == ("bool" if symbol in COMPARISONS else "float64")


def test_matmul_of_an_array_and_a_tensor() -> None:
    a = np.arange(6.0).reshape(2, 3)
    assert (
        (a @ ruda.asarray(a.T)).tolist() == (ruda.asarray(a) @ a.T).tolist() == (a @ a.T).tolist()
    )


def test_an_array_is_not_changed_into_an_ndarray_of_tensors() -> None:
    array = np.ones(3)
    array_sum = array + ruda.ones(3, dtype="float64")
    assert array_sum.__class__ is ruda.Tensor
    with pytest.raises(TypeError):
        array += ruda.ones(3)
    with pytest.raises(TypeError, match="ufunc"):
        np.add(array, ruda.ones(3))


EDGES = {
    dtype: np.array(
        sorted({np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1, 2, 3, 7, 100})
        + ([-1, -2, -7] if np.iinfo(dtype).min else []),
        dtype,
    )
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}


@pytest.mark.parametrize("dtype", EDGES)
@pytest.mark.parametrize("symbol", [*OPERATORS, *BITWISE])
def test_integers_wrap_divide_and_shift_as_numpys_do(symbol: str, dtype: str) -> None:
    f = (OPERATORS | BITWISE)[symbol]
    a = EDGES[dtype][:, None]
    b = EDGES[dtype][None] if symbol != "**" else np.abs(EDGES[dtype][None, 1:4])
    if symbol in ("<<", ">>"):
        # A shift by a negative number or the width has no meaning in C; NumPy gives it one.
        b = np.array([[0, 1, 3, np.iinfo(dtype).bits - 1, np.iinfo(dtype).bits, 100]], dtype)
    with np.errstate(all="ignore"):
        expected = f(a, b)
    got = f(ruda.asarray(a), ruda.asarray(b))
    if symbol == "/":
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)
    else:
        assert np.array_equal(got.numpy(), expected)
        assert got.dtype == expected.dtype


@pytest.mark.parametrize("dtype", EDGES)
def test_division_by_zero_gives_zero_for_integers(dtype: str) -> None:
    x = ruda.asarray(EDGES[dtype])
    zeros = [0] * len(EDGES[dtype])
    assert (x // 0).tolist() == (x % 0).tolist() == (x // ruda.zeros_like(x)).tolist() == zeros
    signs = np.sign(EDGES[dtype].astype(float))
    assert np.array_equal((x / 0).numpy()[signs != 0], signs[signs != 0] * np.inf)


def test_the_smallest_integer_has_no_absolute_value() -> None:
    low = ruda.asarray([-128], dtype="int8")
    assert abs(low).item() == -128 and (-low).item() == -128 and (low // -1).item() == -128
    assert (-ruda.asarray([1], dtype="uint8")).item() == 255


def test_floats_divide_by_zero_as_ieee_says() -> None:
    x = ruda.asarray([1.0, -1.0, 0.0])
    assert (x / 0).tolist()[:2] == [np.inf, -np.inf] and np.isnan((x / 0).numpy()[2])
    assert np.isnan((x % 0).numpy()).all()


PAIRS = [
    ("int8", "uint8", "int16"),
    ("int32", "uint32", "int64"),
    ("int64", "float32", "float32"),
    ("int64", "float16", "float16"),
    ("uint8", "int32", "int32"),
    ("float16", "bfloat16", "float32"),
    ("float32", "bfloat16", "float32"),
    ("float64", "complex64", "complex128"),
    ("bool", "int8", "int8"),
    ("bool", "bfloat16", "bfloat16"),
    ("int8", "complex64", "complex64"),
]


@pytest.mark.parametrize(("a", "b", "meet"), PAIRS)
def test_promotion(a: str, b: str, meet: str) -> None:
    for x, y in ((a, b), (b, a)):
        assert (ruda.ones(2, dtype=x) * ruda.ones(2, dtype=y)).dtype == meet
        assert ruda.result_type(x, y) == meet


def test_half_types_round_once_per_operator_and_scalars_not_at_all() -> None:
    # Rounded first, 1.003 would be 1 in bfloat16, whose neighbours of 3 are 1/64 apart.
    x = ruda.asarray([3.0], dtype="bfloat16")
    assert (x * 1.003).item() == 3.015625
    assert (x * ruda.asarray(1.003, dtype="bfloat16")).item() == 3


UNARY = [
    op
    for op in OPS.values()
    if op.kind == "unary" and not op.attrs and op.call is getattr(ruda, op.name, None)
]


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_a_python_scalar_alone_is_a_tensor_without_axes(op: Any) -> None:
    number = 1 if "float32" not in map(str, op.accepts) else sum(op.domain) / 2
    got, expected = op.call(number), op.call(ruda.asarray(number))
    assert (got.dtype, got.shape) == (expected.dtype, ())
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)
