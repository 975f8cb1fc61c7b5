"""Schedules as functions of numbers and tensors, and the object that applies them."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest

import ruda
from ruda import optim
from ruda.core.errors import ArgumentError


def weight() -> ruda.Tensor:
    return ruda.tensor([1.0], requires_grad=True)


FACTORS: list[Any] = [
    optim.constant,
    functools.partial(optim.constant, factor=0.5, total=10),
    functools.partial(optim.linear, total=10),
    functools.partial(optim.linear_warmup, warmup=10),
    functools.partial(optim.step_decay, period=9),
    functools.partial(optim.multi_step, milestones=[1, 37]),
    functools.partial(optim.exponential, gamma=0.97),
    functools.partial(optim.cosine, total=100, warmup=10, final=0.1),
    functools.partial(optim.cosine_restarts, period=9),
    functools.partial(optim.cosine_restarts, period=9, growth=2, final=0.1),
    functools.partial(optim.one_cycle, total=100),
    functools.partial(optim.noam, width=64, warmup=10),
]
FACTORS += [
    functools.partial(optim.sequential, parts=FACTORS[:3], milestones=[9, 37]),
    functools.partial(optim.product, parts=FACTORS[2:5]),
]


@pytest.mark.parametrize("step", [0, 1, 9, 10, 37, 99, 100, 250])
def test_numbers_and_tensors_give_the_same(step: int) -> None:
    for factor in FACTORS:
        as_number, as_tensor = factor(step), factor(ruda.asarray(step, dtype="int64"))
        assert as_number.item() == as_tensor.item()
        assert as_tensor.shape == ()


def test_the_cosine_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    opt = optim.SGD([weight()], lr=0.3)
    schedule = optim.Schedule(opt, optim.cosine, total=20, final=0.1)
    other = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(other, T_max=20, eta_min=0.03)
    for _ in range(20):
        assert opt.lr.item() == pytest.approx(other.param_groups[0]["lr"], rel=1e-9)
        schedule.step()
        other.step()
        theirs.step()


def torch_schedulers(torch: Any) -> dict[str, tuple[Any, Any, float]]:
    """Our function, their scheduler of an optimizer with rate 0.3, and the factor of our rate."""
    by = torch.optim.lr_scheduler

    def chained(opt: Any) -> Any:
        parts = [by.LinearLR(opt, 0.1, 1.0, 5), by.ExponentialLR(opt, 0.9)]
        return by.SequentialLR(opt, parts, [5])

    warm = functools.partial(optim.linear, total=5, start=0.1)
    falling = functools.partial(optim.exponential, gamma=0.9)
    own = functools.partial
    cycle = {"total_steps": 40, "pct_start": 0.25}
    return {
        "constant": (own(optim.constant, factor=1 / 3, total=5), by.ConstantLR, 1),
        "linear": (own(optim.linear, total=5), by.LinearLR, 1),
        "step": (own(optim.step_decay, period=7), own(by.StepLR, step_size=7), 1),
        "multi": (
            own(optim.multi_step, milestones=[3, 8], gamma=0.5),
            own(by.MultiStepLR, milestones=[3, 8], gamma=0.5),
            1,
        ),
        "exponential": (own(optim.exponential, gamma=0.9), own(by.ExponentialLR, gamma=0.9), 1),
        "restarts": (
            own(optim.cosine_restarts, period=6, final=0.1),
            own(by.CosineAnnealingWarmRestarts, T_0=6, eta_min=0.03),
            1,
        ),
        "longer restarts": (
            own(optim.cosine_restarts, period=3, growth=3),
            own(by.CosineAnnealingWarmRestarts, T_0=3, T_mult=3),
            1,
        ),
        "cycle": (
            own(optim.one_cycle, total=40, pct_start=0.25),
            own(by.OneCycleLR, max_lr=0.6, cycle_momentum=False, **cycle),
            2,
        ),
        "straight cycle": (
            own(optim.one_cycle, total=40, pct_start=0.25, anneal="linear", div_factor=10.0),
            own(
                by.OneCycleLR,
                max_lr=0.6,
                cycle_momentum=False,
                anneal_strategy="linear",
                div_factor=10.0,
                **cycle,
            ),
            2,
        ),
        "sequential": (
            own(optim.sequential, parts=[warm, falling], milestones=[5]),
            chained,
            1,
        ),
        "product": (
            own(optim.product, parts=[warm, falling]),
            lambda opt: by.ChainedScheduler(
                [by.LinearLR(opt, 0.1, 1.0, 5), by.ExponentialLR(opt, 0.9)]
            ),
            1,
        ),
    }


def test_sequences_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for name, (factor, scheduler, scale) in torch_schedulers(torch).items():
        opt = optim.SGD([weight()], lr=0.3 * scale)
        schedule = optim.Schedule(opt, factor)
        other = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
        theirs = scheduler(other)
        for step in range(40):
            expected = other.param_groups[0]["lr"]
            # Theirs multiplies step by step: 40 roundings of 2^-53 are far below.
            assert opt.lr.item() == pytest.approx(expected, rel=1e-12, abs=1e-15), (name, step)
            schedule.step()
            if step < 39:
                other.step()
                theirs.step()


def test_restarts_fall_on_the_step_whatever_the_logarithm_says() -> None:
    for growth in (2, 3, 5, 1.5):
        start = 0.0
        for cycle in range(12):
            if start == int(start):
                assert optim.cosine_restarts(start, period=4, growth=growth).item() == 1.0
            start += 4 * growth**cycle


def test_noam_is_the_formula() -> None:
    for step in (0, 1, 3, 4, 100):
        expected = 16**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4**-1.5)
        assert optim.noam(step, width=16, warmup=4).item() == pytest.approx(expected, rel=1e-14)


def test_each_group_follows_its_own_rate() -> None:
    opt = optim.SGD([{"params": weight(), "lr": 1.0}, {"params": weight()}], lr=0.5)
    schedule = optim.Schedule(opt, optim.linear_warmup, warmup=4)
    assert [g["lr"].item() for g in opt.param_groups] == [0.25, 0.125]
    schedule.step()
    assert [g["lr"].item() for g in opt.param_groups] == [0.5, 0.25]


def test_a_schedule_goes_on_where_it_was() -> None:
    opt = optim.SGD([weight()], lr=0.5)
    schedule = optim.Schedule(opt, optim.cosine, total=10)
    for _ in range(3):
        schedule.step()
    saved = pickle.loads(pickle.dumps(schedule.state_dict()))
    other = optim.SGD([weight()], lr=0.1)
    again = optim.Schedule(other, optim.cosine, total=10)
    again.load_state_dict(saved)
    assert other.lr.item() == opt.lr.item()
    schedule.step()
    again.step()
    assert other.lr.item() == opt.lr.item()


def test_errors() -> None:
    with pytest.raises(ArgumentError, match=r"cosine: the warm-up leaves no step. Got 10"):
        optim.cosine(0, total=10, warmup=10)
    for call, text in (
        (lambda: optim.linear(0, 0), "linear: total is not positive"),
        (lambda: optim.step_decay(0, 0), "step_decay: period is not positive"),
        (lambda: optim.cosine_restarts(0, 3, 0.5), "cosine_restarts: growth out of range"),
        (lambda: optim.one_cycle(0, 3), "one_cycle: no step for one of the phases"),
        (lambda: optim.one_cycle(0, 30, anneal="x"), "one_cycle: no such way to anneal"),
        (lambda: optim.noam(0, 8, 0), "noam: warmup is not positive"),
        (lambda: optim.sequential(0, [optim.constant], [3]), "parts and milestones do not fit"),
    ):
        with pytest.raises(ArgumentError, match=text):
            call()
    one = optim.Schedule(optim.SGD([weight()]), optim.constant)
    two = optim.Schedule(optim.SGD([{"params": weight()}, {"params": weight()}]), optim.constant)
    with pytest.raises(optim.OptimizerStateError, match=r"the groups do not match. Got 2"):
        one.load_state_dict(two.state_dict())
