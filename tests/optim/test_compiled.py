"""A whole training step, eager and compiled: the same bits after every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from tests.nn.models import GPT, batch, conv_net, mlp

MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Dropout(0.2), mlp(nn, "float32")),
    "conv": lambda: conv_net(nn, "float32"),
    "gpt": lambda: GPT("float32"),
}
OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda params: optim.AdamW(params, lr=1e-2),
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


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
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
