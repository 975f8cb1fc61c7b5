"""Whatever way a Python value is read while tracing, a change of it is seen by the next call.

Each case is a step and what changes a value that it has read.
"""

from __future__ import annotations

import builtins
import collections
import copy
import dataclasses
import enum
import functools
import operator
import sys
import threading
import types
import typing
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn
from ruda.core.errors import CaptureError

X = ruda.asarray([1.0, 2.0])
CASES: dict[str, Callable[[], tuple[Any, Any]]] = {}
NAME = "rate"


class Box:
    """An object with the fields it is given."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


def case(make: Callable[[], tuple[Any, Any]]) -> None:
    CASES[make.__name__] = make


def read_by(read: Callable[[Any], Any], name: str) -> None:
    """A case of one field ``rate`` of an object, which ``read`` finds."""

    def make() -> tuple[Any, Any]:
        box = Box(rate=2.0)
        return (lambda x: x * read(box)), (lambda: setattr(box, "rate", 3.0))

    CASES[name] = make


part = "ra"
names = ["rate"]
get, read_any = operator.attrgetter("rate"), getattr
read_by(get, "an attrgetter")
read_by(lambda box: operator.attrgetter("rate")(box), "an attrgetter that is made inside")
read_by(lambda box: sum(map(get, [box, box])), "an attrgetter that is mapped")
read_by(lambda box: getattr(box, part + "te"), "a name that is put together")
read_by(lambda box: getattr(box, f"{part}te", 1.0), "a name that is formatted")
read_by(lambda box: getattr(box, names[0]), "a name in a list")
read_by(lambda box: getattr(box, NAME), "a name in a global")
read_by(lambda box: next(getattr(box, n) for n in ("rate",)), "a name in a constant tuple")
read_by(lambda box: read_any(box, part + "te"), "getattr by another name")
read_by(lambda box: functools.reduce(getattr, [part + "te"], box), "getattr that is handed on")
read_by(lambda box: vars(box)[part + "te"], "vars")
read_by(lambda box: sum(box.__dict__.values()), "the dict of the fields")
read_by(lambda box: getattr(copy.copy(box), part + "te"), "a copy")
read_by(lambda box: vars(copy.deepcopy(box))[part + "te"], "a deep copy")
read_by(lambda box: float(f"{box.rate}"), "a format")
read_by(lambda box: float("{.rate}".format(box)), "a format by a template")  # noqa: UP032
read_by(lambda box: rate if (rate := box.rate) else 1.0, "a walrus")
read_by(functools.partial(lambda other, box: box.rate, None), "a partial function")
read_by(lambda box: sum(rate for rate in [box.rate]), "a generator")


def matched(box: Any) -> float:
    match box:
        case Box(rate=rate):
            return float(rate)
    return 1.0


read_by(matched, "a match")


@case
def an_attrgetter_of_a_path() -> tuple[Any, Any]:
    box, get = Box(inner=Box(rate=2.0)), operator.attrgetter("inner.rate")
    return (lambda x: x * get(box)), (lambda: setattr(box.inner, "rate", 3.0))


@case
def an_attrgetter_of_several() -> tuple[Any, Any]:
    box, gets = Box(a=1.0, inner=Box(b=2.0)), [operator.attrgetter("a", "inner.b")]
    return (lambda x: x * sum(gets[0](box))), (lambda: setattr(box.inner, "b", 3.0))


@case
def itemgetters_and_methodcallers() -> tuple[Any, Any]:
    table, item, call = {"a": 2.0}, operator.itemgetter("a"), operator.methodcaller("get", "a")
    return (lambda x: x * item(table) * call(table)), (lambda: table.update(a=3.0))


@case
def a_method_of_a_container() -> tuple[Any, Any]:
    table = {"a": 2.0}
    get = table.get
    return (lambda x: x * get("a")), (lambda: table.update(a=3.0))


@case
def an_attribute_that_is_not_there_yet() -> tuple[Any, Any]:
    box = Box()
    return (lambda x: x * getattr(box, part + "te", 2.0)), (lambda: setattr(box, "rate", 3.0))


@case
def keywords_and_attributes_of_a_partial() -> tuple[Any, Any]:
    scaled = functools.partial(lambda x, rate: x * rate, rate=2.0)
    scaled.more = 1.0  # type: ignore[attr-defined]

    def change() -> None:
        scaled.keywords["rate"], scaled.more = 3.0, 5.0  # type: ignore[attr-defined]

    return (lambda x: scaled(x) * scaled.more), change  # type: ignore[attr-defined]


@case
def what_a_partialmethod_holds() -> tuple[Any, Any]:
    table = {"rate": 2.0}

    class Scale:
        def by(self, table: Any, x: Any) -> Any:
            return x * table["rate"]

        run = functools.partialmethod(by, table)

    scale = Scale()
    return (lambda x: scale.run(x)), (lambda: table.update(rate=3.0))


@case
def a_property_by_a_getter() -> tuple[Any, Any]:
    class Holder:
        rate = property(operator.attrgetter("_rate"))

    holder = Holder()
    holder._rate = 2.0  # type: ignore[attr-defined]
    return (lambda x: x * holder.rate), (lambda: setattr(holder, "_rate", 3.0))


@case
def a_property_of_a_metaclass() -> tuple[Any, Any]:
    class Meta(type):
        shift = 1.0

        @property
        def rate(cls) -> float:
            return cls.kept + cls.shift  # type: ignore[attr-defined, no-any-return]

    class Holder(metaclass=Meta):
        kept = 2.0

    return (lambda x: x * Holder.rate), (lambda: setattr(Meta, "shift", 3.0))


@case
def a_descriptor_that_keeps_by_a_computed_name() -> tuple[Any, Any]:
    class Field:
        def __set_name__(self, _: type, name: str) -> None:
            self.name = f"_{name}"

        def __get__(self, owner: Any, _: Any = None) -> Any:
            return owner.__dict__[self.name]

        def __set__(self, owner: Any, value: Any) -> None:
            owner.__dict__[self.name] = value

    class Holder:
        rate = Field()

    holder = Holder()
    holder.rate = 2.0
    return (lambda x: x * holder.rate), (lambda: setattr(holder, "rate", 3.0))


@case
def slots_by_a_computed_name() -> tuple[Any, Any]:
    class Holder:
        __slots__ = ("rate",)

    holder = Holder()
    holder.rate = 2.0  # type: ignore[attr-defined]
    return (lambda x: x * getattr(holder, part + "te")), (lambda: setattr(holder, "rate", 3.0))


@case
def a_class_attribute_of_a_module_by_a_computed_name() -> tuple[Any, Any]:
    class Layer(nn.Module):
        rate = 2.0

        def forward(self, x: Any) -> Any:
            return x * getattr(self, part + "te")

    return Layer(), (lambda: setattr(Layer, "rate", 3.0))


@case
def other_base_classes() -> tuple[Any, Any]:
    one, other = type("One", (), {"rate": 2.0}), type("Other", (), {"rate": 3.0})

    class Holder(one):  # type: ignore[misc, valid-type]
        pass

    return (lambda x: x * Holder().rate), (lambda: setattr(Holder, "__bases__", (other,)))


@case
def fields_of_the_members_of_an_enum() -> tuple[Any, Any]:
    class Kind(enum.Enum):
        A = 1

        def __init__(self, _: int) -> None:
            self.rate = 2.0

    def step(x: Any) -> Any:
        return x * Kind.A.rate * sum(kind.rate for kind in Kind)

    return step, (lambda: setattr(Kind.A, "rate", 3.0))


@case
def fields_of_a_frozen_dataclass_all_together() -> tuple[Any, Any]:
    @dataclasses.dataclass(frozen=True)
    class Config:
        rate: float = 2.0

    config = Config()

    def step(x: Any) -> Any:
        return x * sum(getattr(config, f.name) for f in dataclasses.fields(config))

    return step, (lambda: object.__setattr__(config, "rate", 3.0))


@case
def a_dataclass_as_a_dict() -> tuple[Any, Any]:
    config = dataclasses.make_dataclass("Config", ["rate"])(2.0)
    step = lambda x: x * sum(dataclasses.asdict(config).values())  # noqa: E731
    return step, (lambda: setattr(config, "rate", 3.0))


@case
def what_a_named_tuple_holds() -> tuple[Any, Any]:
    class Pair(typing.NamedTuple):
        box: Any
        table: dict[str, float]

    pair = Pair(Box(rate=2.0), {"a": 1.0})
    return (lambda x: x * pair.box.rate * pair.table["a"]), (lambda: pair.table.update(a=3.0))


@case
def a_variable_that_is_bound_later() -> tuple[Any, Any]:
    def step(x: Any) -> Any:
        try:
            return x * rate
        except NameError:
            return x

    def change() -> None:
        nonlocal rate
        rate = 3.0

    if not CASES:
        rate = 1.0
    return step, change


@case
def a_cell() -> tuple[Any, Any]:
    cell = types.CellType(2.0)
    return (lambda x: x * cell.cell_contents), (lambda: setattr(cell, "cell_contents", 3.0))


@case
def defaults_that_are_changed_in_place() -> tuple[Any, Any]:
    table, box = [2.0], Box(rate=1.0)

    def helper(x: Any, rates: Any = table, *, box: Any = box) -> Any:
        return x * rates[0] * box.rate

    def change() -> None:
        table[0], box.rate = 3.0, 5.0

    return (lambda x: helper(x)), change


@case
def a_cached_property_that_the_step_computes() -> tuple[Any, Any]:
    class Holder:
        @functools.cached_property
        def rate(self) -> float:
            return 2.0

    holder = Holder()
    return (lambda x: x * holder.rate), (lambda: vars(holder).update(rate=3.0))


@pytest.mark.parametrize("size", [None, 8])
@pytest.mark.parametrize("warm", [True, False])
def test_a_cached_function_is_seen_through(warm: bool, size: int | None) -> None:
    """What it read when it ran, here or before, and what it has kept."""
    box = Box(rate=2.0)

    def inner() -> float:
        return box.rate  # type: ignore[attr-defined, no-any-return]

    @functools.lru_cache(maxsize=size)
    def rate(_: int) -> list[float]:
        return [inner()]

    compiled = ruda.compile(lambda x: x * rate(1)[0])
    if warm:
        rate(1)
    assert compiled(X).tolist() == [2.0, 4.0]
    rate(1)[0] = 5.0
    assert compiled(X).tolist() == [5.0, 10.0]
    box.rate = 3.0
    rate.cache_clear()
    assert compiled(X).tolist() == [3.0, 6.0]
    # What is kept besides does not matter.
    count = len([p for known in compiled.programs.values() for p in known])
    rate(2)
    compiled(X)
    assert len([p for known in compiled.programs.values() for p in known]) == count


@pytest.mark.parametrize("name", list(CASES))
def test_a_change_is_seen(name: str) -> None:
    step, change = CASES[name]()
    compiled = ruda.compile(step)
    before = compiled(X).tolist()
    assert compiled(X).tolist() == before == step(X).tolist()
    assert repr(compiled).endswith(": 1 signature(s)>")
    change()
    after = compiled(X).tolist()
    assert after == step(X).tolist() != before


def test_modules_by_another_name_that_are_replaced(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_package").mkdir()
    for name in ("__init__", "part"):
        (tmp_path / "made_package" / f"{name}.py").write_text("RATE = 2.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    import made_package.part as there  # type: ignore[import-not-found]

    def step(x: Any) -> Any:
        import made_package.part as inside

        return x * there.RATE * inside.RATE

    compiled = ruda.compile(step)
    assert compiled(X).tolist() == [4.0, 8.0]
    there.RATE = 3.0
    assert compiled(X).tolist() == [9.0, 18.0]
    other = types.ModuleType("made_package.part")
    other.RATE = 5.0  # type: ignore[attr-defined]
    monkeypatch.setattr("made_package.part", other)
    assert compiled(X).tolist() == [15.0, 30.0]


def test_a_function_with_builtins_of_its_own_is_seen() -> None:
    text = "def made(rate):\n    def step(x):\n        return x * rate[0]\n    return step\n"
    scope: dict[str, Any] = {"__builtins__": dict(vars(builtins))}
    exec(compile(text, "made.py", "exec"), scope)
    rate = [2.0]
    compiled = ruda.compile(scope["made"](rate))
    assert compiled(X).tolist() == [2.0, 4.0]
    rate[0] = 3.0
    assert compiled(X).tolist() == [3.0, 6.0]


def test_other_threads_go_on_making_tuples_while_one_traces() -> None:
    done = threading.Event()

    def work() -> int:
        count = 0
        while not done.is_set():
            count += len(tuple(i for i in range(50)))
        return count

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            others = [threads.submit(work) for _ in range(2)]
            for rate in range(4):
                ruda.compile(lambda x, rate=rate: x * rate)(X)
            done.set()
            assert all(other.result() for other in others)
    finally:
        done.set()
        sys.setswitchinterval(before)


def test_only_names_that_are_asked_for_are_guarded() -> None:
    """A history beside them may grow, and nothing is left in the module's globals."""

    class Trainer:
        def __init__(self) -> None:
            self.rate_0, self.rate_1, self.history = 2.0, 1.0, [1.0]

        def step(self, x: Any) -> Any:
            for i in range(2):
                x = x * getattr(self, f"rate_{i}")
            return x if hasattr(self, f"rate_{2}") else x + 1.0

    trainer = Trainer()
    compiled = ruda.compile(trainer.step)
    for _ in range(12):
        trainer.history.append(compiled(X)[0].item())
    assert trainer.history[-1] == 3.0 and repr(compiled).endswith(": 1 signature(s)>")
    trainer.rate_1 = 3.0
    assert compiled(X).tolist() == [7.0, 13.0]
    trainer.rate_2 = 1.0  # type: ignore[attr-defined]
    assert compiled(X).tolist() == [6.0, 12.0]
    assert "getattr" not in globals() and "hasattr" not in globals()


@pytest.mark.parametrize("fails", [True, False])
def test_setting_a_computed_name_is_refused_and_taken_back(fails: bool) -> None:
    box = Box(rate=2.0)

    def step(x: Any) -> Any:
        setattr(box, part + "te", 5.0)
        if fails:
            raise ZeroDivisionError
        return x * box.rate  # type: ignore[attr-defined]

    error = ZeroDivisionError if fails else CaptureError
    with pytest.raises(error, match=None if fails else r"rate is changed while tracing"):
        ruda.compile(step)(X)
    assert box.rate == 2.0 and "setattr" not in globals()  # type: ignore[attr-defined]


def test_threads_that_trace_at_once_hear_of_their_own_lookups() -> None:
    def traced(rate: float) -> list[float]:
        box = Box(rate=rate)
        compiled = ruda.compile(lambda x: x * getattr(box, part + "te"))
        found = []
        for _ in range(5):
            box.rate = box.rate + 1.0  # type: ignore[attr-defined]
            found.append(compiled(X)[0].item())
        return found

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(traced, range(8)))
    assert found == [[rate + 1.0 + i for i in range(5)] for rate in range(8)]
    assert "getattr" not in globals()


def test_fields_without_a_name_in_the_code_lead_no_further() -> None:
    """Neither iterators nor large arrays in them are in the way of code that reads them all."""
    box = Box(rate=2.0, items=iter([1]), table=np.zeros(20_000), queue=collections.deque())
    box.itself = box  # type: ignore[attr-defined]
    compiled = ruda.compile(lambda x: x * vars(box)[part + "te"])
    assert compiled(X).tolist() == compiled(X).tolist() == [2.0, 4.0]
    assert repr(compiled).endswith(": 1 signature(s)>")


def test_a_weak_proxy_is_refused() -> None:
    box = Box(rate=2.0)
    proxy = weakref.proxy(box)
    with pytest.raises(CaptureError, match=r"proxy is a weak proxy.*Try weakref\.ref"):
        ruda.compile(lambda x: x * proxy.rate)(X)


def test_what_cannot_be_seen_is_told_by_lint() -> None:
    import ctypes
    import io

    number, text = ctypes.c_double(2.0), io.StringIO("2.0")
    compiled = ruda.compile(
        lambda x: x * number.value * float(text.getvalue()) * len(sys.modules) ** 0
    )
    compiled(X)
    found = "\n".join(map(str, compiled.lint()))
    assert "a value of ctypes (c_double) is read once" in found
    assert "what is in an io.StringIO is read once" in found
