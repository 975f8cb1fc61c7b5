"""Two GPUs of one process: gradients across them, training, and compiled steps on either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import cuda, nn, optim
from ruda.core.errors import CaptureError, DeviceError
from tests.gpu.test_two_devices import Pair, in_threads, values

# Training.


def test_gradients_go_back_through_copies(pair: Pair) -> None:
    x = ruda.asarray(values(8), device=pair[0]).requires_grad_()
    w = ruda.asarray(values(8, seed=1), device=pair[1]).requires_grad_()
    y = (x * 2).to(pair[1])
    z = (y * w).to(pair[0])
    ((z * x).sum().to(pair[1]) * 3).backward()
    assert (x.grad.device, w.grad.device) == pair
    a, b = values(8), values(8, seed=1)
    np.testing.assert_allclose(x.grad.numpy(), 12 * a * b, rtol=1e-5)
    np.testing.assert_allclose(w.grad.numpy(), 6 * a * a, rtol=1e-5)


class Split(nn.Module):
    """Two halves, each of them where it is told."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__()
        ruda.random.seed(7)
        self.first = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU()).to(first)
        self.second = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)).to(second)
        self.places = first, second

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x.to(self.places[0])).to(self.places[1]))


def losses(model: Split, make: Any, steps: int = 5) -> list[float]:
    """Of training with an optimizer for each half."""
    halves = [make(half.parameters()) for half in (model.first, model.second)]
    found = []
    for i in range(steps):
        x = ruda.asarray(values(10, 6, seed=i), device=model.places[0])
        y = ruda.asarray(np.arange(10) % 3, device=model.places[1])
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for half in halves:
            half.step()
            half.zero_grad()
        found.append(loss)
    return [loss.item() for loss in found]


@pytest.mark.parametrize(
    "make",
    [lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.AdamW(p, lr=0.01)],
    ids=["sgd", "adamw"],
)
def test_a_split_model_learns_as_a_whole_one(pair: Pair, make: Any) -> None:
    whole = losses(Split(pair[0], pair[0]), make)
    assert losses(Split(pair[0], pair[1]), make) == whole
    assert losses(Split(pair[1], pair[0]), make) == whole
    assert whole[-1] < whole[0]


def test_state_of_an_optimizer_goes_to_the_other(pair: Pair) -> None:
    models = [Split(where, where) for where in pair]
    opts = [optim.AdamW(m.parameters(), lr=0.01) for m in models]
    assert losses_of(models[0], opts[0], 2) == losses_of(models[1], opts[1], 2)
    for one, given in ((1, 0), (0, 1)):
        opts[one].load_state_dict(opts[given].state_dict())
        models[one].load_state_dict(models[given].state_dict())
    assert losses_of(models[0], opts[0], 3) == losses_of(models[1], opts[1], 3)
    for model, where in zip(models, pair, strict=True):
        assert all(p.device == where for p in model.parameters())


def losses_of(model: Split, opt: Any, steps: int, scaler: Any = None) -> list[float]:
    found = []
    for i in range(steps):
        x = ruda.asarray(values(10, 6, seed=i), device=model.places[0])
        y = ruda.asarray(np.arange(10) % 3, device=model.places[1])
        loss = F.cross_entropy(model(x), y)
        (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            opt.step()
        else:
            scaler.step(opt)
            scaler.update()
        opt.zero_grad()
        found.append(loss.item())
    return found


def test_parameters_of_one_group_are_of_one_device(pair: Pair) -> None:
    model = Split(*pair)
    with pytest.raises(DeviceError, match=r"cuda:0 and cuda:1|cuda:1 and cuda:0"):
        losses_of(model, optim.SGD(model.parameters(), lr=0.1), 1)
    groups = [{"params": list(half.parameters())} for half in (model.first, model.second)]
    whole = Split(pair[0], pair[0])
    want = losses_of(whole, optim.SGD(whole.parameters(), lr=0.1), 3)
    model = Split(*pair)
    groups = [{"params": list(half.parameters())} for half in (model.first, model.second)]
    assert losses_of(model, optim.SGD(groups, lr=0.1), 3) == want
    model(ruda.ones((2, 6), device=pair[0])).sum().backward()
    with pytest.raises(DeviceError, match="different devices"):
        optim.clip_grad_norm_(model.parameters(), 1.0)


def test_scaled_gradients_on_the_second(pair: Pair) -> None:
    found = []
    for where in pair:
        model = Split(where, where)
        scaler = optim.GradScaler(2.0**10, device=where)
        found.append(losses_of(model, optim.SGD(model.parameters(), lr=0.1), 3, scaler))
        assert scaler.get_scale().device == where
    assert found[0] == found[1]
    # A scaler of one device, a model of both.
    model = Split(*pair)
    groups = [{"params": list(half.parameters())} for half in (model.first, model.second)]
    scaler = optim.GradScaler(2.0**10, device=pair[0])
    assert losses_of(model, optim.SGD(groups, lr=0.1), 3, scaler) == found[0]


# Compiled steps.


def compiled(where: str, rate: float = 0.01) -> Any:
    """A compiled step of training, and its batches."""
    model = Split(where, where)
    net = nn.Sequential(model.first, model.second)
    opt = optim.AdamW(net.parameters(), lr=rate)

    @ruda.compile
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    def run(i: int) -> Any:
        x = ruda.asarray(values(10, 6, seed=i), device=where)
        return step(x, ruda.asarray(np.arange(10) % 3, device=where))

    run.step = step  # type: ignore[attr-defined]
    return run


def eager(where: str, steps: int) -> list[float]:
    model = Split(where, where)
    net = nn.Sequential(model.first, model.second)
    return losses_of(model, optim.AdamW(net.parameters(), lr=0.01), steps)


def test_a_step_on_the_second_alone(pair: Pair) -> None:
    run = compiled(pair[1])
    x = ruda.asarray(values(10, 6), device=pair[1])
    y = ruda.asarray(np.arange(10) % 3, device=pair[1])
    predicted = run.step.memory(x, y)
    used = cuda.memory_allocated(pair[0])
    found = [run(i).item() for i in range(6)]
    assert cuda.memory_allocated(pair[0]) == used
    np.testing.assert_allclose(found, eager(pair[1], 6), rtol=1e-5)
    assert predicted.exact
    assert "replayed as one graph" in run.step.explain()
    run.step.measure()
    assert run(6).device == pair[1]


def test_two_steps_in_turn(pair: Pair) -> None:
    runs = [compiled(where) for where in pair]
    found: list[list[Any]] = [[], []]
    for i in range(6):
        for run, seen in zip(runs, found, strict=True):
            seen.append(run(i))
    first, second = ([loss.item() for loss in seen] for seen in found)
    assert first == second
    np.testing.assert_allclose(first, eager(pair[0], 6), rtol=1e-5)


def test_steps_hand_on_what_they_make(pair: Pair) -> None:
    first = ruda.compile(lambda x: (x * 2 + 1, x.sum(axis=0)))
    second = ruda.compile(lambda x, s: x * s - 1)
    for i in range(5):
        x = values(4, 3, seed=i)
        y, total = first(ruda.asarray(x, device=pair[0]))
        z = second(y.to(pair[1]), total.to(pair[1]))
        back = first(z.to(pair[0]))[0]
        want = ((x * 2 + 1) * x.sum(0) - 1) * 2 + 1
        np.testing.assert_allclose(back.numpy(), want, rtol=1e-4, atol=1e-5)


def test_two_steps_in_two_threads(pair: Pair) -> None:
    want = eager(pair[0], 6)

    def train(where: str) -> list[float]:
        run = compiled(where)
        return [run(i).item() for i in range(6)]

    # Seeds are of the process: the models are made one after the other.
    runs = [compiled(where) for where in pair]
    found = in_threads(*(lambda run=run: [run(i).item() for i in range(6)] for run in runs))
    assert found[0] == found[1]
    np.testing.assert_allclose(found[0], want, rtol=1e-5)


def test_one_function_for_arguments_of_either(pair: Pair) -> None:
    step = ruda.compile(lambda x: ruda.exp(x) * 2 - x)
    for i in range(4):
        x = values(5, seed=i)
        for where in pair:
            y = step(ruda.asarray(x, device=where))
            assert y.device == where
            np.testing.assert_allclose(y.numpy(), np.exp(x) * 2 - x, rtol=1e-5)


def test_a_step_of_both_is_refused(pair: Pair) -> None:
    x, y = (ruda.ones(3, device=where) for where in pair)
    weight = ruda.ones(3, device=pair[1])
    steps: list[Callable[[], Any]] = [
        lambda: ruda.compile(lambda a, b: (a * 2, b * 3))(x, y),
        lambda: ruda.compile(lambda a: a * 2 + weight)(x),
        lambda: ruda.compile(lambda a: a.to(pair[1]) * 2)(x),
    ]
    for step in steps:
        with pytest.raises((CaptureError, DeviceError), match="cuda:") as caught:
            step()
        assert pair[0] in str(caught.value)
        assert pair[1] in str(caught.value)
    assert ruda.compile(lambda a: a * 2)(y).tolist() == [2.0] * 3


def test_graphs_by_hand_on_the_second(pair: Pair) -> None:
    x, far = ruda.ones(4, device=pair[1]), ruda.ones(4, device=pair[0])
    graph = cuda.Graph(device=pair[1])
    _ = x * 2 + 1
    with cuda.graph(graph):
        y = x * 2 + 1
    for i in range(3):
        x.copy_(ruda.full(4, float(i), device=pair[0]))
        graph.replay()
        assert y.tolist() == [2.0 * i + 1] * 4
        assert (far + i).tolist() == [1.0 + i] * 4
    with pytest.raises(CaptureError, match="between GPUs"), cuda.graph(cuda.Graph(device=pair[1])):
        far.to(pair[1])
    with pytest.raises(CaptureError, match="between GPUs"), cuda.graph(cuda.Graph(device=pair[1])):
        x.to(pair[0])
    assert far.to(pair[1]).tolist() == [1.0] * 4
