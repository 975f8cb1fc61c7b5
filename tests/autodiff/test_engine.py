"""The backward walk: accumulation, hooks, freeing, versions and the classic mistakes."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import ruda
from ruda.core.errors import DTypeError, GradientError, ShapeError, VersionError
from ruda.tensor.node import Node


def leaf(*values: float) -> ruda.Tensor:
    return ruda.tensor(list(values), dtype="float64", requires_grad=True)


def test_two_uses_of_a_leaf_add_up() -> None:
    x = leaf(2.0, 3.0)
    (x * x + 4.0 * x).sum().backward()
    assert x.grad.tolist() == [8.0, 10.0]


def test_backward_sums_into_grad_in_place() -> None:
    x = leaf(1.0)
    (x * 2.0).sum().backward()
    grad = x.grad
    (x * 3.0).sum().backward()
    assert x.grad is grad and grad.item() == 5.0


def test_leaves_of_one_sum_do_not_share_their_gradient() -> None:
    x, y = leaf(1.0), leaf(2.0)
    (x + y).sum().backward()
    x.grad.assign(100.0)
    assert y.grad.item() == 1.0


def test_the_gradient_a_user_passes_in_is_not_taken_over() -> None:
    x, seed = leaf(1.0, 2.0), ruda.tensor([1.0, 1.0], dtype="float64")
    (x + 0.0).backward(seed)
    (x + 0.0).backward(seed)
    assert seed.tolist() == [1.0, 1.0] and x.grad.tolist() == [2.0, 2.0]


def test_diamond_of_many_paths_is_walked_once_per_node() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(40):
        y = y + y
    y.sum().backward()
    assert x.grad.item() == 2.0**40


def test_a_chain_of_ten_thousand_operators_neither_recurses_nor_crashes() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(10_000):
        y = y + 1.0
    y.sum().backward()
    assert x.grad.item() == 1.0
    del y


def test_broadcasting_is_undone() -> None:
    x = ruda.ones((3, 1), dtype="float64").requires_grad_()
    y = ruda.ones((4,), dtype="float64").requires_grad_()
    (x * y).sum().backward()
    assert x.grad.tolist() == [[4.0]] * 3 and y.grad.tolist() == [3.0] * 4


def test_gradient_has_the_dtype_of_its_leaf() -> None:
    x = ruda.ones(3, dtype="float32").requires_grad_()
    (x * ruda.ones(3, dtype="float64")).sum().backward()
    assert x.grad.dtype is ruda.float32


def test_complex_loss_of_a_real_leaf_gives_a_real_gradient() -> None:
    x = leaf(3.0)
    z = x * ruda.asarray(2.0 + 1.0j, dtype="complex128")
    (ruda.real(z) * ruda.real(z) + ruda.imag(z) * ruda.imag(z)).sum().backward()
    assert x.grad.dtype is ruda.float64 and x.grad.item() == pytest.approx(30.0)


def test_third_order() -> None:
    x = leaf(2.0)
    y = x * x * x * x
    for expected in (32.0, 48.0, 48.0):
        (y,) = ruda.gradients([y], [x], create_graph=True)
        assert y.item() == pytest.approx(expected)


def test_hooks_change_and_can_be_removed() -> None:
    x = leaf(1.0)
    remove = x.register_hook(lambda g: g * 10.0)
    h = x * 2.0
    seen: list[float] = []
    h.register_hook(lambda g: seen.append(g.item()))
    h.sum().backward()
    assert x.grad.item() == 20.0 and seen == [1.0]
    remove()
    (x * 2.0).sum().backward()
    assert x.grad.item() == 22.0


def test_second_backward_names_what_was_freed() -> None:
    x = leaf(1.0)
    y = ruda.exp(x).sum()
    y.backward()
    with pytest.raises(GradientError, match="exp saved was already freed"):
        y.backward()


def test_retain_graph_allows_a_second_backward() -> None:
    x = leaf(1.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 4.0


def test_in_place_on_a_saved_output_raises() -> None:
    y = ruda.exp(leaf(1.0))
    z = y.sum()
    y += 1.0
    with pytest.raises(VersionError, match=r"exp: the output saved .* changed in place"):
        z.backward()


def test_in_place_on_a_saved_input_raises_through_any_alias() -> None:
    x, w = leaf(1.0, 2.0), ruda.tensor([3.0, 4.0], dtype="float64")
    y = (x * w).sum()
    w.detach().assign(0.0)
    with pytest.raises(VersionError, match="multiply: the input 'y'"):
        y.backward()


def test_a_leaf_changed_in_place_raises_outside_of_no_grad() -> None:
    x = leaf(1.0)
    with pytest.raises(GradientError, match="leaf that requires grad is changed in place"):
        x += 1.0
    with ruda.no_grad():
        x += 1.0
    assert x.item() == 2.0 and x.is_leaf


def test_in_place_keeps_the_tape_right() -> None:
    x = leaf(2.0)
    y = x * 3.0
    y += x * x
    y.sum().backward()
    assert x.grad.item() == 7.0


def test_backward_of_several_elements_needs_a_gradient() -> None:
    with pytest.raises(GradientError, match="needs a gradient for several elements"):
        (leaf(1.0, 2.0) * 2.0).backward()


def test_backward_without_history_raises() -> None:
    with pytest.raises(GradientError, match="not made from anything that requires grad"):
        ruda.tensor(1.0).backward()


def test_wrong_gradients_raise() -> None:
    y = leaf(1.0, 2.0) * 2.0
    with pytest.raises(ShapeError, match="the gradient does not fit"):
        y.backward(ruda.ones(3, dtype="float64"))
    with pytest.raises(DTypeError, match="not a tensor"):
        y.backward(np.ones(2))


def test_integers_have_no_gradient() -> None:
    with pytest.raises(DTypeError, match="has no gradient"):
        ruda.tensor([1, 2], requires_grad=True)


def test_grad_must_fit_its_tensor() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(ShapeError, match="does not fit its tensor"):
        x.grad = ruda.ones(3, dtype="float64")


def test_no_grad_builds_no_node() -> None:
    x = leaf(1.0)
    with ruda.no_grad():
        assert (x * 2.0).node is None
    with ruda.inference_mode():
        assert (x * 2.0).node is None

        @ruda.enable_grad()
        def recorded() -> ruda.Tensor:
            return x * 2.0

        assert recorded().node is not None
    assert (ruda.tensor(1.0) * 2.0).node is None


def test_only_a_leaf_can_stop_requiring_grad() -> None:
    with pytest.raises(GradientError, match="only a leaf"):
        (leaf(1.0) * 2.0).requires_grad_(False)


def test_an_operand_is_kept_only_for_a_tracked_partner() -> None:
    x, mask = leaf(1.0), ruda.tensor([0.0], dtype="float64")
    node = (x * mask).node
    assert node.sy is mask.handle and not hasattr(node, "sx")


def test_memory_is_freed_by_reference_count_alone() -> None:
    w = ruda.ones((64, 64), dtype="float64").requires_grad_()

    def step() -> None:
        y = ruda.exp(w * 0.01) * w
        y += y.sum()
        (y * y).sum().backward()
        with ruda.no_grad():
            w.assign(w - w.grad * 1e-9)
        w.grad = None

    def alive() -> dict[str, int]:
        kinds = (type(w), type(w.handle), Node)
        return {k.__name__: sum(1 for o in gc.get_objects() if type(o) is k) for k in kinds}

    gc.collect()
    gc.disable()
    try:
        step()
        before = alive()
        for _ in range(100):
            step()
        assert alive() == before
    finally:
        gc.enable()
