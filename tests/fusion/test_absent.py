"""A compiled step sees what was not there when it was traced, and in which order things are."""

from __future__ import annotations

import array
import collections
import contextvars
import dataclasses
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import ruda
from ruda import nn
from ruda.core.errors import CaptureError
from tests.fusion.twins import bits

X = ruda.asarray([1.0, 2.0])


def follows(step: Any, *changes: Callable[[], object]) -> None:
    """A compiled step gives what ``step`` gives, after each of the changes too."""
    compiled = ruda.compile(step)
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            assert bits(compiled(X)) == bits(step(X))
    assert sum(map(len, compiled.programs.values())) == 1 + len(changes)


def test_an_attribute_that_appears() -> None:
    bag = types.SimpleNamespace()
    follows(lambda x: x * getattr(bag, "scale", 1.0), lambda: setattr(bag, "scale", 3.0))
    other = types.SimpleNamespace()
    follows(lambda x: x * 2 if hasattr(other, "on") else x, lambda: setattr(other, "on", 1))

    class Slots:
        __slots__ = ("gain",)

    slots = Slots()
    follows(lambda x: x * getattr(slots, "gain", 1.0), lambda: setattr(slots, "gain", 4.0))


def test_an_attribute_that_comes_before_the_one_that_was_there() -> None:
    class Base:
        rate = 2.0

        def scaled(self, x: Any) -> Any:
            return x * 2

    class Derived(Base):
        pass

    thing = Derived()
    follows(
        lambda x: thing.scaled(x * thing.rate),
        lambda: setattr(thing, "rate", 3.0),
        lambda: setattr(thing, "scaled", lambda x: x * 5),
    )
    fresh = Derived()
    follows(
        lambda x: fresh.scaled(x * fresh.rate),
        lambda: setattr(Derived, "rate", 4.0),
        lambda: setattr(Derived, "scaled", lambda self, x: x * 6),
    )


def test_another_class_and_another_property() -> None:
    class One:
        rate = 1.0

    class Two:
        rate = 2.0

    thing = One()
    follows(lambda x: x * thing.rate, lambda: setattr(thing, "__class__", Two))

    class Computed:
        rate = property(lambda self: 2.0)

    computed = Computed()
    follows(
        lambda x: x * computed.rate,
        lambda: setattr(Computed, "rate", property(lambda self: 5.0)),
    )


def test_what_all_modules_or_records_of_a_class_have() -> None:
    class Scaled(nn.Module):
        scale = 2.0

        def forward(self, x: Any) -> Any:
            return x * self.scale

    model = Scaled()
    follows(model.forward, lambda: setattr(Scaled, "scale", 3.0))

    @dataclasses.dataclass
    class Batch:
        x: Any
        shift = 5.0

    step = ruda.compile(lambda batch: batch.x + batch.shift)
    assert step(Batch(X)).tolist() == [6.0, 7.0]
    Batch.shift = 6.0
    assert step(Batch(X)).tolist() == [7.0, 8.0]


def test_a_global_that_appears_or_hides_a_builtin(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(x: Any) -> Any:
        try:
            return x * LATE  # type: ignore[name-defined]
        except NameError:
            return x * max(1, 2)

    follows(
        late,
        lambda: monkeypatch.setitem(globals(), "max", min),
        lambda: monkeypatch.setitem(globals(), "LATE", 7.0),
    )


def test_dicts_are_gone_through_in_their_order() -> None:
    table = {"a": X, "b": X + 5}
    turned = collections.OrderedDict(c=X, d=X + 1)
    numbers: dict[Any, float] = {1: 2.0}
    follows(
        lambda x: (
            ruda.concat([x * t for t in (*table.values(), *turned.values())]),
            sum(v * (3 if isinstance(k, bool) else 1) for k, v in numbers.items()),
        ),
        lambda: table.update(a=table.pop("a")),
        lambda: turned.move_to_end("c"),
        lambda: (numbers.clear(), numbers.update({True: 2.0})),
    )
    step = ruda.compile(lambda d: sum(v * (3 if k is True else 1) for k, v in d.items()))
    assert (step({1: X}).tolist(), step({True: X}).tolist()) == ([1.0, 2.0], [3.0, 6.0])


def test_keyword_arguments_come_in_the_order_of_the_call() -> None:
    def joined(rate: float, **parts: Any) -> Any:
        return ruda.concat([x * rate for x in parts.values()])

    step = ruda.compile(joined)
    for _ in range(2):
        for given in ({"b": X, "rate": 2.0, "a": X + 1}, {"a": X, "b": X + 1, "rate": 3.0}):
            assert bits(step(**given)) == bits(joined(**given))


def test_arrays_of_python() -> None:
    numbers, text = array.array("f", [2.0, 3.0]), bytearray(b"ab")
    follows(
        lambda x: x * numbers[0] + text[1],
        lambda: numbers.append(1.0),
        lambda: text.__setitem__(1, 7),
    )


def test_a_variable_of_the_context() -> None:
    unset: contextvars.ContextVar[float] = contextvars.ContextVar("unset")
    scale = contextvars.ContextVar("scale", default=2.0)
    follows(
        lambda x: x * scale.get() + unset.get(1.0),
        lambda: scale.set(3.0),
        lambda: unset.set(5.0),
    )


def test_an_attribute_that_a_step_makes_is_refused_and_taken_away() -> None:
    bag = types.SimpleNamespace()

    class Slots:
        __slots__ = ("kept",)

    slots = Slots()
    for holder in (bag, slots):

        def step(x: Any, holder: Any = holder) -> Any:
            holder.kept = 3
            return x * holder.kept

        for _ in range(2):
            with pytest.raises(CaptureError, match="kept is changed"):
                ruda.compile(step)(X)
            assert not hasattr(holder, "kept")


def test_what_is_computed_once_is_no_change() -> None:
    class Config:
        @functools.cached_property
        def rate(self) -> float:
            return 2.0

        def __getattr__(self, name: str) -> float:
            return {"shift": 1.0}[name]

    config = Config()
    follows(lambda x: x * config.rate + config.shift)


def test_what_is_seen_through_something_else() -> None:
    """Views of a dict and of bytes, and a weak reference."""

    class Owner:
        pass

    settings, values, owner = {"rate": 2.0}, bytearray([2]), Owner()
    owner.rate = 2.0  # type: ignore[attr-defined]
    shown, seen, weak = types.MappingProxyType(settings), memoryview(values), weakref.ref(owner)
    follows(lambda x: x * shown["rate"], lambda: settings.update(rate=3.0))
    follows(lambda x: x * seen[0], lambda: values.__setitem__(0, 3))
    follows(lambda x: x * weak().rate, lambda: setattr(owner, "rate", 3.0))  # type: ignore[union-attr]
