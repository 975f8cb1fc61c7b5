"""Parameters by pattern: groups, freezing, and ties that survive a move."""

from __future__ import annotations

import re

import pytest

import ruda
from ruda import nn, optim
from ruda.core.errors import ArgumentError
from tests.nn.models import GPT


def test_the_first_pattern_that_fits_takes_a_parameter() -> None:
    model = GPT("float32")
    groups = nn.parameter_groups(
        model,
        [
            (r"^(token|position)[.]", {"lr": 1e-4}),
            (re.compile(r"bias$|norm|ln\d"), {"weight_decay": 0.0}),
        ],
    )
    assert [sorted(set(group) - {"params"}) for group in groups] == [["lr"], ["weight_decay"], []]
    assert groups.report["^(token|position)[.]"] == ["token.weight", "position.weight"]
    assert "norm.weight" in groups.report[r"bias$|norm|ln\d"]
    assert groups.report[None][0] == "blocks.0.attn.in_proj_weight"
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    opt = optim.AdamW(groups, lr=1e-3)
    rates = [(group["lr"].item(), group["weight_decay"]) for group in opt.param_groups]
    assert rates == [(1e-4, 0.01), (1e-3, 0.0), (1e-3, 0.01)]


def test_a_tied_parameter_is_found_by_each_of_its_names() -> None:
    model = GPT("float32")
    groups = nn.parameter_groups(model, [(r"^head[.]", {"lr": 0.0})])
    assert groups.report["^head[.]"] == ["token.weight"]
    assert groups[0]["params"][0] is model.head.weight
    assert nn.freeze(model, r"^head[.]") == ["token.weight"]
    assert not model.token.weight.requires_grad


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    nn.freeze(model, r"^0[.]")
    groups = nn.parameter_groups(model, [(r"^0[.]", {"lr": 0.0})])
    assert [len(group["params"]) for group in groups] == [2]
    assert len(nn.parameter_groups(model, [(r"^0[.]", {"lr": 0.0})], frozen=True)) == 2
    assert nn.freeze(model, r"weight$", value=False) == ["0.weight", "1.weight"]
    assert [p.requires_grad for p in model.parameters()] == [True, False, True, True]


def test_a_pattern_without_parameter_raises() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ArgumentError, match=r"parameter_groups: a pattern matches no parameter"):
        nn.parameter_groups(model, [(r"wieght", {})])
    with pytest.raises(ArgumentError, match=r"freeze: .* Got \['wieght'\]"):
        nn.freeze(model, r"weight", r"wieght")
    assert model.weight.requires_grad


def test_a_compiled_step_sees_freezing() -> None:
    model = nn.Linear(2, 1)

    @ruda.compile
    def step(x: ruda.Tensor) -> None:
        ruda.sum(model(x)).backward()

    step(ruda.ones((1, 2)))
    model.zero_grad()
    nn.freeze(model, "weight")
    step(ruda.ones((1, 2)))
    assert model.weight.grad is None
    assert model.bias.grad.tolist() == [1.0]


def test_ties_survive_a_change_of_dtype() -> None:
    model = GPT("float32").to("bfloat16")
    assert model.head.weight is model.token.weight
    assert model.head.weight.dtype is ruda.bfloat16
    assert isinstance(model.head.weight, nn.Parameter)
    assert {p.dtype for p in model.parameters()} == {ruda.bfloat16}
    names = [name for name, _ in model.named_parameters()]
    assert "head.weight" not in names
