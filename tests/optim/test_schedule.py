"""Schedules as functions of numbers and tensors, and the object that applies them."""

from __future__ import annotations

import pickle

import pytest

import ruda
from ruda import optim
from ruda.core.errors import ArgumentError


def weight() -> ruda.Tensor:
    return ruda.tensor([1.0], requires_grad=True)


@pytest.mark.parametrize("step", [0, 1, 9, 10, 37, 99, 100, 250])
def test_numbers_and_tensors_give_the_same(step: int) -> None:
    for factor in (
        optim.constant,
        lambda s: optim.linear_warmup(s, 10),
        lambda s: optim.cosine(s, total=100, warmup=10, final=0.1),
    ):
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
    one = optim.Schedule(optim.SGD([weight()]), optim.constant)
    two = optim.Schedule(optim.SGD([{"params": weight()}, {"params": weight()}]), optim.constant)
    with pytest.raises(optim.OptimizerStateError, match=r"the groups do not match. Got 2"):
        one.load_state_dict(two.state_dict())
