"""Whole training runs beside PyTorch: the same losses, parameters, buffers, norms and rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import optim
from tests.nn.models import batch, pair

torch = pytest.importorskip("torch")
# Tensors of these sizes are slower, and no more exact, on several threads.
torch.set_num_threads(1)

MODELS = ("mlp", "conv", "gpt")
TOTAL, WARMUP, FINAL = 100, 10, 0.1


def factor(step: int) -> float:
    """Warm-up and cosine by the formula, in Python."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    share = (step - WARMUP) / (TOTAL - WARMUP)
    return FINAL + (1 - FINAL) * (1 + math.cos(math.pi * share)) / 2


def sgd(own: Any, other: Any) -> tuple[Any, ...]:
    settings = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
    return (
        optim.SGD(own.parameters(), nesterov=True, **settings),
        torch.optim.SGD(other.parameters(), nesterov=True, **settings),
        None,
        None,
        math.inf,
    )


def adamw(own: Any, other: Any) -> tuple[Any, ...]:
    mine = optim.AdamW(own.parameters(), lr=3e-3)
    theirs = torch.optim.AdamW(other.parameters(), lr=3e-3)
    return (
        mine,
        theirs,
        optim.Schedule(mine, optim.cosine, total=TOTAL, warmup=WARMUP, final=FINAL),
        torch.optim.lr_scheduler.LambdaLR(theirs, factor),
        1.0,
    )


def train(name: str, setup: Any, dtype: str, steps: int) -> tuple[Any, Any, list[tuple[Any, Any]]]:
    """Both models after ``steps``, and the losses and gradient norms on the way."""
    torch.manual_seed(0)
    own, other = pair(name, torch, dtype)
    mine, theirs, schedule, their_schedule, limit = setup(own, other)
    found = []
    for step in range(steps):
        x, y = batch(name, dtype, step)
        loss = F.cross_entropy(own(ruda.asarray(x)), ruda.asarray(y))
        loss.backward()
        norm = optim.clip_grad_norm_(own.parameters(), limit)
        mine.step()
        mine.zero_grad()
        logits = other(torch.from_numpy(x))
        expected = torch.nn.functional.cross_entropy(
            logits.flatten(0, -2), torch.from_numpy(y).flatten()
        )
        expected.backward()
        their_norm = torch.nn.utils.clip_grad_norm_(other.parameters(), limit)
        theirs.step()
        theirs.zero_grad()
        if schedule is not None:
            schedule.step()
            their_schedule.step()
            assert mine.lr.item() == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-12)
        found.append(((loss.item(), norm.item()), (expected.item(), their_norm.item())))
    return own, other, found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("setup", [sgd, adamw])
def test_a_hundred_steps_are_those_of_pytorch(name: str, setup: Any) -> None:
    own, other, found = train(name, setup, "float64", 100)
    got, expected = zip(*found, strict=True)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-8)
    assert got[-1][0] < got[0][0]
    state, theirs = own.state_dict(), other.state_dict()
    assert state.keys() == theirs.keys()
    for key, value in state.items():
        np.testing.assert_allclose(value.numpy(), theirs[key].numpy(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("setup", [sgd, adamw])
def test_float32_stays_beside_pytorch(name: str, setup: Any) -> None:
    own, other, found = train(name, setup, "float32", 5)
    got, expected = zip(*found, strict=True)
    # A loss goes through about ten sums of up to 150 terms: 32 roundings of 2^-24 by their roots.
    np.testing.assert_allclose(got, expected, rtol=32 * 2**-24, atol=0)
    if setup is adamw:
        # Adam divides a gradient by its size. Where the exact one is zero (a bias before batch
        # norm, that of the keys) the direction is rounding, and there is no value to meet.
        return
    theirs = other.state_dict()
    for key, value in own.state_dict().items():
        np.testing.assert_allclose(value.numpy(), theirs[key].numpy(), rtol=0, atol=32 * 2**-24)
