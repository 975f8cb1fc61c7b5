"""Training steps on the GPU, eager and as one graph, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def train(where: str, compiled: bool, steps: int = 6) -> list[Any]:
    ruda.random.seed(3)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).to(where)
    opt = optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return loss

    run = ruda.compile(step) if compiled else step
    losses = []
    for i in range(steps):
        x = ruda.asarray(values(6, 5, seed=i), device=where)
        y = ruda.asarray(np.arange(6) % 3, device=where)
        losses.append(run(x, y).item())
    if compiled:
        assert "replayed as one graph" in run.explain() or where == "cpu", run.explain()
    return [*losses, *(p.detach().numpy() for p in model.parameters())]


@pytest.mark.parametrize("compiled", [False, True])
def test_training_equals_that_of_the_cpu(compiled: bool, device: str) -> None:
    found, exact = train(device, compiled), train("cpu", False)
    for got, want in zip(found, exact, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)
