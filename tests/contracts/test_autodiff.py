"""What is promised of gradients."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.testing import gradcheck


def leaf(*values: float) -> Any:
    return ruda.tensor(np.asarray(values, np.float64), requires_grad=True)


def test_tracking_is_off_until_asked_for() -> None:
    x = ruda.ones(3)
    assert not x.requires_grad and x.node is None and (x * x).sum().node is None
    assert (leaf(1) * 2).requires_grad and (leaf(1) > 0).node is None


@pytest.mark.parametrize("off", [ruda.no_grad, ruda.inference_mode])
def test_no_node_is_built_where_it_is_switched_off(off: Any) -> None:
    x = leaf(1, 2)
    with off():
        assert not ruda.is_grad_enabled() and (x * x).node is None
        with ruda.enable_grad():
            assert (x * x).node is not None
    decorated = off()(lambda t: t * t)
    assert decorated(x).node is None and (x * x).node is not None


def test_backward_takes_a_gradient_and_sums_into_leaves() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    z = x * y + x
    z.backward(ruda.asarray([1.0, 10.0], dtype="float64"), retain_graph=True)
    assert x.grad.tolist() == [4, 50] and y.grad.tolist() == [1, 20]
    z.sum().backward()
    assert x.grad.tolist() == [8, 55] and y.grad.tolist() == [2, 22]
    assert z.grad is None and z.is_leaf is False


def test_accumulation_over_micro_batches_equals_one_batch() -> None:
    rng = np.random.default_rng(0)
    data, w = rng.standard_normal((8, 3)), leaf(0.3, -0.2, 0.5)
    for part in np.split(data, 4):
        (ruda.tanh(ruda.asarray(part) @ w).sum() / 8).backward()
    parts = w.grad.numpy(copy=True)
    w.grad = None
    ruda.tanh(ruda.asarray(data) @ w).mean().backward()
    np.testing.assert_allclose(parts, w.grad.numpy(), rtol=1e-14)


def test_any_order() -> None:
    x = leaf(0.7)
    y, expected = ruda.sin(x).sum(), [np.cos, lambda a: -np.sin(a), lambda a: -np.cos(a), np.sin]
    for derivative in expected:
        (y,) = ruda.gradients([y], [x], create_graph=True)
        np.testing.assert_allclose(y.detach().numpy(), derivative(np.array([0.7])), rtol=1e-14)
        y = y.sum()


def test_create_graph_makes_the_gradient_itself_differentiable() -> None:
    x = leaf(2.0, 3.0)
    (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad and x.grad.tolist() == [12, 27]
    first = x.grad
    x.grad = None
    first.sum().backward()
    assert x.grad.tolist() == [12, 18]


def test_functions_that_differentiate() -> None:
    x = ruda.asarray([1.0, 2.0])
    cube = lambda t: (t**3).sum()  # noqa: E731
    assert ruda.grad(cube)(x).tolist() == [3, 12]
    value, gradient = ruda.value_and_grad(cube)(x)
    assert value.item() == 9 and gradient.tolist() == [3, 12]
    out, pull = ruda.vjp(lambda t: t * t, x)
    assert out.tolist() == [1, 4] and pull(ruda.asarray([1.0, 0.5]))[0].tolist() == [2, 2]
    out, tangent = ruda.jvp(lambda t: t * t, [x], [ruda.asarray([1.0, 0.5])])
    assert out.tolist() == [1, 4] and tangent.tolist() == [2, 2]
    assert ruda.hessian(cube)(x).tolist() == [[6, 0], [0, 12]]
    twice = ruda.grad(lambda t: ruda.grad(cube)(t)[0] * t[1])
    assert twice(x).tolist() == [12, 3]
    both = ruda.grad(lambda t, u: (t["a"] * u[0]).sum(), argnums=(0, 1))
    first, second = both({"a": x}, [x + 1])
    assert first["a"].tolist() == [2, 3] and second[0].tolist() == [1, 2]


def test_checkpoint_recomputes_and_gives_the_same_gradient() -> None:
    calls: list[int] = []

    def block(t: Any) -> Any:
        calls.append(1)
        return ruda.tanh(t) * t

    x, y = leaf(0.3, 0.5), leaf(0.3, 0.5)
    ruda.checkpoint(block, x).sum().backward()
    assert len(calls) == 2
    block(y).sum().backward()
    assert x.grad.tolist() == y.grad.tolist()


def test_custom_op_joins_the_tape() -> None:
    @ruda.custom_op(vjp=lambda g, x, power: g * power * x ** (power - 1))
    def contracts_power(x: Any, *, power: float) -> Any:
        return x**power

    x = leaf(2.0, 3.0)
    contracts_power(x, power=3.0).sum().backward()
    assert x.grad.tolist() == [12, 27]
    gradcheck(lambda t: contracts_power(t, power=4.0), [np.array([0.5, 1.5])])
    assert ruda.compile(lambda t: contracts_power(t, power=2.0))(x).tolist() == [4, 9]

    @ruda.custom_op
    def contracts_without_gradient(x: Any) -> Any:
        return x + 1

    with pytest.raises(ruda.GradientError, match="contracts_without_gradient: "):
        contracts_without_gradient(x).sum().backward()


def test_hooks_see_and_replace_gradients() -> None:
    x = leaf(1, 2)
    y = x * 3
    seen: list[Any] = []
    remove = y.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    assert seen == [[1, 1]] and x.grad.tolist() == [30, 30]
    remove()
    y.sum().backward()
    assert seen == [[1, 1]] and x.grad.tolist() == [60, 60]
    for bad in (lambda: y.detach().register_hook(print), lambda: y.register_hook(3)):
        with pytest.raises(ruda.RudaError, match=r"^register_hook: "):
            bad()


IN_PLACE = {
    "the value itself": lambda y: y.assign(0.0),
    "a view of it": lambda y: y[:1].assign(0.0),
    "an element": lambda y: y.__setitem__(0, 5.0),
    "by places": lambda y: y.__setitem__([0], 5.0),
    "by a mask": lambda y: y.__setitem__(y > 100, 5.0),
    "through detach": lambda y: y.detach().__iadd__(1),
    "through a view of a view": lambda y: y[::-1][:1].__imul__(2),
    "by out=": lambda y: ruda.add(y, 1, out=y),
    "without grad": lambda y: ruda.no_grad()(y.assign)(1.0),
}


@pytest.mark.parametrize("how", IN_PLACE)
def test_a_saved_value_that_changed_in_place_raises(how: str) -> None:
    for saving in (lambda y: y * y, lambda y: ruda.sin(y), lambda y: ruda.exp(y).__mul__(y)):
        y = leaf(1, 2) * 3
        z = saving(y)
        IN_PLACE[how](y)
        with pytest.raises(ruda.VersionError, match=r"changed in place afterwards\. Got .*Try "):
            z.sum().backward()


def test_a_saved_view_that_changed_in_place_raises() -> None:
    y = leaf(1, 2, 3) * 2
    view = y[:2]
    z = view * view
    y[0] = 7.0
    with pytest.raises(ruda.VersionError):
        z.sum().backward()


def test_a_saved_output_that_changed_in_place_raises() -> None:
    y = ruda.exp(leaf(1, 2))
    y += 1
    with pytest.raises(ruda.VersionError, match=r"^exp: the output saved"):
        y.sum().backward()


def test_a_change_of_what_was_not_saved_is_followed() -> None:
    x = leaf(1, 2, 3)
    y = x * 2
    view = y[1:]
    y[2] = ruda.asarray(0.0)
    view *= 5
    (y + 0).sum().backward()
    assert x.grad.tolist() == [2, 10, 0]


def test_a_leaf_is_not_changed_in_place() -> None:
    x = leaf(1, 2)
    for change in (
        lambda: x.assign(0.0),
        lambda: x.__iadd__(1),
        lambda: x[:1].assign(0.0),
        lambda: x.__setitem__([0], 1.0),
        lambda: ruda.add(x, 1, out=x),
    ):
        with pytest.raises(ruda.GradientError, match="leaf that requires grad is changed in place"):
            change()
    assert x.tolist() == [1, 2]
    with ruda.no_grad():
        x -= 1
    assert x.tolist() == [0, 1] and x.requires_grad and x.is_leaf


def test_backward_twice_raises_unless_the_graph_is_retained() -> None:
    x = leaf(1, 2)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(ruda.GradientError, match=r"already freed\. Try backward\(retain_graph"):
        y.backward()
    assert x.grad.tolist() == [4, 8]


BAD = {
    "nothing recorded": (lambda x: ruda.ones(1).backward(), ruda.GradientError),
    "several elements": (lambda x: (x * 2).backward(), ruda.GradientError),
    "another shape": (lambda x: (x * 2).backward(ruda.ones(3)), ruda.ShapeError),
    "an ndarray": (lambda x: (x * 2).backward(np.ones(2)), ruda.DTypeError),
    "another device": (
        lambda x: (x * 2).backward(ruda.ones(2, device="null")),
        ruda.DeviceError,
    ),
    "a grad of another shape": (lambda x: setattr(x, "grad", ruda.ones(3)), ruda.ShapeError),
    "a grad of another dtype": (lambda x: setattr(x, "grad", ruda.ones(2)), ruda.ShapeError),
    "a grad elsewhere": (
        lambda x: setattr(x, "grad", ruda.ones(2, dtype="float64", device="null")),
        ruda.DeviceError,
    ),
    "a grad that is a number": (lambda x: setattr(x, "grad", 1.0), ruda.DTypeError),
    "a grad of a result": (lambda x: setattr(x * 2, "grad", x), ruda.GradientError),
    "integers": (lambda x: ruda.asarray([1]).requires_grad_(), ruda.DTypeError),
    "switching off a result": (lambda x: (x * 2).requires_grad_(False), ruda.GradientError),
    "a function of many": (lambda x: ruda.grad(lambda t: t)(x), ruda.GradientError),
    "a complex function": (lambda x: ruda.grad(lambda t: t.sum() * 1j)(x), ruda.GradientError),
    "an untracked input": (
        lambda x: ruda.gradients([x.sum()], [ruda.ones(1)]),
        ruda.GradientError,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_are_clear(case: str) -> None:
    call, error = BAD[case]
    with pytest.raises(error, match=r"^\w+: .+\."):
        call(leaf(1, 2))


def test_complex_gradients_are_by_real_plus_i_times_by_imaginary_part() -> None:
    z = ruda.tensor(np.array([1 + 2j, -0.5j]), requires_grad=True)
    ruda.sum(ruda.abs(z) ** 2).backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * z.detach().numpy(), rtol=1e-14)
    gradcheck(lambda t: ruda.exp(t) * ruda.conj(t), [np.array([0.3 + 0.4j, -1.0 + 0.1j])])


def test_broadcast_and_promotion_are_undone() -> None:
    x = ruda.tensor([[1.0], [2.0]], dtype="float16", requires_grad=True)
    (x * ruda.ones((2, 3), dtype="float64")).sum().backward()
    assert x.grad.dtype is ruda.float16 and x.grad.tolist() == [[3], [3]]


def test_a_deep_graph_needs_no_recursion() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(20_000):
        y = y + 0.0
    y.sum().backward()
    del y
    assert x.grad.tolist() == [1]


def test_the_tape_is_freed_by_reference_count_alone() -> None:
    def step() -> int:
        (ruda.tanh(x * x) @ x).backward()
        x.grad = None
        return len(gc.get_objects())

    x = leaf(*range(100))
    step()
    gc.collect()
    gc.disable()
    try:
        first = step()
        counts = [step() for _ in range(50)]
        # One cycle a step would be 50 objects at least; the list of counts itself is one.
        assert counts[-1] - first < 10
    finally:
        gc.enable()


def test_a_gradient_is_the_leafs_own() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    seed = ruda.ones(2, dtype="float64")
    (x + y).backward(seed)
    x.grad += 1
    assert y.grad.tolist() == [1, 1] and seed.tolist() == [1, 1]
    (x.reshape((2, 1)).mT + 0).backward(ruda.ones((1, 2), dtype="float64"))
    assert x.grad.tolist() == [3, 3] and not x.grad.is_view
