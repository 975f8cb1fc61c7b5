"""One tensor in two places while tracing, and two different ones later, or the other way round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import CaptureError


@pytest.fixture
def row() -> ruda.Tensor:
    """Ten numbers, of which views are made."""
    return ruda.asarray(np.arange(10.0, dtype="f"))


def leaf(*values: float) -> ruda.Tensor:
    return ruda.tensor(list(values), requires_grad=True)


def test_one_view_as_two_arguments_and_two_views_of_its_base(row: ruda.Tensor) -> None:
    step = ruda.compile(lambda x, y: x - y)
    whole = row[:4]
    for _ in range(2):
        assert step(whole, whole).tolist() == [0.0] * 4
        assert step(row[:4], row[3:7]).tolist() == [-3.0] * 4
        assert step(row[4:8], row[2:6]).tolist() == [2.0] * 4
    assert "2 signature(s)" in repr(step)


def test_one_view_twice_is_changed_in_place(row: ruda.Tensor) -> None:
    def change(x: Any, y: Any) -> Any:
        x += 1.0
        return y * 1.0

    step = ruda.compile(change)
    for i, j in ((0, 0), (0, 3), (3, 3), (0, 2), (2, 0)):
        x = row[i : i + 4]
        wanted = row.numpy(copy=True)
        wanted[i : i + 4] += 1
        found = step(x, x if i == j else row[j : j + 4])
        np.testing.assert_array_equal(found.numpy(), wanted[j : j + 4])
        np.testing.assert_array_equal(row.numpy(), wanted)


def test_a_view_as_argument_and_state_and_another_view_later(row: ruda.Tensor) -> None:
    state = row[1:5]
    step = ruda.compile(lambda x: x - state)
    for _ in range(2):
        assert step(state).tolist() == [0.0] * 4
        assert step(row[:4]).tolist() == [-1.0] * 4
        assert step(row[3:7]).tolist() == [2.0] * 4
    assert "2 signature(s)" in repr(step)


def test_one_gradient_of_two_leaves_and_two_gradients_later() -> None:
    a, b, both = leaf(1.0, 2.0), leaf(3.0, 4.0), ruda.ones((2,))
    of_state = ruda.compile(lambda: a.grad - b.grad)
    of_arguments = ruda.compile(lambda x, y: x.grad - y.grad)
    for _ in range(2):
        a.grad = b.grad = both
        assert of_state().tolist() == of_arguments(a, b).tolist() == [0.0, 0.0]
        b.grad = ruda.asarray(np.array([5.0, 7.0], "f"))
        assert of_state().tolist() == of_arguments(a, b).tolist() == [-4.0, -6.0]


@pytest.mark.parametrize("first", [False, True])
def test_a_gradient_that_is_state_and_another_one_later(first: bool) -> None:
    a, b, state = leaf(1.0, 2.0), leaf(3.0, 4.0), ruda.ones((2,))

    def difference(x: Any) -> Any:
        given = state * 1.0 if first else x.grad * 1.0
        return x.grad - state + (given - given)

    of_argument = ruda.compile(difference)
    of_state = ruda.compile(lambda: difference(a))
    for _ in range(2):
        a.grad, b.grad = state, ruda.asarray(np.array([9.0, 8.0], "f"))
        assert of_argument(a).tolist() == of_state().tolist() == [0.0, 0.0]
        assert of_argument(b).tolist() == [8.0, 7.0]
        a.grad = ruda.asarray(np.array([5.0, 7.0], "f"))
        assert of_argument(a).tolist() == of_state().tolist() == [4.0, 6.0]


def test_a_part_is_changed_in_place_and_a_whole_tensor_later(row: ruda.Tensor) -> None:
    def change(x: Any) -> None:
        x += 1.0

    step = ruda.compile(change)
    for _ in range(2):
        whole = ruda.zeros((4,))
        step(row[:4])
        step(whole)
        assert whole.tolist() == [1.0] * 4
    assert row.tolist() == [2.0, 3.0, 4.0, 5.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]


def test_a_leaf_as_argument_and_state_and_its_memory_under_another_leaf_later() -> None:
    weight = leaf(1.0, 2.0)
    step = ruda.compile(lambda x: (x * weight).sum())
    for _ in range(2):
        step(weight).backward()
        assert weight.grad.tolist() == [2.0, 4.0]
        weight.grad = None
        other = weight.detach().requires_grad_()
        step(other).backward()
        assert weight.grad.tolist() == other.grad.tolist() == [1.0, 2.0]
        weight.grad = None


def test_one_leaf_as_two_arguments_and_two_leaves_of_its_memory_later() -> None:
    weight = leaf(1.0, 2.0)
    step = ruda.compile(lambda x, y: (x * y).sum())
    for _ in range(2):
        step(weight, weight).backward()
        assert weight.grad.tolist() == [2.0, 4.0]
        weight.grad = None
        other = weight.detach().requires_grad_()
        step(weight, other).backward()
        assert weight.grad.tolist() == other.grad.tolist() == [1.0, 2.0]
        weight.grad = None


def test_gradients_that_show_what_the_step_changes() -> None:
    """State and another gradient are changed where the gradient of an argument lies."""
    state = ruda.ones((2,))

    def change_state(x: Any, y: Any) -> Any:
        state.assign(state + 1.0)
        return x.grad * 1.0

    def change_gradient(x: Any, y: Any) -> Any:
        y.grad.assign(y.grad * 2.0)
        return x.grad * 1.0

    for change in (change_state, change_gradient):
        step = ruda.compile(change)
        for _ in range(2):
            x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
            x.grad, y.grad = ruda.ones((2,)) * 3.0, ruda.ones((2,)) * 5.0
            assert step(x, y).tolist() == [3.0, 3.0]
            x.grad = y.grad = state
            found = step(x, y).tolist()
            assert found == state.tolist()


def test_a_gradient_that_is_added_to_is_state_as_well() -> None:
    weight, state = leaf(1.0, 2.0), ruda.ones((2,))

    @ruda.compile
    def step(x: Any) -> Any:
        (weight * x).sum().backward()
        return state * 1.0

    x = ruda.asarray(np.array([2.0, 3.0], "f"))
    for _ in range(2):
        weight.grad = ruda.zeros((2,))
        assert step(x).tolist() == state.tolist()
        weight.grad = state
        wanted = (state + x).tolist()
        assert step(x).tolist() == state.tolist() == wanted


def test_an_argument_that_is_a_gradient_of_another_one_is_refused() -> None:
    @ruda.compile
    def step(x: Any, y: Any) -> Any:
        y += 1.0
        return x.grad * 1.0

    x, y = leaf(1.0, 2.0), ruda.zeros((2,))
    x.grad = ruda.ones((2,))
    assert step(x, y).tolist() == [1.0, 1.0]
    with pytest.raises(CaptureError, match="a gradient is also an argument"):
        step(x, x.grad)
    assert x.grad.tolist() == [1.0, 1.0]


def test_a_view_that_is_written_to_itself_and_another_one_later(row: ruda.Tensor) -> None:
    """What is no change where both are the same memory is one where they are not."""
    part = row[1:5]

    def of_state(x: Any, y: Any) -> None:
        part[1:] = x[:-1]

    def of_arguments(x: Any, y: Any) -> None:
        y[1:] = x[:-1]

    for change in (of_state, of_arguments):
        step = ruda.compile(change)
        for start in (2, 3, 2, 0, 4):
            wanted = row.numpy(copy=True)
            wanted[2:5] = wanted[start : start + 3].copy()
            step(row[start : start + 4], row[1:5])
            np.testing.assert_array_equal(row.numpy(), wanted)
            row += 1.0


def test_a_gradient_in_memory_of_state_that_is_an_argument_too(row: ruda.Tensor) -> None:
    weight, part = leaf(1.0, 2.0, 3.0, 4.0), row[1:5]

    @ruda.compile
    def step(x: Any) -> Any:
        weight.grad.assign(weight.grad * 2.0)
        return part + x

    for _ in range(2):
        weight.grad = ruda.ones((4,))
        assert step(row[:4]).tolist() == (part + row[:4]).tolist()
        weight.grad = row[2:6]
        found = step(row[:4])
        assert found.tolist() == (part + row[:4]).tolist()
        assert weight.grad.tolist() == row[2:6].tolist()
