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
    "times zero": lambda x: x * 0 + 1,
    "minus itself": lambda x: x - x,
    "over itself": lambda x: x / x,
    "plus and minus one": lambda x: (x + 1) - 1,
    "doubled and halved": lambda x: x * 2e38 * 2 / 2e38,
    "a root squared": lambda x: ruda.square(ruda.sqrt(x)),
    "a logarithm raised": lambda x: ruda.exp(ruda.log(x)),
    "a difference negated": lambda x: -(x - 1.5),
    "a sum in another order": lambda x: (x + 3e-39) + 1e8 - (x + 1e8),
    "plus zero of its own": lambda x: 1 / (x + ruda.zeros((), dtype="float32")),
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes_keep_their_bits_too(dtype: str) -> None:
    for name, plain in (NOTHING | SOMETHING).items():
        x = ruda.astype(special(), dtype)
        with np.errstate(all="ignore"):
            assert bits(ruda.compile(plain)(x)) == bits(plain(x)), name


def test_the_same_operator_on_the_same_values_runs_once() -> None:
    step = ruda.compile(lambda x: ruda.exp(x) * 2 + ruda.exp(x) / (ruda.exp(x) * 2))
    x = special()
    with np.errstate(all="ignore"):
        plain = ruda.exp(x) * 2 + ruda.exp(x) / (ruda.exp(x) * 2)
        assert bits(step(x)) == bits(plain)
    assert operators(step) == ["exp", "multiply", "divide", "add"]


def test_numbers_that_are_equal_and_not_the_same_are_two() -> None:
    step = ruda.compile(lambda x: (1 / (x * 0.0), 1 / (x * -0.0), x * True, x * 1, x * 1.0))
    x = ruda.asarray([1.0, 2.0])
    with np.errstate(all="ignore"):
        found = step(x)
    assert found[0].tolist() == [np.inf] * 2 and found[1].tolist() == [-np.inf] * 2
    assert [t.dtype.name for t in step(ruda.asarray([1, 2]))[2:]] == ["int32", "int32", "float32"]


DRAWS: dict[str, Callable[[Any], Any]] = {
    "dropout": lambda x: ruda.nn.functional.dropout(x, 0.5),
    "uniform": lambda x: ruda.random.uniform((64,)),
    "normal": lambda x: ruda.random.normal((64,)),
    "bernoulli": lambda x: ruda.random.bernoulli(0.5, (64,)),
    "integers": lambda x: ruda.random.integers(0, 1000, (64,)),
    "permutation": lambda x: ruda.random.permutation(64),
    "categorical": lambda x: ruda.random.categorical(ruda.ones((64, 9))),
}


@pytest.mark.parametrize("name", DRAWS)
def test_two_draws_are_never_one(name: str) -> None:
    def plain(x: Any) -> Any:
        return DRAWS[name](x), DRAWS[name](x)

    step, x = ruda.compile(plain), ruda.ones((64,))
    drawn = []
    for run in (plain, step):
        ruda.random.manual_seed(3)
        drawn.append([t.tolist() for _ in range(3) for t in run(x)])
    assert drawn[0] == drawn[1]
    assert len({str(values) for values in drawn[1]}) == 6


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
