"""What a compiled step leaves out because it changes nothing, and what it must not leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from tests.fusion.twins import bits


def operators(step: Any) -> list[str]:
    """The operators of the one signature, views left out."""
    (program,) = (p for known in step.programs.values() for p in known)
    return [i.op for i in program.graph.instructions if i.plan is None or not i.plan.shares]


def special(dtype: str = "float32") -> Any:
    values = [0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 3e-39]
    return ruda.asarray(np.array(values, "float32").reshape(2, 4).astype(dtype))


NOTHING: dict[str, Callable[[Any], Any]] = {
    "times one": lambda x: x * 1 + 2,
    "one times": lambda x: 1.0 * x + 2,
    "times a one of its own": lambda x: x * ruda.ones((), dtype="float32") + 2,
    "over one": lambda x: x / 1 + 2,
    "minus zero": lambda x: x - 0 + 2,
    "plus minus zero": lambda x: x + -0.0 + 2,
    "negated twice": lambda x: ruda.negative(-x) + 2,
    "copied": lambda x: x.copy() + 2,
    "turned twice": lambda x: x.mT.mT + 2,
    "there and back": lambda x: x.reshape((8,)).reshape((2, 4)) + 2,
    "the same slice": lambda x: x[:] + 2,
    "cast and back": lambda x: x.astype("float64").astype("float32") + 2,
    "several": lambda x: (ruda.negative(-(x * 1)) - 0.0).copy() + 2,
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_changes_nothing_is_gone(name: str) -> None:
    plain = NOTHING[name]
    step = ruda.compile(plain)
    assert bits(step(special())) == bits(plain(special()))
    assert bits(step(special())) == bits(plain(special()))
    assert operators(step) == ["add"]


SOMETHING: dict[str, Callable[[Any], Any]] = {
    "plus zero makes zeros positive": lambda x: 1 / (x + 0),
    "zero minus": lambda x: 0 - x,
    "one over": lambda x: 1 / x,
    "narrowed and back": lambda x: x.astype("float16").astype("float32"),
    "whole numbers and back": lambda x: ruda.where(x == x, x, 0.0).astype("float64") * 0 + x,
    "turned": lambda x: x.mT.copy(),
    "a copy that is returned": lambda x: x.copy(),
    "times one that is returned": lambda x: x * 1,
}


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize("name", SOMETHING)
def test_what_changes_something_stays(name: str) -> None:
    plain = SOMETHING[name]
    step = ruda.compile(plain)
    for _ in range(2):
        x = special()
        assert bits(step(x)) == bits(plain(x))
    assert operators(step)


def test_integers_plus_zero() -> None:
    x = ruda.asarray([1, -2, 0])
    step = ruda.compile(lambda x: (x + 0 - 0) * 1 + 5)
    assert step(x).tolist() == [6, 3, 5]
    assert operators(step) == ["add"]


def test_the_gradient_of_a_slice_that_is_everything_is_passed_on() -> None:
    table = ruda.ones((3, 2)).requires_grad_()

    def step(x: Any) -> Any:
        (table[: x.shape[0]] * x).sum().backward()
        found, table.grad = table.grad, None
        return found * 2

    run = ruda.compile(step)
    for i in range(3):
        assert run(ruda.full((3, 2), float(i))).tolist() == [[2 * i, 2 * i]] * 3
    assert "unslice" not in operators(run)


def test_constants_are_made_once() -> None:
    step = ruda.compile(lambda x: x * (ruda.ones(4) + ruda.arange(4)).astype("float32"))
    for i in range(3):
        assert step(ruda.full((4,), float(i))).tolist() == [i * k for k in (1.0, 2.0, 3.0, 4.0)]
    assert operators(step) == ["multiply"]


def test_state_that_is_read_through_nothing_is_read_before_it_changes() -> None:
    total = ruda.asarray([1.0, 2.0])

    @ruda.compile
    def step(x: Any) -> Any:
        before = total * 1
        total.assign(total + x)
        return before + 0.5, total.copy()

    for i in range(3):
        was = total.numpy(copy=True)
        before, after = step(ruda.asarray([1.0, 1.0]))
        assert before.tolist() == (was + 0.5).tolist()
        assert after.tolist() == (was + 1).tolist() == total.tolist()
        assert i >= 0


def test_the_check_still_sees_the_whole_step() -> None:
    step = ruda.compile(NOTHING["several"])
    assert step.check(special()).worst == 0.0
