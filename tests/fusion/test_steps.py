"""Whole training steps: a replay gives what eager code gives, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from tests.fusion.twins import batches, bits, run_twins


def build_network(make_optimizer: Any, *, hidden: Any = None, clip: bool = True) -> Any:
    ruda.random.manual_seed(3)
    layers = [nn.Linear(6, 8), hidden() if hidden else nn.ReLU(), nn.Linear(8, 3)]
    model = nn.Sequential(*layers)
    opt = make_optimizer(model.parameters())

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = optim.clip_grad_norm_(model.parameters(), 1.0) if clip else None
        opt.step()
        opt.zero_grad()
        return loss, norm

    def look() -> list[Any]:
        grads = [p.grad for p in model.parameters()]
        return [model.state_dict(), list(opt.state.values()), grads]

    return step, look


def samples(count: int, rows: int = 5) -> list[Any]:
    labels = np.random.default_rng(1).integers(0, 3, (count, rows))
    return [(x, ruda.asarray(y)) for x, y in zip(batches(count, rows, 6), labels, strict=True)]


@pytest.mark.parametrize(
    "make",
    [
        lambda params: optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda params: optim.AdamW(params, lr=1e-2),
    ],
    ids=["sgd", "adamw"],
)
def test_forward_backward_clipping_and_optimizer_are_one_graph(make: Any) -> None:
    compiled = run_twins(lambda: build_network(make), samples(5))
    assert "matmul" in compiled.explain() or "linear" in compiled.explain()


def test_dropout_draws_a_new_mask_in_each_replay() -> None:
    def build() -> Any:
        ruda.random.manual_seed(11)
        return build_network(lambda p: optim.SGD(p, lr=0.1), hidden=lambda: nn.Dropout(0.5))

    # One after the other, because both use the default generator.
    xs = samples(4)
    eager, look_eager = build()
    wanted = [bits(eager(*x)) for x in xs], bits(look_eager()), ruda.random.default_generator.draw
    step, look = build()
    compiled = ruda.compile(step)
    found = [bits(compiled(*x)) for x in xs], bits(look()), ruda.random.default_generator.draw
    assert found == wanted
    assert len({str(losses) for losses in wanted[0]}) == len(xs)


def test_draws_go_on_where_a_saved_generator_stood() -> None:
    generator = ruda.random.Generator(7)

    @ruda.compile
    def mask() -> Any:
        return ruda.random.uniform((4,), generator=generator), ruda.random.normal(
            (2,), generator=generator
        )

    first = [bits(mask()) for _ in range(3)]
    assert generator.draw == 6
    generator.manual_seed(7)
    generator.advance(2)
    assert [bits(mask()) for _ in range(2)] == first[1:]
    generator.manual_seed(8)
    assert bits(mask()) not in first
    assert len(mask.programs) == 1


def test_batch_norm_statistics_move_as_in_eager_code() -> None:
    def build() -> Any:
        ruda.random.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
        opt = optim.SGD(model.parameters(), lr=0.05)

        def step(x: Any) -> Any:
            loss = (model(x) * model(x)).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss

        return step, lambda: [model.state_dict()]

    run_twins(build, [(x,) for x in batches(4, 5, 6)])


def test_a_schedule_and_the_step_count_are_not_frozen() -> None:
    def build() -> Any:
        weight = ruda.tensor([1.0, -2.0], requires_grad=True)
        opt = optim.AdamW([weight], lr=0.1)
        schedule = optim.Schedule(opt, optim.linear_warmup, warmup=5)

        def step(x: Any) -> Any:
            loss = (weight * x).sum()
            loss.backward()
            opt.step()
            schedule.step()
            opt.zero_grad()
            return loss

        return step, lambda: [weight, opt.lr, schedule.count, list(opt.state.values())]

    compiled = run_twins(build, [(x,) for x in batches(7, 2)])
    assert "lr" in compiled.explain()


def test_a_learning_rate_set_outside_arrives() -> None:
    def build() -> Any:
        weight = ruda.tensor([1.0, -2.0], requires_grad=True)
        opt = optim.SGD([weight], lr=0.1)

        def step(x: Any) -> None:
            (weight * x).sum().backward()
            opt.step()
            opt.zero_grad()

        def look() -> Any:
            opt.param_groups[0]["lr"] = opt.param_groups[0]["lr"].item() / 2
            return [weight]

        return step, look

    run_twins(build, [(x,) for x in batches(4, 2)])


def test_gradients_accumulate_over_replays() -> None:
    def build() -> Any:
        weight = ruda.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)

        def step(x: Any) -> Any:
            loss = (x @ weight).sum()
            (loss * loss).backward()
            return loss

        return step, lambda: [weight.grad]

    # Without a gradient at first, with one from then on: two signatures.
    run_twins(build, [(x,) for x in batches(5, 3, 2)], signatures=2)


def test_accumulation_and_update_alternate() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)
    other = ruda.tensor([1.0, 2.0], requires_grad=True)

    def backward(w: Any) -> Any:
        return lambda x: (w * w * x).sum().backward()

    def update(w: Any) -> Any:
        def run() -> None:
            with ruda.no_grad():
                w.assign(w - 0.1 * w.grad)
                w.grad.assign(0.0)

        return run

    pairs = [(ruda.compile(backward(weight)), ruda.compile(update(weight)))]
    pairs.append((backward(other), update(other)))
    for x in batches(4, 2):
        for add, apply in pairs:
            add(x)
            add(x)
            apply()
        assert bits([weight, weight.grad]) == bits([other, other.grad])


def test_two_steps_share_one_model() -> None:
    def build() -> Any:
        weight = ruda.tensor([1.0, 2.0], requires_grad=True)

        def train(x: Any) -> Any:
            loss = ((weight * x) ** 2).sum()
            loss.backward()
            with ruda.no_grad():
                weight.assign(weight - 0.1 * weight.grad)
            weight.grad = None
            return loss

        return weight, train, lambda x: (weight * x).sum().detach()

    weight, train, evaluate = build()
    other, eager_train, eager_evaluate = build()
    train, evaluate = ruda.compile(train), ruda.compile(evaluate)
    for x in batches(4, 2):
        assert bits([evaluate(x), train(x), evaluate(x)]) == bits(
            [eager_evaluate(x), eager_train(x), eager_evaluate(x)]
        )
        assert bits(weight) == bits(other)


def test_train_and_eval_are_two_signatures_and_no_more() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5))
    compiled = ruda.compile(lambda x: model(x).detach())
    (x,) = batches(1, 3, 6)
    for _ in range(6):
        model.train()
        assert (compiled(x) == 0.0).any()
        model.eval()
        with ruda.no_grad():
            wanted = model(x)
        assert bits(compiled(x)) == bits(wanted)
    assert sum(map(len, compiled.programs.values())) == 2


def test_load_state_dict_and_replaced_parameters_are_seen() -> None:
    model, source = nn.Linear(3, 2), nn.Linear(3, 2)
    compiled = ruda.compile(lambda x: model(x).detach())
    (x,) = batches(1, 4, 3)

    def check(wanted: Any) -> None:
        for _ in range(3):
            assert bits(compiled(x)) == bits(wanted.detach())

    check(model(x))
    model.load_state_dict(source.state_dict())
    check(source(x))
    model.weight = nn.Parameter(ruda.zeros((2, 3)))
    check(model(x))
    model._parameters["bias"] = nn.Parameter(ruda.ones(2))
    check(ruda.ones((4, 2)))
