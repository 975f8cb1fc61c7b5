"""Operators of the user's own."""

from __future__ import annotations

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError, GradientError, RudaError


@ruda.custom_op(name="test::scaled_cube", vjp=lambda g, x, scale: g * (3.0 * scale) * x * x)
def scaled_cube(x: np.ndarray, *, scale: float = 1.0) -> np.ndarray:
    """A cube times a constant."""
    return scale * x**3


def test_forward_gradient_and_second_order() -> None:
    x = ruda.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    y = scaled_cube(x, scale=2.0)
    assert y.tolist() == [2.0, 16.0]
    (g,) = ruda.gradients([y.sum()], [x], create_graph=True)
    assert g.tolist() == [6.0, 24.0]
    g.sum().backward()
    assert x.grad.tolist() == [12.0, 24.0]


def test_shape_and_dtype_rules() -> None:
    @ruda.custom_op(name="test::row_argmax", shape=lambda s: s[:1], dtype="int64")
    def row_argmax(x: np.ndarray) -> np.ndarray:
        return x.argmax(axis=1)

    out = row_argmax(ruda.asarray([[1.0, 3.0], [5.0, 2.0]]))
    assert out.dtype is ruda.int64 and out.tolist() == [1, 0]


def test_two_operands_broadcast_and_promote() -> None:
    @ruda.custom_op(name="test::axpy", vjp=(lambda g: g * 2.0, lambda g: g))
    def axpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 2.0 * x + y

    x = ruda.ones((2, 1), dtype="float64").requires_grad_()
    y = ruda.ones(3, dtype="float64").requires_grad_()
    axpy(x, y).sum().backward()
    assert x.grad.tolist() == [[6.0]] * 2 and y.grad.tolist() == [2.0] * 3


def test_no_gradient_is_an_error_and_not_a_silence() -> None:
    @ruda.custom_op(name="test::opaque")
    def opaque(x: np.ndarray) -> np.ndarray:
        return x + 1

    y = opaque(ruda.tensor([1.0], requires_grad=True))
    with pytest.raises(GradientError, match="opaque: has no gradient"):
        y.sum().backward()


def test_the_function_cannot_write_to_its_inputs() -> None:
    @ruda.custom_op(name="test::rude")
    def rude(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    x = ruda.tensor([1.0])
    with pytest.raises(ValueError, match="read-only"):
        rude(x)
    assert x.tolist() == [1.0]


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="does not fit the signature"):
        scaled_cube(ruda.ones(2), scael=1.0)
    with pytest.raises(ArgumentError, match="the name is an operator of ruda"):
        ruda.custom_op(lambda x: x, name="exp")
    with pytest.raises(ArgumentError, match="one vjp per tensor"):
        ruda.custom_op(lambda x, y: x, name="test::short", vjp=lambda g: g)
    with pytest.raises(ArgumentError, match="cannot tell the operands"):
        ruda.custom_op(lambda *xs: xs[0], name="test::many")
    with pytest.raises(RudaError, match="test::scaled_cube"):
        scaled_cube("three")


def test_mistakes_in_custom_operators() -> None:
    total = ruda.custom_op(lambda x: x.sum(), name="total_without_shape")
    with pytest.raises(ruda.ShapeError, match=r"Got \(\). Expected \(3,\). Try custom_op\(shape"):
        total(ruda.ones(3))
    with pytest.raises(ruda.ArgumentError, match=r"Got 1\. Expected 2: of x, y"):
        ruda.custom_op(lambda x, y: x + y, name="half_a_vjp", vjp=lambda g: g)
    with pytest.raises(ruda.ArgumentError, match=r"Got \('g', 'z'\). Expected names among g, out"):
        ruda.custom_op(lambda x: x, name="asks_for_z", vjp=lambda g, z: g)


def test_a_compiled_step_calls_it_once_for_the_same_operands() -> None:
    calls = []

    @ruda.custom_op(name="test::counted")
    def counted(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return x + 1

    step = ruda.compile(lambda x: (counted(x) * counted(x), counted(x * 2.0).shape[0])[0])
    assert step(ruda.ones(2)).tolist() == [4.0, 4.0]
    assert len(calls) == 1
