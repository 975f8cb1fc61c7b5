"""Loss scaling: which steps count, how the factor moves, and that nothing is read for it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from ruda.core.errors import ArgumentError, DTypeError


def trained(compiled: bool, clip: bool, dtype: str = "float32") -> list[Any]:
    """Losses, factor, counters and weights of eight steps, the fifth of which overflows."""
    ruda.random.seed(0)
    model = nn.Linear(3, 2, dtype=dtype)
    opt, scaler = optim.AdamW(model.parameters(), lr=0.1), optim.GradScaler(2.0**12, 3.0, 0.5, 3)

    def step(x: ruda.Tensor) -> ruda.Tensor:
        loss = F.mse_loss(model(x).astype("float32"), ruda.zeros((4, 2)))
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(opt)
            optim.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        return loss

    run = ruda.compile(step) if compiled else step
    rows = []
    for i in range(8):
        x = np.random.default_rng(i).standard_normal((4, 3))
        if i == 4:
            x[0, 0] = np.inf
        loss = run(ruda.asarray(x, dtype=dtype))
        held = [scaler.get_scale(), model.weight, *opt.state[model.weight].values()]
        rows.append([loss.item(), *(t.numpy(copy=True) for t in held)])
    return rows


@pytest.mark.parametrize("clip", [False, True])
def test_compiled_steps_are_the_eager_ones_bit_for_bit(clip: bool) -> None:
    for row, other in zip(trained(False, clip), trained(True, clip), strict=True):
        for got, expected in zip(row, other, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_an_overflow_changes_nothing_but_the_factor() -> None:
    rows = trained(False, False)
    before, after = rows[3], rows[4]
    assert not np.isfinite(after[0])
    for got, expected in zip(after[2:], before[2:], strict=True):
        np.testing.assert_array_equal(got, expected)
    scales = [float(row[1]) / 2**12 for row in rows]
    assert scales == [1, 1, 3, 3, 1.5, 1.5, 1.5, 4.5]


def test_half_parameters_follow_the_unscaled_run() -> None:
    # 2^-10 times 2^12 is exact: the master sees the gradient that float16 alone would lose.
    weight = ruda.tensor([1.0], dtype="float16", requires_grad=True)
    opt, scaler = optim.SGD([weight], lr=1.0), optim.GradScaler(2.0**12)
    small = 2.0**-26
    scaler.scale(ruda.sum(weight.astype("float32") * small)).backward()
    assert weight.grad.item() == small * 2**12
    scaler.step(opt)
    scaler.update()
    assert opt.state[weight]["master"].item() == np.float32(1.0) - np.float32(small)
    with pytest.raises(DTypeError, match=r"unscale_: a half gradient would round"):
        scaler.unscale_(opt)


def test_half_gradients_are_clipped_with_a_scaled_bound() -> None:
    weight = ruda.tensor([3.0, 4.0], dtype="float16", requires_grad=True)
    opt, scaler = optim.SGD([weight], lr=1.0), optim.GradScaler(2.0**8)
    scaler.scale(ruda.sum(weight.astype("float32") ** 2 / 2.0)).backward()
    optim.clip_grad_norm_([weight], scaler.scale(ruda.asarray(1.0)))
    scaler.step(opt)
    # The clipped gradient (0.6, 0.8) times 2^8 is rounded to float16.
    np.testing.assert_allclose(opt.state[weight]["master"].numpy(), [2.4, 3.2], rtol=2**-10)


def test_the_factor_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.amp.GradScaler("cpu", 8.0, 2.0, 0.5, 2)
    other = torch.zeros(1, requires_grad=True)
    their_opt = torch.optim.SGD([other], lr=0.0)
    weight = ruda.tensor([0.0], requires_grad=True)
    mine, opt = optim.GradScaler(8.0, 2.0, 0.5, 2), optim.SGD([weight], lr=0.0)
    for value in (1.0, 1.0, 1.0, np.inf, np.nan, 1.0, 1.0):
        theirs.scale((other * value).sum()).backward()
        mine.scale(ruda.sum(weight * value)).backward()
        for scaler, own in ((theirs, their_opt), (mine, opt)):
            scaler.step(own)
            scaler.update()
            own.zero_grad()
        assert mine.get_scale().item() == theirs.get_scale()
    again = optim.GradScaler()
    again.load_state_dict(theirs.state_dict())
    assert pickle.loads(pickle.dumps(again.state_dict()))["scale"].item() == theirs.get_scale()
    assert again.growth_interval == 2


def test_one_optimizer_may_be_clipped_and_another_not() -> None:
    one, two = (ruda.tensor([1.0], requires_grad=True) for _ in range(2))
    opts, scaler = [optim.SGD([w], lr=1.0) for w in (one, two)], optim.GradScaler()
    scaler.scale(ruda.sum(one * 3.0 + two * 0.25)).backward()
    scaler.unscale_(opts[0])
    optim.clip_grad_value_([one], 0.5)
    for opt in opts:
        scaler.step(opt)
    with pytest.raises(ArgumentError, match=r"unscale_: the gradients are unscaled already"):
        scaler.unscale_(opts[0])
    scaler.update()
    scaler.unscale_(opts[0])
    assert (one.tolist(), two.tolist()) == ([0.5], [0.75])


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="GradScaler: factors out of range"):
        optim.GradScaler(growth_factor=1.0)
