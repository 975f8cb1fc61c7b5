"""What a compiled step relies on is looked at in each call: nothing is frozen in silence."""

from __future__ import annotations

import array
import collections
import dataclasses
import functools
import sys
import types
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from ruda.core.errors import CaptureError
from tests.fusion.twins import bits

X = ruda.asarray([1.0, 2.0])
SCALE = 2.0
TABLE = ruda.asarray([1.0, 10.0])


def count(compiled: Any) -> int:
    return sum(map(len, compiled.programs.values()))


def test_a_float_argument_is_compared_with_tensors_from_both_sides() -> None:
    step = ruda.compile(lambda x, y: (y < x, y <= x, y > x, y >= x, y == x, y != x))
    x = ruda.asarray([0.0, 1.0, 2.0])
    for y in (1.0, 2.0):
        wanted = (y < x, y <= x, y > x, y >= x, y == x, y != x)
        assert [t.tolist() for t in step(x, y)] == [t.tolist() for t in wanted]


def test_a_float_argument_is_a_value() -> None:
    compiled = ruda.compile(lambda x, rate: x * rate + (rate**2 - 1 / rate) * 0.5)
    for rate in (0.1, 0.3, -7.0):
        assert bits(compiled(X, rate)) == bits(compiled.fn(X, rate))
    assert count(compiled) == 1


def test_floats_keep_python_arithmetic_and_come_back_as_floats() -> None:
    def step(a: float, b: float) -> Any:
        return a / 3 + b, a**b, -a % 0.7, a // b, abs(-b), 2 - a, {"b": +b}

    compiled = ruda.compile(step)
    for a, b in ((0.1, 0.7), (3.3, 1e-3)):
        assert compiled(a, b) == step(a, b)
    with pytest.raises(ZeroDivisionError):
        compiled(1.0, 0.0)
    with pytest.raises(ValueError, match="real number"):
        compiled(-8.0, 0.5)


def test_integers_bools_and_strings_are_guards() -> None:
    def step(x: Any, times: int, flag: bool, how: str) -> Any:
        y = x * times if flag else x + times
        return -y if how == "minus" else y

    compiled = ruda.compile(step)
    cases = [
        (2, True, "plus"),
        (3, True, "plus"),
        (2, False, "plus"),
        (2, True, "minus"),
        (1, 1, ""),
    ]
    for case in cases * 2:
        assert bits(compiled(X, *case)) == bits(step(X, *case))
    assert count(compiled) == len(cases)


def test_nested_arguments() -> None:
    Pair = collections.namedtuple("Pair", "a b")

    @dataclasses.dataclass
    class Batch:
        x: Any
        scale: float
        more: dict[str, Any]

    def step(batch: Any, pair: Any, *, extra: Any) -> Any:
        y = batch.x * batch.scale + batch.more["z"][0] * extra[1]
        return Pair(y, pair.b), Batch(y, 1.0, {"z": [pair.a]})

    compiled = ruda.compile(step)
    for k in (1.0, 2.0):
        args = Batch(X * k, 3.0, {"z": [X]}), Pair(X, X + k)
        (pair, batch), (wanted, wanted_batch) = (f(*args, extra=(1, k)) for f in (compiled, step))
        assert bits(pair) == bits(wanted)
        assert type(pair) is Pair
        assert bits(vars(batch)) == bits(vars(wanted_batch))
    assert count(compiled) == 1
    assert bits(compiled(Batch(X, 5.0, {"z": [X]}), Pair(X, X), extra=(1, 1.0))[0].a) == bits(
        X * 5.0 + X
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype("float64"),
        lambda x: ruda.concat([x, x]),
        lambda x: ruda.asarray([9.0, 1.0, 8.0, 2.0])[1::2],
        lambda x: ruda.flip(ruda.asarray([2.0, 1.0]), axis=0),
        lambda x: ruda.broadcast_to(ruda.asarray(3.0), (2,)),
    ],
)
def test_other_dtypes_shapes_and_strides(change: Any) -> None:
    compiled = ruda.compile(lambda x: (x * 2.0).sum() + x[0])
    # Where steps become graphs, each is one from its second call on.
    for x in (X, change(X)) * 3:
        assert bits(compiled(x)) == bits(compiled.fn(x))
    assert count(compiled) == 2


def test_slices_of_one_buffer_share_a_signature() -> None:
    buffer = ruda.asarray(np.arange(12, dtype="float32").reshape(6, 2))
    compiled = ruda.compile(lambda x: (x * x).sum())
    for i in range(0, 6, 2):
        assert bits(compiled(buffer[i : i + 2])) == bits(compiled.fn(buffer[i : i + 2]))
    assert count(compiled) == 1


def test_a_global_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def helper(x: Any) -> Any:
        return x * SCALE

    compiled = ruda.compile(lambda x: helper(x) + 1)
    assert compiled(X).tolist() == [3.0, 5.0]
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert compiled(X).tolist() == [4.0, 7.0]
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert compiled(X).tolist() == [3.0, 5.0]
    assert count(compiled) == 2


def test_a_global_tensor_that_is_bound_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ruda.compile(lambda x: x * TABLE)
    assert compiled(X).tolist() == [1.0, 20.0]
    monkeypatch.setitem(globals(), "TABLE", ruda.asarray([0.0, 1.0]))
    assert compiled(X).tolist() == [0.0, 2.0]
    TABLE.assign(5.0)
    assert compiled(X).tolist() == [5.0, 10.0]
    assert count(compiled) == 2


def test_closures_defaults_and_keyword_defaults() -> None:
    factor, shift = 2.0, {"by": 1.0}

    def inner(x: Any, power: int = 1, *, table: Any = (1.0,)) -> Any:
        return x * factor**power + shift["by"] + table[0]

    compiled = ruda.compile(lambda x: inner(x))

    def check(signatures: int) -> None:
        assert bits(compiled(X)) == bits(inner(X))
        assert count(compiled) == signatures

    check(1)
    factor = 3.0
    check(2)
    shift["by"] = 7.0
    check(3)
    inner.__defaults__ = (2,)
    check(4)
    inner.__kwdefaults__ = {"table": (4.0,)}
    check(5)
    check(5)


def test_fields_of_objects_and_classes() -> None:
    class Base:
        offset = 1.0

    class Config(Base):
        __slots__ = ("rate",)

    class Holder:
        def __init__(self) -> None:
            self.config = Config()
            self.config.rate = 2.0
            self.layers = [types.SimpleNamespace(gain=3.0), types.SimpleNamespace(gain=4.0)]
            self.seen = 0

        @property
        def rate(self) -> float:
            return self.config.rate

        def run(self, x: Any) -> Any:
            for layer in self.layers:
                x = x * layer.gain
            return x * self.rate + self.config.offset

    holder = Holder()
    compiled = ruda.compile(holder.run)

    def check(signatures: int) -> None:
        assert bits(compiled(X)) == bits(holder.run(X))
        assert count(compiled) == signatures

    check(1)
    holder.seen += 1
    check(1)
    holder.config.rate = 5.0
    check(2)
    holder.layers[1].gain = 6.0
    check(3)
    holder.layers.append(types.SimpleNamespace(gain=2.0))
    check(4)
    Base.offset = 9.0
    check(5)
    holder.layers = holder.layers[:1]
    check(6)


def test_names_read_through_getattr_and_comprehensions() -> None:
    gains = [types.SimpleNamespace(gain=2.0), types.SimpleNamespace(gain=3.0)]
    option = types.SimpleNamespace(bias=1.0)
    compiled = ruda.compile(
        lambda x: sum((x * g.gain for g in gains), start=x) + getattr(option, "bias")  # noqa: B009
    )
    assert compiled(X).tolist() == [7.0, 13.0]
    gains[0].gain = 0.0
    assert compiled(X).tolist() == [5.0, 9.0]
    option.bias = 0.0
    assert compiled(X).tolist() == [4.0, 8.0]


def test_a_method_and_a_partial_are_compiled() -> None:
    class Model:
        def __init__(self, gain: float) -> None:
            self.gain = gain

        @ruda.compile
        def forward(self, x: Any) -> Any:
            return x * self.gain

    a, b = Model(2.0), Model(3.0)
    assert a.forward(X).tolist() == [2.0, 4.0]
    assert b.forward(X).tolist() == [3.0, 6.0]
    a.gain = 5.0
    assert a.forward(X).tolist() == [5.0, 10.0]
    compiled = ruda.compile(functools.partial(lambda k, x: x * k, 4))
    assert compiled(X).tolist() == [4.0, 8.0]


def test_a_numpy_array_is_watched_or_refused() -> None:
    small, large = np.ones(2, "float32"), np.ones(100_000, "float32")
    compiled = ruda.compile(lambda x: x * ruda.tensor(small))
    assert compiled(X).tolist() == [1.0, 2.0]
    small[0] = 5.0
    assert compiled(X).tolist() == [5.0, 2.0]
    with pytest.raises(CaptureError, match="too large to watch"):
        ruda.compile(lambda x: x * ruda.tensor(large)[:2])(X)
    with pytest.raises(CaptureError, match=r"argument 0 is a NumPy array.*asarray"):
        compiled(small)


def test_requires_grad_and_hooks_of_a_parameter() -> None:
    weight = ruda.tensor([1.0, 1.0], requires_grad=True)
    total = ruda.zeros(())

    @ruda.compile
    def step(x: Any) -> None:
        loss = (weight * x).sum()
        if loss.requires_grad:
            loss.backward()
        total.assign(loss.detach())

    step(X)
    assert weight.grad.tolist() == [1.0, 2.0]
    weight.grad = None
    weight.requires_grad_(False)
    step(X)
    assert total.item() == 3.0
    weight.requires_grad_()
    weight.register_hook(lambda g: g * 10.0)
    step(X)
    assert weight.grad.tolist() == [10.0, 20.0]


def test_parameters_that_are_frozen_now_and_then_are_two_signatures() -> None:
    """As in adversarial training, where the critic is frozen while the other one learns."""
    weight = ruda.tensor([1.0, 1.0], requires_grad=True)

    @ruda.compile
    def step(x: Any) -> Any:
        loss = (weight * x).sum()
        if loss.requires_grad:
            loss.backward()
        return loss.detach()

    for i in range(20):
        weight.requires_grad_(i % 2 == 0)
        assert step(X).item() == 3.0
        assert (weight.grad is None) == bool(i % 2)
    assert "2 signature(s)" in repr(step)
    weight.requires_grad_(True)
    assert weight.grad is None and weight.node.hooks is None


def test_grad_mode_autocast_and_default_dtypes() -> None:
    weight = ruda.tensor([[1.0]], requires_grad=True)
    compiled = ruda.compile(lambda x: x @ weight)
    x = ruda.ones((1, 1))
    assert compiled(x).requires_grad
    with ruda.no_grad():
        assert not compiled(x).requires_grad
    with ruda.autocast("bfloat16"):
        assert compiled(x).dtype is ruda.bfloat16
    made = ruda.compile(lambda: ruda.ones(2))
    assert made().dtype is ruda.float32
    ruda.set_default_dtypes(floating="float64")
    try:
        assert made().dtype is ruda.float64
    finally:
        ruda.set_default_dtypes(floating="float32")


def test_too_many_signatures_name_what_keeps_changing() -> None:
    box = types.SimpleNamespace(step=0)
    by_argument = ruda.compile(lambda x, n: x * n)
    by_field = ruda.compile(lambda x: x * box.step, max_signatures=3)
    for n in range(8):
        by_argument(X, n)
    with pytest.raises(CaptureError, match="more than 8 signatures, because argument 1 keeps"):
        by_argument(X, 8)
    for box.step in range(3):
        by_field(X)
    box.step = 3
    with pytest.raises(CaptureError, match=r"more than 3 signatures, because box\.step keeps"):
        by_field(X)
    # What is known goes on working.
    box.step = 1
    assert bits(by_field(X)) == bits(X)


def test_python_state_that_the_step_changes_is_refused_and_put_back() -> None:
    box, losses = types.SimpleNamespace(step=0), []

    def counting(x: Any) -> Any:
        box.step += 1
        return x * 2.0

    def collecting(x: Any) -> Any:
        losses.append(x * 2.0)
        return losses[-1]

    with pytest.raises(CaptureError, match=r"box\.step is changed while tracing"):
        ruda.compile(counting)(X)
    assert box.step == 0
    with pytest.raises(CaptureError, match="losses is changed while tracing"):
        ruda.compile(collecting)(X)
    assert losses == []
    given: list[Any] = []
    with pytest.raises(CaptureError, match="an argument is changed"):
        ruda.compile(lambda out, x: out.append(x * 2.0))(given, X)
    assert given == []


def test_arrays_that_the_step_changes_are_put_back() -> None:
    numbers, values, table = array.array("d", [1.0, 2.0]), np.arange(6.0), bytearray(b"ab")

    def first(x: Any) -> Any:
        numbers.append(5.0)
        return x * len(numbers)

    def second(x: Any) -> Any:
        values[1:3] = 7.0
        return x * ruda.asarray(values[:2])

    def third(x: Any) -> Any:
        table[0] = 3
        return x * len(table)

    for step, name in ((first, "numbers"), (second, "values"), (third, "table")):
        with pytest.raises(CaptureError, match=f"{name} is changed while tracing"):
            ruda.compile(step)(X)
    assert list(numbers) == [1.0, 2.0] and table == b"ab"
    assert values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_what_containers_have_besides_items_is_compared() -> None:
    """The longest length of a deque, what a dict makes, attributes of lists, tuples and dicts."""
    longest = ruda.compile(lambda rows, x: x * rows.maxlen)
    for most in (3, 4, 3):
        assert bits(longest(collections.deque([X], most), X)) == bits(X * most)
    assert count(longest) == 2

    def one() -> int:
        return 1

    making = ruda.compile(lambda found, x: x * found.default_factory())
    for factory in (one, lambda: 5, one):
        assert bits(making(collections.defaultdict(factory), X)) == bits(X * factory())
    assert count(making) == 2


class Rows(list[Any]):
    __slots__ = ("__hidden", "scale")

    def hide(self, value: Any) -> Any:
        self.__hidden = value
        return self

    def shown(self) -> Any:
        return self.__hidden


class Point(tuple[Any, ...]):
    scale: Any


@pytest.mark.parametrize("kind", [Rows, Point, collections.OrderedDict])
def test_attributes_of_containers_are_those_of_the_call(kind: Any) -> None:
    def step(given: Any) -> Any:
        x = given["x"] if isinstance(given, dict) else given[0]
        out = kind(x=x * given.scale) if isinstance(given, dict) else kind([x * given.scale])
        out.scale = given.scale * 2
        return out

    compiled = ruda.compile(step)
    for scale in (2.0, 3.0, 4, X + 1, X + 2, 2.0):
        given = kind(x=X) if kind is collections.OrderedDict else kind([X])
        given.scale = scale
        found, wanted = compiled(given), step(given)
        assert type(found) is kind and bits(found.scale) == bits(wanted.scale)
        rows = [list(d.values() if isinstance(d, dict) else d) for d in (found, wanted)]
        assert bits(rows[0]) == bits(rows[1])
        assert given.scale is scale
    assert count(compiled) == 4


def test_private_slots_of_lists_are_those_of_the_call() -> None:
    compiled = ruda.compile(lambda given: given[0] * given.shown())
    for hidden in (2, 3, X):
        given = Rows([X]).hide(hidden)
        assert bits(compiled(given)) == bits(X * hidden)


def test_optimizer_state_that_appears_inside_is_refused() -> None:
    class Lazy:
        _ruda_version = 0

        def __init__(self, weight: Any) -> None:
            self.weight = weight
            self.state: dict[str, Any] = {}

        def step(self) -> None:
            if "momentum" not in self.state:
                self.state["momentum"] = ruda.zeros((2,))
            momentum = self.state["momentum"]
            momentum.assign(momentum * 0.9 + self.weight)

    lazy = Lazy(ruda.ones((2,)))
    compiled = ruda.compile(lambda: lazy.step())
    with pytest.raises(CaptureError, match=r"lazy\.state is changed while tracing"):
        compiled()
    assert lazy.state == {}
    lazy.step()
    for wanted in (1.9, 2.71, 3.439):
        compiled()
        assert lazy.state["momentum"].tolist() == pytest.approx([wanted] * 2)


def test_a_parameter_group_that_appears_later_is_seen() -> None:
    a, b = (ruda.tensor([1.0], requires_grad=True) for _ in range(2))
    opt = optim.SGD([a], lr=1.0)

    @ruda.compile
    def step() -> None:
        (a + b).sum().backward()
        opt.step()
        a.grad = b.grad = None

    step()
    opt.add_param_group({"params": [b], "lr": 0.5})
    for i in range(1, 4):
        step()
        assert [a.item(), b.item()] == [-i, 1 - 0.5 * i]


def test_attributes_of_modules_are_refused_inside() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("last", ruda.zeros((2,)))

        def forward(self, x: Any) -> Any:
            self.training = True
            self.calls += 1
            return x

    class Keeps(Net):
        def forward(self, x: Any) -> Any:
            self.last = x * 2.0
            return x

    net, keeps = Net(), Keeps()
    with pytest.raises(
        CaptureError, match=r"Net\.calls is set while tracing, at .*test_guards\.py"
    ):
        ruda.compile(net)(X)
    assert net.calls == 0
    with pytest.raises(CaptureError, match=r"Keeps\.last is set.*assign\(value\)"):
        ruda.compile(keeps)(X)


def test_guards_hold_no_batch_alive() -> None:
    import gc
    import weakref

    compiled = ruda.compile(lambda x: x * 2.0)
    x = ruda.ones((3,))
    handle, tensor = weakref.ref(x.handle), weakref.ref(x)
    for _ in range(6):
        compiled(x)
    del x
    gc.collect()
    assert tensor() is None
    assert handle() is None


def test_a_module_imported_inside_and_a_library_object(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings_of_a_test.py").write_text("GAIN = 2.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    options = collections.UserDict(bias=1.0)

    def step(x: Any) -> Any:
        import settings_of_a_test
        from settings_of_a_test import GAIN

        return x * GAIN * settings_of_a_test.GAIN + options["bias"]

    compiled = ruda.compile(step)
    assert compiled(X).tolist() == [5.0, 9.0]
    sys.modules["settings_of_a_test"].GAIN = 3.0
    assert compiled(X).tolist() == [10.0, 19.0]
    options["bias"] = 0.0
    assert compiled(X).tolist() == [9.0, 18.0]
    del sys.modules["settings_of_a_test"]


def test_a_method_that_is_replaced_on_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2.0

    compiled = ruda.compile(Net())
    assert compiled(X).tolist() == [2.0, 4.0]
    monkeypatch.setattr(Net, "forward", lambda self, x: x * 3.0)
    assert compiled(X).tolist() == [3.0, 6.0]


def test_a_step_is_traced_on_a_device_without_memory() -> None:
    state = ruda.zeros((3,), device="null")

    @ruda.compile
    def step(x: Any) -> Any:
        state.assign(state + x.sum(axis=0))
        return (x * 2.0).mT

    for version in (1, 2):
        out = step(ruda.ones((2, 3), device="null"))
        assert (out.shape, state.handle.version) == ((3, 2), version)
    with pytest.raises(CaptureError, match="one device"):
        ruda.compile(lambda x: ruda.ones(2, device="cpu") if state.sum() is x else x * 1.0)(X)
