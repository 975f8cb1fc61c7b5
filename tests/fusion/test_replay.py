"""Outputs of replays: never overwritten, aliased as in eager code, with a tape of their own."""

from __future__ import annotations

import collections
import functools
import gc
import types
import weakref
from typing import Any

import pytest

import ruda
from ruda import nn
from ruda.core.errors import CaptureError, GradientError
from tests.fusion.twins import batches, bits

X = ruda.asarray([[1.0, 2.0], [3.0, 4.0]])


def test_an_output_that_is_kept_stays_as_it_was() -> None:
    compiled = ruda.compile(lambda x: (x * 2.0, x.sum()))
    kept = [compiled(X * k) for k in (1.0, 2.0, 3.0)]
    assert [s.item() for _, s in kept] == [10.0, 20.0, 30.0]
    assert bits(kept[0][0]) == bits(X * 2.0)


@pytest.mark.parametrize(
    "make",
    [lambda t: t, lambda t: t.mT, lambda t: t[0], lambda t: t.detach(), lambda t: t.reshape((4,))],
)
def test_outputs_that_alias_state_or_an_argument_are_copies(make: Any) -> None:
    state = ruda.ones((2, 2))
    compiled = ruda.compile(lambda x: (make(x), make(state)))
    x = X * 1.0
    outs = compiled(x)
    wanted = bits([make(x), make(state)])
    x += 1.0
    state += 1.0
    assert bits(list(outs)) == wanted
    for out in outs:
        out += 5.0
    assert bits(list(compiled(x))) == bits([make(x), make(state)])


def test_an_output_and_a_gradient_do_not_share_memory() -> None:
    weight = ruda.tensor([1.0], requires_grad=True)

    @ruda.compile
    def step() -> Any:
        (weight * 2.0).sum().backward()
        return weight.grad

    first = step()
    step()
    assert first.tolist() == [2.0]
    assert weight.grad.tolist() == [4.0]


def test_one_tensor_returned_twice_and_views_of_an_output() -> None:
    def step(x: Any) -> Any:
        y = x * 2.0
        return y, [y], y.mT, y[0]

    y, (same,), turned, row = ruda.compile(step)(X)
    assert y is same
    y.assign(0.0)
    assert turned.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert row.tolist() == [0.0, 0.0]


def test_other_results_come_back_as_they_are() -> None:
    model = nn.Linear(2, 2)
    compiled = ruda.compile(lambda x, n: {"model": model, "n": n, "none": None, "x": (x * 2.0,)})
    for _ in range(2):
        out = compiled(X, 3)
        assert out["model"] is model
        assert (out["n"], out["none"]) == (3, None)
        assert bits(out["x"]) == bits((X * 2.0,))


def test_ordered_and_default_dicts_deques_and_tuples_of_a_class() -> None:
    class Pair(tuple[Any, ...]):
        def __new__(cls, a: Any, b: Any) -> Pair:
            return super().__new__(cls, (a, b))

    def step(batch: Any, queue: Any) -> Any:
        ordered = collections.OrderedDict(b=batch["x"] * 2.0, a=[batch["x"]])
        found = collections.defaultdict(list, sum=queue[0] + queue[1])
        return ordered, found, Pair(batch["x"] - 1.0, 3), collections.deque(queue, 2)

    compiled = ruda.compile(step)
    for x in X:
        given = collections.OrderedDict(x=x), collections.deque([x, x * 2.0], maxlen=4)
        found, wanted = compiled(*given), step(*given)
        assert [bits(dict(d)) for d in found[:2]] == [bits(dict(d)) for d in wanted[:2]]
        assert [bits(list(row)) for row in found[2:]] == [bits(list(row)) for row in wanted[2:]]
        assert list(map(type, found)) == list(map(type, wanted))
        assert found[1]["new"] == [] and found[3].maxlen == 2
    assert repr(compiled).endswith("1 signature(s)>")


@pytest.mark.parametrize(
    "hide",
    [
        lambda y: types.SimpleNamespace(inside=[y]),
        lambda y: types.MappingProxyType({"y": y}),
        lambda y: functools.partial(ruda.add, y),
        lambda y: lambda: y,
        lambda y: y.sum,
        lambda y: iter([1.0]),
    ],
)
def test_a_tensor_in_a_result_that_is_not_taken_apart_is_refused(hide: Any) -> None:
    with pytest.raises(CaptureError, match="object that holds tensors"):
        ruda.compile(lambda x: hide(x * 2.0))(X[0])


def test_backward_outside_of_a_compiled_forward() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    compiled = ruda.compile(model)
    for x in batches(3, 4, 2):
        grads = []
        for forward in (model, compiled):
            x = x.detach().requires_grad_()
            (forward(x) ** 2).sum().backward()
            grads.append(bits([x.grad, *(p.grad for p in model.parameters())]))
            model.zero_grad()
        assert grads[0] == grads[1]
    assert sum(map(len, compiled.programs.values())) == 1


def test_backward_outside_through_a_slice_that_was_returned() -> None:
    weight = ruda.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    step = ruda.compile(lambda x: ((weight * x)[:, 1:], ruda.flip(weight * x)))

    def gradient(function: Any, x: Any) -> Any:
        part, turned = function(x)
        ((part * part).sum() + (turned * x).sum()).backward()
        found, weight.grad = weight.grad, None
        return found

    for x in batches(3, 2, 3):
        assert bits(gradient(step, x)) == bits(gradient(step.fn, x))


def test_a_compiled_part_between_eager_parts_and_second_order() -> None:
    weight = ruda.tensor([1.5, -0.5], requires_grad=True)

    def cube(x: Any) -> Any:
        return x * x * x * weight

    compiled = ruda.compile(cube)
    found = []
    for part in (cube, compiled, compiled):
        x = ruda.tensor([2.0, 3.0], requires_grad=True)
        y = part(ruda.exp(x)).sum()
        y.backward(create_graph=True)
        first, x.grad = x.grad, None
        (first * first).sum().backward()
        found.append(bits([y, first, x.grad, weight.grad]))
        weight.grad = None
    assert found[0] == found[1] == found[2]


def test_a_parameter_changed_before_backward_raises_as_in_eager_code() -> None:
    weight = ruda.tensor([[1.0, 2.0]], requires_grad=True)
    out = ruda.compile(lambda x: (x * weight).sum())(X.requires_grad_(False))
    out.backward()
    with pytest.raises(GradientError, match="already freed"):
        out.backward()
    x = ruda.tensor([[1.0, 2.0]], requires_grad=True)
    out = ruda.compile(lambda x: (x * weight).sum())(x)
    with ruda.no_grad():
        weight.assign(weight * 2.0)
    with pytest.raises(GradientError, match="changed in place"):
        out.backward()


def test_a_loss_whose_backward_ran_inside_says_so_outside() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)

    @ruda.compile
    def step(x: Any) -> Any:
        loss = (weight * x).sum()
        loss.backward()
        weight.grad = None
        return loss

    loss = step(X[0])
    assert loss.requires_grad
    with pytest.raises(GradientError, match="already freed"):
        loss.backward()


def test_gradients_with_a_history_can_be_differentiated_outside() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)

    @ruda.compile
    def step(x: Any) -> None:
        (weight * weight * weight * x).sum().backward(create_graph=True)

    step(X[0])
    first, weight.grad = weight.grad, None
    first.sum().backward()
    assert weight.grad.tolist() == [6.0, 24.0]


def test_an_output_made_a_leaf_inside_is_a_leaf() -> None:
    compiled = ruda.compile(lambda x: (x * 2.0).detach().requires_grad_())
    a, b = compiled(X), compiled(X)
    assert a.is_leaf
    assert a.node is not b.node
    (a * a).sum().backward()
    assert b.grad is None

    def with_gradient(x: Any) -> Any:
        y = (x * 2.0).detach().requires_grad_()
        (y * y).sum().backward()
        return y

    with pytest.raises(CaptureError, match="made a leaf inside"):
        ruda.compile(with_gradient)(X)


def test_several_outputs_of_one_operator_and_hooks() -> None:
    seen: list[int] = [0]

    def halve(g: Any) -> Any:
        return g * 0.5

    def step(x: Any) -> Any:
        values, _ = ruda.linalg.qr(x)
        values.register_hook(halve)
        return values

    assert seen == [0]
    grads = []
    for part in (step, ruda.compile(step)):
        x = ruda.tensor([[2.0, 1.0], [1.0, 3.0]], dtype="float64", requires_grad=True)
        part(x).sum().backward()
        grads.append(bits(x.grad))
    assert grads[0] == grads[1]


def test_memory_is_freed_by_reference_count_alone() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)

    @ruda.compile
    def step(x: Any) -> Any:
        return (ruda.exp(weight * x) * x).sum()

    step(X[0])
    gc.collect()
    gc.disable()
    try:
        x = X[0] * 1.0
        out = step(x)
        parts = [weakref.ref(x.handle), weakref.ref(out), weakref.ref(out.node)]
        del x, out
        assert [part() for part in parts] == [None, None, None]
    finally:
        gc.enable()


def test_registers_are_used_again() -> None:
    def chain(x: Any) -> Any:
        for _ in range(100):
            x = x * 1.01 + 1.0
        return x

    compiled = ruda.compile(chain)
    assert bits(compiled(X)) == bits(chain(X))
    ((program,),) = compiled.programs.values()
    assert len(program.replay.steps) == 200
    assert len(program.replay.template) < 210
    results = {step[-1] for step in program.replay.steps}
    assert len(results) <= 2


def test_operators_that_nothing_needs_are_dropped() -> None:
    compiled = ruda.compile(lambda x: (ruda.exp(x), x * 2.0)[1])
    compiled(X)
    ((program,),) = compiled.programs.values()
    assert [i.op for i in program.graph.instructions] == ["multiply"]
