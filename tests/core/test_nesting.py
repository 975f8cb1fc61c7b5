"""Containers and modules that lie in themselves are refused by name, wherever they are given."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import pytest

import ruda
from ruda import nn
from ruda.core.errors import ArgumentError, CaptureError, DTypeError, ShapeError
from ruda.core.nesting import loop_in
from ruda.data import collate

X = ruda.asarray([1.0, 2.0])


@dataclasses.dataclass
class Pair:
    """A record."""

    one: Any
    other: Any = None


def looped(kind: str) -> Any:
    """A container of ``X`` and itself."""
    made: Any = {"list": [X], "dict": {0: X}, "deque": collections.deque([X]), "record": Pair(X)}
    value = made[kind]
    if kind == "dict":
        value[1] = value
    elif kind == "record":
        value.other = value
    else:
        value.append(value)
    return value


PLACES = {"list": "[1]", "dict": "[1]", "deque": "[1]", "record": ".other"}


@pytest.mark.parametrize("kind", list(PLACES))
def test_arguments_and_results_of_compiled_steps(kind: str) -> None:
    value, place = looped(kind), PLACES[kind]
    step = ruda.compile(lambda v, *rest, **named: X * 2)
    for call, path in (
        (lambda: step(value), f"argument 0{place}"),
        (lambda: step(X, (X, value)), f"argument 1[1]{place}"),
        (lambda: step(X, named={"a": value}), f"argument 'named'['a']{place}"),
        (lambda: step.memory(value), f"argument 0{place}"),
        (lambda: ruda.compile(lambda x: [value])(X), f"the result[0]{place}"),
    ):
        with pytest.raises(CaptureError) as caught:
            call()
        assert f"compile: {path} is a container that it lies in itself" in str(caught.value)


def test_state_that_lies_in_itself_is_followed_once() -> None:
    for kind in PLACES:
        value = looped(kind)
        step = ruda.compile(lambda x, value=value: x * (0.0 if value is None else 2.0))
        assert step(X).tolist() == step(X).tolist() == [2.0, 4.0]
    rates: list[Any] = [2.0]
    rates.append(rates)
    step = ruda.compile(lambda x: x * rates[1][1][0])
    assert step(X).tolist() == [2.0, 4.0]
    rates[0] = 3.0
    assert step(X).tolist() == [3.0, 6.0]


def test_gradients_samples_and_lists_of_numbers() -> None:
    value = looped("list")
    with pytest.raises(ArgumentError, match=r"^grad: the tree\[1\] is a container"):
        ruda.grad(lambda v: v[0].sum())(value)
    with pytest.raises(DTypeError, match=r"^collate: sample 0\[1\] is a container"):
        collate([value, value])
    numbers: list[Any] = [1.0]
    numbers.append([numbers])
    with pytest.raises(ShapeError, match=r"^asarray: the list\[1\]\[0\] is a list that it lies in"):
        ruda.asarray(numbers)
    first: list[Any] = []
    first.append(first)
    with pytest.raises(ShapeError, match=r"^asarray: the list\[0\] is a list"):
        ruda.asarray(first)
    deep: Any = 1.0
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(ShapeError, match=r"^asarray: lists are nested too deeply"):
        ruda.asarray(deep)


def test_modules_in_themselves() -> None:
    outer, inner = nn.Sequential(nn.Linear(2, 2)), nn.ModuleList([nn.Linear(2, 2)])
    outer.more = inner
    with pytest.raises(ArgumentError, match=r"^ModuleList: up\.more would be the module that it"):
        inner.up = outer
    with pytest.raises(ArgumentError, match=r"^Sequential: own would be"):
        outer.own = outer
    assert len(list(outer.parameters())) == 4
    # In a tuple it is no module of it.
    inner.up = (outer,)
    assert len(list(outer.parameters())) == 4


def test_what_is_there_twice_is_no_loop() -> None:
    row = [X]
    assert loop_in([row, row, {"a": (row, row)}], "it") is None
    both = ruda.compile(lambda v: v[0][0] + v[1][0])
    assert both([row, row]).tolist() == [2.0, 4.0]
