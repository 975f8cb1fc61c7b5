"""Functions of functions: grad, vjp, jvp, hessian."""

from __future__ import annotations

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError, DTypeError, GradientError, ShapeError


def array(*values: float) -> ruda.Tensor:
    return ruda.asarray(list(values), dtype="float64")


def test_grad_leaves_its_argument_alone() -> None:
    x = array(1.0, 2.0)
    g = ruda.grad(lambda t: (t * t).sum())(x)
    assert g.tolist() == [2.0, 4.0]
    assert not x.requires_grad and not g.requires_grad


def test_grad_nests_to_any_order() -> None:
    f = lambda t: t * t * t * t  # noqa: E731
    for expected in (32.0, 48.0, 48.0, 24.0, 0.0):
        f = ruda.grad(f)
        assert f(ruda.asarray(2.0, dtype="float64")).item() == pytest.approx(expected)


def test_several_arguments_and_structures() -> None:
    def f(p: dict, s: ruda.Tensor) -> ruda.Tensor:
        return (p["w"] * s + p["b"][0]).sum()

    p = {"w": array(1.0, 2.0), "b": [array(5.0)]}
    gp, gs = ruda.grad(f, argnums=(0, 1))(p, array(3.0, 4.0))
    assert gp["w"].tolist() == [3.0, 4.0] and gp["b"][0].tolist() == [2.0]
    assert gs.tolist() == [1.0, 2.0]


def test_an_argument_that_does_not_matter_gets_zeros() -> None:
    g = ruda.grad(lambda x, y: x.sum(), argnums=1)(array(1.0), array(1.0, 2.0))
    assert g.tolist() == [0.0, 0.0]


def test_value_and_grad_with_aux() -> None:
    (value, aux), g = ruda.value_and_grad(lambda x: (x.sum(), "seen"), has_aux=True)(
        array(1.0, 2.0)
    )
    assert value.item() == 3.0 and aux == "seen" and g.tolist() == [1.0, 1.0]


def test_grad_through_an_outer_tape() -> None:
    x = ruda.tensor(3.0, dtype="float64", requires_grad=True)
    inner = ruda.grad(lambda t: t * t * t)(x * 2.0)
    inner.backward()
    assert inner.item() == pytest.approx(108.0) and x.grad.item() == pytest.approx(72.0)


def test_grad_inside_no_grad_still_differentiates() -> None:
    with ruda.no_grad():
        assert ruda.grad(lambda t: t * t)(array(3.0)).item() == 6.0


def test_vjp_and_jvp_are_transposes() -> None:
    rng = np.random.default_rng(0)
    x, v = (ruda.asarray(rng.standard_normal((3, 4))) for _ in range(2))
    u = ruda.asarray(rng.standard_normal(3))
    f = lambda t: (ruda.exp(t * 0.3) * t).sum(axis=1)  # noqa: E731
    out, pull = ruda.vjp(f, x)
    value, pushed = ruda.jvp(f, [x], [v])
    assert out.tolist() == value.tolist()
    left = float((pull(u)[0] * v).sum())
    assert left == pytest.approx(float((u * pushed).sum()), rel=1e-12)


def test_vjp_can_be_pulled_twice() -> None:
    _, pull = ruda.vjp(lambda x: x * x, array(3.0))
    assert pull(array(1.0))[0].item() == pull(array(1.0))[0].item() == 6.0


def test_jvp_of_an_output_that_does_not_depend_on_the_input() -> None:
    _, tangent = ruda.jvp(lambda x: (x * 2.0, array(7.0)), [array(1.0)], [array(1.0)])
    assert tangent[0].item() == 2.0 and tangent[1].item() == 0.0


def test_jvp_of_a_linear_function_twice() -> None:
    second = lambda t: ruda.jvp(lambda x: x * x * x, [t], [array(1.0)])[1]  # noqa: E731
    assert ruda.jvp(second, [array(2.0)], [array(1.0)])[1].item() == pytest.approx(12.0)


def test_hessian_is_symmetric_and_right() -> None:
    a = np.random.default_rng(1).standard_normal((4, 4))
    f = lambda x: (x * (ruda.asarray(a) * x).sum(axis=1)).sum()  # noqa: E731
    h = ruda.hessian(f)(ruda.asarray(np.ones(4))).numpy()
    np.testing.assert_allclose(h, a + a.T, rtol=1e-12)


def test_hessian_of_nothing_is_empty() -> None:
    assert ruda.hessian(lambda x: (x * x).sum())(ruda.zeros((0,), dtype="float64")).shape == (0, 0)


def test_mistakes_are_named() -> None:
    with pytest.raises(GradientError, match="must return one element"):
        ruda.grad(lambda x: x * 2.0)(array(1.0, 2.0))
    with pytest.raises(GradientError, match="the value must be real"):
        ruda.grad(lambda x: x * 1j)(ruda.asarray(1.0 + 0j))
    with pytest.raises(DTypeError, match="has no gradient"):
        ruda.grad(lambda x: x.sum())(ruda.asarray([1, 2]))
    with pytest.raises(ArgumentError, match="no such argument"):
        ruda.grad(lambda x: x.sum(), argnums=1)(array(1.0))
    with pytest.raises(ArgumentError, match="one tangent per primal"):
        ruda.jvp(lambda x: x, [array(1.0)], [])
    with pytest.raises(ShapeError, match="a tangent does not fit"):
        ruda.jvp(lambda x: x, [array(1.0)], [array(1.0, 2.0)])
    with pytest.raises(GradientError, match="an input does not require grad"):
        ruda.gradients([array(1.0)], [array(1.0)])


def test_a_pull_follows_an_output_that_was_changed_in_place() -> None:
    x = ruda.asarray([1.0, 2.0]).requires_grad_()
    out, pull = ruda.vjp(lambda x: x * 3.0, x)
    assert pull(ruda.ones(2))[0].tolist() == [3.0, 3.0]
    out *= 2.0
    assert pull(ruda.ones(2))[0].tolist() == [6.0, 6.0]
    assert pull(ruda.ones(2))[0].tolist() == [6.0, 6.0]


def test_a_tensor_is_no_list_of_tensors() -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ruda.DTypeError, match=r"jvp: primals are one tensor.*Try primals=\[x\]"):
        ruda.jvp(lambda t: t * t, x, [x])
    with pytest.raises(ruda.DTypeError, match="gradients: outputs are one tensor"):
        ruda.gradients((x * x).sum(), [x])
    with pytest.raises(ruda.DTypeError, match="gradients: inputs are one tensor"):
        ruda.gradients([(x * x).sum()], x)
