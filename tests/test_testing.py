"""The checks themselves: that they pass what is right and fail what is wrong, and say why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import DTypeError
from ruda.ops.table import TABLE, unary
from ruda.testing import assert_close, check_op, gradcheck, layouts, tolerance

X = np.random.default_rng(0).uniform(0.5, 2, (3, 4))


def planted(vjp: Any) -> Any:
    """An operator of the table, taken out of it again, with a vjp to be checked."""
    call = unary("planted", np.square, "x * x", vjp, "Square.")
    del TABLE["planted"]
    return call


def test_close_values_pass() -> None:
    assert_close(ruda.asarray(X), X)
    assert_close(ruda.asarray(X, dtype="bfloat16"), X)
    assert_close(ruda.asarray([1, 2]), [1, 2])
    assert_close([np.nan, np.inf], [np.nan, np.inf])
    assert_close(np.zeros(0), np.zeros(0))


@pytest.mark.parametrize(
    ("actual", "expected", "text"),
    [
        ([1.0, 2.0], [1.0, 2.1], r"error 0.043 is over .* 1 of 2 differ, most at \(1,\)"),
        ([1.0, 2.0], [1.0], r"shapes differ. Got \(2,\). Expected \(1,\)."),
        ([1, 2], [1, 3], r"values differ: 1 of 2 differ, most at \(1,\). Got 2. Expected 3."),
        ([1.0, np.nan], [1.0, 2.0], "NaN or infinity where there should be none"),
        ([1.0, 2.0], [1.0, np.nan], "NaN or infinity where there should be none"),
        ([1.0, np.inf], [1.0, -np.inf], "NaN or infinity where there should be none"),
        (1.0, 0.0, "error inf .*in the one value. Got 1.0. Expected 0.0."),
        (0.0, 1e-300, "error 1 is over"),
    ],
)
def test_what_differs_is_reported(actual: Any, expected: Any, text: str) -> None:
    with pytest.raises(AssertionError, match=f"name: {text}"):
        assert_close(np.asarray(actual), np.asarray(expected), name="name")


def test_tolerance_follows_dtype_and_length() -> None:
    assert tolerance("int8") == 0
    assert tolerance("float64") == 5 * 2**-52
    assert tolerance("float32", 100) == 104 * 2**-23
    assert tolerance("bfloat16", 100) == 4 * 2**-7 + 100 * 2**-23
    assert tolerance("complex64") == tolerance("float32")


def test_right_gradients_pass_to_order_3() -> None:
    def function(x: Any, y: Any) -> Any:
        return ruda.sum(x * x / (y * y + 2), axis=0), x * y

    gradcheck(function, [X, X[0]], order=3)
    gradcheck(function, [X + 1j * X[::-1], X[0]], order=2)
    gradcheck(planted(lambda g, x: 2 * g * ruda.conj(x)), [X - 1j * X], order=3)


@pytest.mark.parametrize(
    ("vjp", "text"),
    [
        (lambda g, x: g * x, "order 1, input 0 of .*Got .*Expected"),
        (lambda g, x: 2 * g * x.detach(), "order 2, input 0"),
        (lambda g, x: 2 * g.detach() * x, "order 2, input 1"),
        (None, "order 1, input 0"),
    ],
    ids=["factor", "constant-x", "constant-g", "absent"],
)
def test_wrong_gradients_fail(vjp: Any, text: str) -> None:
    with pytest.raises(AssertionError, match=f"planted: gradient of {text}"):
        gradcheck(planted(vjp), [X])


def test_a_gradient_without_conjugate_fails_for_complex() -> None:
    with pytest.raises(AssertionError, match="order 1"):
        gradcheck(planted(lambda g, x: 2 * g * x), [X + 1j * X])


def test_inputs_need_precision() -> None:
    with pytest.raises(DTypeError, match=r"gradcheck: too few digits .* float32"):
        gradcheck(ruda.negative, [X.astype(np.float32)])
    with pytest.raises(DTypeError, match="bfloat16"):
        gradcheck(ruda.negative, [ruda.ones(2, dtype="bfloat16")])


def test_integers_and_scalars_are_constants() -> None:
    gradcheck(lambda x, n, y: x * n * y, [X, np.arange(4), 2.0])


def test_layouts_show_the_same_values() -> None:
    found = dict(layouts(X))
    assert set(found) == {"transposed", "sliced", "negative strides"}
    for array in found.values():
        assert np.array_equal(array, X)
        assert not array.flags.c_contiguous
    assert not list(layouts(np.ones(())))


def test_check_op_takes_operators_functions_and_names() -> None:
    check_op("multiply", (X, X[0]), (X, 2.0))
    check_op(ruda.divide, (ruda.asarray(X), X))
    check_op(lambda x: ruda.sum(x, axis=0), (X,), length=3)


def custom(name: str, vjp: Any) -> Any:
    @ruda.custom_op(name=name, vjp=vjp)
    def cube(x: Any) -> Any:
        return x**3

    return cube


def test_check_op_takes_custom_operators() -> None:
    check_op(custom("right_cube", lambda g, x: 3 * g * x * x), (X,), order=3)
    with pytest.raises(AssertionError, match="gradient of order 1"):
        check_op(custom("wrong_cube", lambda g, x: 2 * g * x * x), (X,))


def test_check_op_finds_a_kernel_that_ignores_strides() -> None:
    def broken(x: Any) -> Any:
        memory = x.numpy().base
        return ruda.asarray(np.asarray(memory).ravel()[: x.size].reshape(x.shape).copy())

    with pytest.raises(AssertionError, match="broken with input 0 "):
        check_op(broken, (X,), order=0)


def test_check_op_finds_a_changed_input() -> None:
    def broken(x: Any) -> Any:
        out = x * 1
        x.assign(0.0)
        return out

    with pytest.raises(AssertionError, match="the input was changed"):
        check_op(broken, (X,), order=0)


def test_check_op_checks_gradients() -> None:
    with pytest.raises(AssertionError, match="gradient of order 2"):
        check_op(planted(lambda g, x: 2 * g * x.detach()), (X,))
