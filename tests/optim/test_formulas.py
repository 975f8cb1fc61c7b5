"""A hundred steps of each optimizer: those of PyTorch, or of the published formula in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from tests.nn.models import batch, mlp, pair

STEPS = 100
SAME = [
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 1e-3}),
    ("Adam", {"lr": 3e-3, "weight_decay": 1e-2, "amsgrad": True}),
    ("AdamW", {"lr": 3e-3, "amsgrad": True}),
    ("RMSprop", {"lr": 2e-3}),
    ("RMSprop", {"lr": 1e-3, "momentum": 0.9, "centered": True, "weight_decay": 1e-2}),
    ("Adagrad", {"lr": 2e-2}),
    ("Adagrad", {"lr_decay": 1e-2, "weight_decay": 1e-2, "initial_accumulator_value": 0.1}),
    ("Adadelta", {"weight_decay": 1e-2, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"weight_decay": 1e-2, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {"lr": 3e-3}),
    ("RAdam", {"weight_decay": 1e-2, "decoupled_weight_decay": True}),
]


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    module.set_num_threads(1)
    before = module.get_default_dtype()
    # PyTorch keeps NAdam's product of momenta in its default dtype.
    module.set_default_dtype(module.float64)
    yield module
    module.set_default_dtype(before)


@pytest.mark.parametrize(("name", "settings"), SAME)
def test_a_hundred_steps_are_those_of_pytorch(
    name: str, settings: dict[str, Any], torch: Any
) -> None:
    torch.manual_seed(0)
    own, other = pair("mlp", torch, "float64")
    mine = getattr(optim, name)(own.parameters(), **settings)
    theirs = getattr(torch.optim, name)(other.parameters(), **settings)
    for step in range(STEPS):
        x, y = batch("mlp", "float64", step)
        mine.zero_grad()
        F.cross_entropy(own(ruda.asarray(x)), ruda.asarray(y)).backward()
        mine.step()
        theirs.zero_grad()
        loss = torch.nn.functional.cross_entropy(other(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        theirs.step()
    for p, q in zip(own.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_is_that_of_pytorch(search: str | None, torch: Any) -> None:
    torch.manual_seed(0)
    own, other = pair("mlp", torch, "float64")
    settings = {"lr": 0.1 if search is None else 1.0, "max_iter": 6, "history_size": 5}
    mine = optim.LBFGS(own.parameters(), line_search_fn=search, **settings)
    theirs = torch.optim.LBFGS(other.parameters(), line_search_fn=search, **settings)
    x, y = batch("mlp", "float64", 0)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)

    def closure() -> ruda.Tensor:
        mine.zero_grad()
        loss = F.cross_entropy(own(ruda.asarray(x)), ruda.asarray(y))
        loss.backward()
        return loss

    def their_closure() -> Any:
        theirs.zero_grad()
        loss = torch.nn.functional.cross_entropy(other(inputs), labels)
        loss.backward()
        return loss

    # A search follows comparisons of losses: beyond some steps roundings decide them.
    for _ in range(4):
        assert mine.step(closure).item() == pytest.approx(theirs.step(their_closure).item())
    for p, q in zip(own.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=0, atol=1e-8)
    assert (
        mine.state_dict()["state"][0]["func_evals"] == theirs.state[other[0].weight]["func_evals"]
    )


State = dict[str, np.ndarray]
Formula = Callable[[np.ndarray, np.ndarray, State, int], np.ndarray]


def adan(p: np.ndarray, g: np.ndarray, s: State, t: int, proximal: bool = True) -> np.ndarray:
    d = g - s.get("before", g)
    s["before"] = g
    s["m"] = 0.98 * s.get("m", 0) + 0.02 * g
    s["v"] = 0.92 * s.get("v", 0) + 0.08 * d
    s["n"] = 0.99 * s.get("n", 0) + 0.01 * (g + 0.92 * d) ** 2
    root = np.sqrt(s["n"] / (1 - 0.99**t)) + 1e-8
    move = 1e-2 * (s["m"] / (1 - 0.98**t) + 0.92 * s["v"] / (1 - 0.92**t)) / root
    return (p - move) / 1.001 if proximal else p * 0.999 - move


def lion(p: np.ndarray, g: np.ndarray, s: State, t: int) -> np.ndarray:
    m = s.get("m", np.zeros_like(g))
    s["m"] = 0.99 * m + 0.01 * g
    return p * (1 - 1e-3 * 0.1) - 1e-3 * np.sign(0.9 * m + 0.1 * g)


def cautious(p: np.ndarray, g: np.ndarray, s: State, t: int) -> np.ndarray:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    step = s["m"] / (1 - 0.9**t) / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-8)
    mask = s["m"] * g > 0
    return p * (1 - 3e-3 * 1e-2) - 3e-3 * step * mask / max(mask.mean(), 1e-3)


def muon(p: np.ndarray, g: np.ndarray, s: State, t: int, scale: str = "original") -> np.ndarray:
    if p.ndim != 2:
        s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
        s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
        step = s["m"] / (1 - 0.9**t) / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-8)
        return p * (1 - 1e-3 * 0.1) - 1e-3 * step
    s["b"] = 0.95 * s.get("b", 0) + 0.05 * g
    x = 0.05 * g + 0.95 * s["b"]
    x = x / np.linalg.norm(x)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    m, n = p.shape
    c = math.sqrt(max(1, m / n)) if scale == "original" else 0.2 * math.sqrt(max(m, n))
    return p * (1 - 1e-2 * 0.1) - 1e-2 * c * x


def muon_of(model: nn.Module, kind: str | None) -> optim.Optimizer:
    rest = [p for p in model.parameters() if p.ndim != 2]
    groups = [
        {"params": [p for p in model.parameters() if p.ndim == 2], "lr": 1e-2},
        {"params": rest, "adamw": True},
    ]
    return optim.Muon(groups, adjust_lr_fn=kind)


PUBLISHED: dict[str, tuple[Callable[[nn.Module], optim.Optimizer], Formula]] = {
    "adan": (lambda m: optim.Adan(m.parameters(), lr=1e-2, weight_decay=0.1), adan),
    "adan without prox": (
        lambda m: optim.Adan(m.parameters(), lr=1e-2, weight_decay=0.1, no_prox=True),
        lambda *given: adan(*given, proximal=False),
    ),
    "lion": (lambda m: optim.Lion(m.parameters(), lr=1e-3, weight_decay=0.1), lion),
    "cautious": (lambda m: optim.AdamW(m.parameters(), lr=3e-3, cautious=True), cautious),
    "muon": (lambda m: muon_of(m, None), muon),
    "muon like adamw": (
        lambda m: muon_of(m, "match_rms_adamw"),
        lambda *given: muon(*given, scale="match_rms_adamw"),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_hundred_steps_are_those_of_the_formula(name: str) -> None:
    make, formula = PUBLISHED[name]
    ruda.random.seed(0)
    model = mlp(nn, "float64")
    opt = make(model)
    states: list[State] = [{} for _ in model.parameters()]
    for step in range(STEPS):
        x, y = batch("mlp", "float64", step)
        opt.zero_grad()
        F.cross_entropy(model(ruda.asarray(x)), ruda.asarray(y)).backward()
        expected = [
            formula(p.numpy(copy=True), p.grad.numpy(copy=True), state, step + 1)
            for p, state in zip(model.parameters(), states, strict=True)
        ]
        opt.step()
        for p, value in zip(model.parameters(), expected, strict=True):
            # Both start from the same place in every step; the states are their own.
            np.testing.assert_allclose(p.numpy(), value, rtol=0, atol=1e-10)


def test_muon_steps_along_an_orthogonal_matrix() -> None:
    x = ruda.asarray(np.random.default_rng(0).standard_normal((6, 4)))
    got = optim.muon.orthogonalized(x, (3.4445, -4.7750, 2.0315), 5, 1e-7)
    values = np.linalg.svd(got.numpy(), compute_uv=False)
    # The coefficients bring singular values between 0.7 and 1.2, not to 1.
    assert values.min() > 0.6
    assert values.max() < 1.3
