"""Accumulated micro-batches give the step of the whole batch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from ruda.core.errors import ArgumentError

SIZES = (5, 2, 4)


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, (sum(SIZES), 4))
    y[rng.random(y.shape) < 0.4] = -100
    return rng.standard_normal((sum(SIZES), 4, 6)), y


def setup() -> tuple[nn.Module, optim.Optimizer]:
    ruda.random.seed(0)
    model = nn.Linear(6, 3, dtype="float64")
    return model, optim.AdamW(model.parameters(), lr=0.1)


def loss_of(model: nn.Module, x: Any, y: Any, weighting: str) -> ruda.Tensor:
    out = model(ruda.asarray(x))
    if weighting == "token":
        return F.cross_entropy(out, ruda.asarray(y))
    return ruda.mean(ruda.sum(out * out, axis=(1, 2)))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("weighting", ["sample", "token"])
def test_unequal_micro_batches_are_the_whole_batch(
    weighting: str, scaled: bool, compiled: bool
) -> None:
    whole, opt = setup()
    parts, other = setup()
    scaler = optim.GradScaler(2.0**10) if scaled else None
    acc = optim.GradientAccumulator(other, len(SIZES), weighting, max_norm=0.1, scaler=scaler)

    def micro(x: ruda.Tensor, y: ruda.Tensor) -> None:
        acc.backward(loss_of(parts, x, y, weighting), y)

    run = ruda.compile(micro) if compiled else micro
    for step in range(4):
        x, y = data(step)
        loss_of(whole, x, y, weighting).backward()
        norm = optim.clip_grad_norm_(whole.parameters(), 0.1)
        opt.step()
        opt.zero_grad()
        ends = np.cumsum((0, *SIZES))
        done = []
        for start, end in itertools.pairwise(ends):
            run(ruda.asarray(x[start:end].copy()), ruda.asarray(y[start:end].copy()))
            done.append(acc.step())
        assert done == [False, False, True]
        assert norm.item() > 0.1
        # float64 sums of 44 terms in another order; the factor of the scaler is exact.
        assert acc.norm.item() == pytest.approx(norm.item(), rel=1e-12)
    for p, q in zip(whole.parameters(), parts.parameters(), strict=True):
        np.testing.assert_allclose(q.numpy(), p.numpy(), rtol=0, atol=1e-10)
        assert q.grad is None


def test_an_overflow_skips_the_whole_batch() -> None:
    model, opt = setup()
    acc = optim.GradientAccumulator(opt, 2, max_norm=1.0, scaler=optim.GradScaler())
    before = model.weight.tolist()
    for value in (np.inf, 1.0):
        acc.backward(ruda.sum(model.weight * value), 1)
        acc.step()
    assert model.weight.tolist() == before
    assert opt.state[model.weight]["step"].item() == 0
    for value in (2.0, 1.0):
        acc.backward(ruda.sum(model.weight * value), 1)
        acc.step()
    assert opt.state[model.weight]["step"].item() == 1


def test_the_last_micro_batch_may_come_early() -> None:
    weight = ruda.tensor([1.0], requires_grad=True)
    acc = optim.GradientAccumulator(optim.SGD([weight], lr=1.0), 4)
    acc.backward(ruda.sum(weight), 3)
    assert acc.step(last=True)
    assert (weight.tolist(), acc.micro_batch) == ([0.0], 0)


def test_a_checkpoint_goes_on_in_the_middle(tmp_path: Any) -> None:
    straight, opt = setup()
    resumed, other = setup()
    x, _ = data(0)

    def run(model: nn.Module, acc: optim.GradientAccumulator, parts: slice) -> None:
        ends = np.cumsum((0, *SIZES))
        for start, end in list(itertools.pairwise(ends))[parts]:
            acc.backward(loss_of(model, x[start:end], None, "sample"), int(end - start))
            acc.step()

    run(straight, optim.GradientAccumulator(opt, 3), slice(3))
    first = optim.GradientAccumulator(other, 3)
    run(resumed, first, slice(0, 2))
    checkpoint = ruda.store.Checkpoint(tmp_path)
    checkpoint.save(0, model=resumed, optimizer={"adamw": other, "accumulator": first})
    third, last = setup()
    acc = optim.GradientAccumulator(last, 3)
    checkpoint.restore(model=third, optimizer={"adamw": last, "accumulator": acc})
    assert acc.micro_batch == 2
    run(third, acc, slice(2, 3))
    assert third.weight.tolist() == straight.weight.tolist()


def test_errors() -> None:
    _, opt = setup()
    with pytest.raises(ArgumentError, match=r"GradientAccumulator: every out of range. Got 0"):
        optim.GradientAccumulator(opt, 0)
    with pytest.raises(ArgumentError, match=r"no such weighting. Got word. Expected sample or"):
        optim.GradientAccumulator(opt, 1, "word")
    acc = optim.GradientAccumulator(opt, 1, "token")
    with pytest.raises(ArgumentError, match=r"backward: tokens cannot be counted"):
        acc.backward(ruda.asarray(1.0), ruda.ones((2, 3)))
