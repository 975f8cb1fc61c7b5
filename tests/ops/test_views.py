"""In-place changes and views: gradients are those of the values that are there now."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import GradientError, ShapeError, VersionError
from ruda.testing import gradcheck

VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x[1],
    "column": lambda x: x[:, 2],
    "steps": lambda x: x[::-1, ::2],
    "transpose": lambda x: x.mT,
    "permute": lambda x: ruda.permute_dims(x, (1, 0)),
    "reshape": lambda x: ruda.reshape(x, (2, 6)),
    "flip": lambda x: ruda.flip(x, axis=0),
    "diagonal": lambda x: ruda.diagonal(x, offset=1),
    "expand_dims": lambda x: x[:, None],
    "whole": lambda x: x[...],
    "view of view": lambda x: x.mT[1:, ::2][:, 0],
    "element": lambda x: x[0, 0],
    "nothing": lambda x: x[3:],
}


def squared(x: Any) -> Any:
    """The square of ``x``, whose own memory is then not saved for backward."""
    copy = x * 1
    return copy * copy


@pytest.fixture
def x(rng: np.random.Generator) -> Any:
    return rng.standard_normal((3, 4))


@pytest.mark.parametrize("name", VIEWS)
def test_change_through_a_view(name: str, x: Any) -> None:
    def call(x: Any) -> Any:
        base = x * x
        view = VIEWS[name](base)
        view *= 2
        view += squared(view)
        return base * 2 + view.sum()

    gradcheck(call, [x])


@pytest.mark.parametrize("name", VIEWS)
def test_change_of_the_base_reaches_views(name: str, x: Any) -> None:
    def call(x: Any, y: Any) -> Any:
        base = x * x
        view = VIEWS[name](base)
        before = view * 1
        base += y
        base[1:] -= squared(base[0])
        return before.sum() + (view * view).sum() + base

    gradcheck(call, [x, x[::-1].copy()])


@pytest.mark.parametrize("name", VIEWS)
def test_an_untracked_base_becomes_tracked(name: str, x: Any) -> None:
    def call(y: Any) -> Any:
        base = ruda.asarray(x) * 1
        view = VIEWS[name](base)
        base[...] = y * y
        return view * view

    gradcheck(call, [x])


@pytest.mark.parametrize("name", VIEWS)
def test_the_base_is_gone(name: str, x: Any) -> None:
    def call(x: Any) -> Any:
        view = VIEWS[name](x * x)
        view += squared(view)
        view[...] = view * 3
        return view * view

    gradcheck(call, [x])


def test_siblings(x: Any) -> None:
    def call(x: Any) -> Any:
        base = x * x
        upper, lower, columns = base[:2], base[1:], base.mT
        upper += squared(lower)
        columns[0] += columns[1]
        return upper.sum() * lower + columns[:2, :1] * base[:2]

    gradcheck(call, [x])


def test_overlapping_siblings_of_a_base_that_is_gone(x: Any) -> None:
    def call(x: Any) -> Any:
        rows = (x * x)[1:]
        last = rows[1:]
        last -= squared(last)
        rows += last.sum()
        inner = last[:, 1:3]
        inner *= 2
        return rows.sum() * last * inner.sum()

    gradcheck(call, [x])


def test_a_view_changed_alone_is_the_base_of_views_taken_later(x: Any) -> None:
    def call(x: Any) -> Any:
        rows = (x * x)[1:]
        rows += squared(rows)
        last = rows[1:]
        last += squared(last)
        return rows * last

    gradcheck(call, [x])


def test_separate_siblings_of_a_base_that_is_gone(x: Any) -> None:
    def call(x: Any) -> Any:
        first, second = ruda.unstack((x * x)[:2])
        first += squared(second)
        second += first
        return first * second

    gradcheck(call, [x])


def test_second_order_through_changes(x: Any) -> None:
    def call(x: Any) -> Any:
        y = x * x * x
        y[0] = squared(y[1]) * 2
        y.mT[1:] += squared(y[0, 0])
        return y * y

    gradcheck(call, [x], order=3)


def test_a_saved_value_that_changed() -> None:
    x = ruda.tensor(np.ones((2, 2)), requires_grad=True)
    y = x * 2
    z = y * y
    y[0, 0] = 5.0
    with pytest.raises(VersionError, match=r"multiply: .*changed in place"):
        z.sum().backward()


def test_a_saved_output_that_changed() -> None:
    y = ruda.exp(ruda.tensor([1.0, 2.0], requires_grad=True))
    y += 1
    with pytest.raises(VersionError, match="exp: the output"):
        y.sum().backward()


def test_a_view_that_was_saved_sees_the_change_of_its_base() -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    z = y[:1] * y[1:]
    y *= 2
    with pytest.raises(VersionError):
        z.backward()


def test_values_not_saved_may_change() -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    z = y[[0, 1]] + y
    y[0] = 7.0
    z.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("key", [0, [0], slice(None), [True, False]])
def test_a_leaf_is_not_changed(key: Any) -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match="leaf"):
        x[key] = 0.0
    with pytest.raises(GradientError, match="leaf"):
        x[:1].assign(3.0)
    with pytest.raises(GradientError, match="leaf"):
        x += 1
    assert x.tolist() == [1, 2]
    with ruda.no_grad():
        x[key] = 5.0
    assert x.requires_grad
    assert x.is_leaf
    assert x[0].item() == 5


def test_a_view_that_is_a_leaf_is_not_changed_through_its_base() -> None:
    base = ruda.zeros(4)
    leaf = base[:2].requires_grad_()
    with pytest.raises(GradientError, match="leaf"):
        base[1:] = ruda.tensor([1.0, 2.0, 3.0], requires_grad=True) * 1
    base[2:] = 7.0
    assert leaf.is_leaf
    assert base.tolist() == [0, 0, 7, 7]


def test_updates_without_grad_count_as_changes() -> None:
    w = ruda.tensor([2.0], requires_grad=True)
    loss = w * w
    with ruda.no_grad():
        w -= 0.5
    with pytest.raises(VersionError):
        loss.backward()


def test_a_detached_tensor_shares_memory_and_versions() -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    z = y * y
    y.detach()[0] = 9.0
    assert y.tolist() == [9, 4]
    with pytest.raises(VersionError):
        z.sum().backward()


def test_memory_that_repeats_is_not_written() -> None:
    x = ruda.zeros((1, 3))
    for view in (ruda.broadcast_to(x, (2, 3)), ruda.unfold(x, 2)):
        for key in (..., [0]):
            with pytest.raises(ShapeError, match="repeats memory"):
                view[key] = 1.0
    ruda.broadcast_to(x, (2, 3))[0] = 1.0
    ruda.unfold(x, 2, step=1)[0, 0] = 2.0
    assert x.tolist() == [[2, 2, 1]]


def test_windows_of_a_changed_base(x: Any) -> None:
    def call(x: Any) -> Any:
        base = x * x
        windows = ruda.unfold(base, 2, axis=1)
        base[:, 1] = base[:, 0] * 3
        return windows * windows

    gradcheck(call, [x])


def test_nothing_is_kept_alive() -> None:
    gc.collect()
    gc.disable()
    try:
        x = ruda.tensor(np.ones(4), requires_grad=True)
        for _ in range(50):
            y = x * 2
            y[1:] = y[:-1]
            y[[0, 1]] *= 3
            y.sum().backward()
        base = ruda.zeros(4)
        for _ in range(50):
            base[1:][0] = base[0]
        assert base.share_count == 1
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_share_count() -> None:
    x = ruda.zeros((2, 3))
    view = x[0]
    other = view[1:]
    assert (x.share_count, view.share_count, other.share_count) == (3, 3, 3)
    del view
    assert x.share_count == 2
    assert other.is_view
    assert not x.is_view


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda memory: memory[:4, :3].T,
    "reversed": lambda memory: memory[2::-1, 3::-1],
    "columns": lambda memory: memory[::2, 1::2],
    "row-major": lambda memory: memory[:3, :4].copy(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bases_of_any_layout(layout: str, x: Any) -> None:
    def call(x: Any) -> Any:
        base = ruda.asarray(LAYOUTS[layout](np.ones((6, 8))))
        view, row = base[1:, ::-1], base[1]
        base += x
        view[0] = squared(x[0]) * 2
        row += base[0]
        return base * base.mT[:3, :1] + view.sum() * row

    gradcheck(call, [x])


def test_a_reversed_line(rng: np.random.Generator) -> None:
    def call(x: Any) -> Any:
        base = ruda.asarray(np.ones(4)[::-1])
        view = base[1:]
        base[...] = x
        view[:2] += squared(x[:2])
        return base * base[::-1] + view.sum()

    gradcheck(call, [rng.standard_normal(4)])
