"""A whole training step, eager and compiled: the same bits after every step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from tests.nn.models import GPT, batch, conv_net, mlp


def split(params: Any) -> list[dict[str, Any]]:
    """Matrices, and the rest for AdamW."""
    params = list(params)
    return [
        {"params": [p for p in params if p.ndim == 2]},
        {"params": [p for p in params if p.ndim != 2], "adamw": True, "lr": 1e-3},
    ]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Dropout(0.2), mlp(nn, "float32")),
    "conv": lambda: conv_net(nn, "float32"),
    "gpt": lambda: GPT("float32"),
}
OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda params: optim.AdamW(params, lr=1e-2),
    "amsgrad": lambda params: optim.Adam(params, lr=1e-2, weight_decay=0.1, amsgrad=True),
    "cautious": lambda params: optim.AdamW(params, lr=1e-2, cautious=True),
    "rmsprop": lambda params: optim.RMSprop(params, momentum=0.9, centered=True),
    "adagrad": lambda params: optim.Adagrad(params, lr_decay=0.1),
    "adadelta": lambda params: optim.Adadelta(params, weight_decay=0.1),
    "nadam": lambda params: optim.NAdam(params, weight_decay=0.1),
    "radam": lambda params: optim.RAdam(params, lr=1e-2),
    "adan": lambda params: optim.Adan(params, lr=1e-2, weight_decay=0.1),
    "lion": lambda params: optim.Lion(params, lr=1e-3, weight_decay=0.1),
    "muon": lambda params: optim.Muon(split(params), lr=1e-2),
}


def trained(name: str, kind: str, compiled: bool) -> tuple[list[Any], dict[str, Any]]:
    """Losses and norms of twelve steps, and everything that training has changed."""
    ruda.random.seed(0)
    model = MODELS[name]()
    opt = OPTIMIZERS[kind](model.parameters())
    schedule = optim.Schedule(opt, optim.cosine, total=10, warmup=3)

    def step(x: ruda.Tensor, y: ruda.Tensor) -> tuple[ruda.Tensor, ruda.Tensor]:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = optim.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        schedule.step()
        return loss, norm

    run = ruda.compile(step) if compiled else step
    seen = []
    for i in range(12):
        x, y = batch(name, "float32", i)
        seen.append([t.item() for t in run(ruda.asarray(x), ruda.asarray(y))])
    state = {key: value.numpy(copy=True) for key, value in model.state_dict().items()}
    for i, own in enumerate(opt.state.values()):
        state |= {f"{i}.{key}": value.numpy(copy=True) for key, value in own.items()}
    return seen, state | {"lr": opt.lr.numpy(copy=True), "count": schedule.count.numpy(copy=True)}


CASES = [(name, kind) for name in MODELS for kind in ("sgd", "adamw")]
CASES += [("mlp", kind) for kind in OPTIMIZERS if kind not in ("sgd", "adamw")]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_compiled_step_is_the_eager_one_bit_for_bit(name: str, kind: str) -> None:
    losses, state = trained(name, kind, compiled=False)
    their_losses, their_state = trained(name, kind, compiled=True)
    assert losses == their_losses
    for key, value in state.items():
        np.testing.assert_array_equal(value, their_state[key], err_msg=key)


def test_a_rate_that_is_set_between_steps_is_used() -> None:
    weight = ruda.tensor([1.0], requires_grad=True)
    opt = optim.SGD([weight], lr=0.5)

    @ruda.compile
    def step() -> None:
        ruda.sum(weight).backward()
        opt.step()
        opt.zero_grad()

    step()
    opt.lr = 0.25
    step()
    opt.param_groups[0]["lr"] = 1.0
    step()
    assert weight.tolist() == [1.0 - 0.5 - 0.25 - 1.0]


def test_a_setting_that_changes_between_steps_is_seen() -> None:
    weight = ruda.tensor([1.0], requires_grad=True)
    opt = optim.SGD([weight], lr=1.0)

    @ruda.compile
    def step() -> None:
        ruda.sum(weight).backward()
        opt.step()
        opt.zero_grad()

    step()
    opt.param_groups[0]["maximize"] = True
    step()
    assert weight.tolist() == [1.0]


def test_freezing_a_module_is_seen() -> None:
    layer = nn.Linear(2, 1)
    x = ruda.ones((1, 2))

    @ruda.compile
    def step() -> None:
        ruda.sum(layer(x)).backward()

    step()
    layer.weight.grad = None
    layer.bias.grad = None
    layer.weight.requires_grad_(False)
    layer.requires_grad_(True).requires_grad_(False)
    layer.bias.requires_grad_(True)
    step()
    assert layer.weight.grad is None
    assert layer.bias.grad.tolist() == [1.0]


FACTORS: dict[str, Any] = {
    "constant": functools.partial(optim.constant, factor=0.5, total=3),
    "step": functools.partial(optim.step_decay, period=3),
    "multi": functools.partial(optim.multi_step, milestones=[2, 5]),
    "exponential": functools.partial(optim.exponential, gamma=0.9),
    "restarts": functools.partial(optim.cosine_restarts, period=5),
    "cycle": functools.partial(optim.one_cycle, total=12),
    "noam": functools.partial(optim.noam, width=64, warmup=4),
}


def test_all_schedules_are_the_same_bits() -> None:
    parts = [
        functools.partial(optim.linear, total=3, start=0.1),
        functools.partial(optim.cosine_restarts, period=2, growth=2),
        functools.partial(optim.product, parts=[optim.constant, FACTORS["exponential"]]),
    ]
    factors = FACTORS | {
        "sequential": functools.partial(optim.sequential, parts=parts, milestones=[3, 7])
    }
    seen = []
    for wrap in (lambda step: step, ruda.compile):
        opts = [optim.SGD([ruda.ones(1).requires_grad_()], lr=0.3) for _ in factors]
        schedules = [optim.Schedule(opt, f) for opt, f in zip(opts, factors.values(), strict=True)]

        def step(schedules: list[optim.Schedule] = schedules) -> None:
            for schedule in schedules:
                schedule.step()

        run = wrap(step)
        rows = []
        for _ in range(12):
            run()
            rows.append([opt.lr.item() for opt in opts])
        seen.append(rows)
    assert seen[0] == seen[1]


def test_lbfgs_says_why_it_cannot_be_compiled() -> None:
    weight = ruda.tensor([3.0], requires_grad=True)
    opt = optim.LBFGS([weight])

    def closure() -> ruda.Tensor:
        opt.zero_grad()
        loss = ruda.sum(weight * weight)
        loss.backward()
        return loss

    with pytest.raises(ruda.CaptureError, match=r"LBFGS: the step cannot be compiled"):
        ruda.compile(lambda: opt.step(closure))()
    assert weight.tolist() == [3.0]
    compiled = ruda.compile(closure)
    opt.step(compiled)
    assert abs(weight.item()) < 3.0
