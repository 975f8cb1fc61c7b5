"""Casts of all weights are one launch, and an optimizer takes gradients as they came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from ruda.backends.cuda.blas import cublaslt
from tests.cuda.test_regions import launched, normal
from tests.cuda.test_steps import Queued


@pytest.fixture
def library(client: Any, monkeypatch: pytest.MonkeyPatch) -> Queued:
    fake = Queued(client)
    made = cublaslt.Library(client, fake)
    monkeypatch.setattr(cublaslt, "library", lambda client: made)
    return fake


def build() -> tuple[Any, Any]:
    ruda.random.manual_seed(4)
    model = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 16), nn.Linear(16, 8))
    model = model.to("cuda")
    opt = optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: Any) -> Any:
        with ruda.autocast("bfloat16"):
            y = model(x)
            loss = (y * y).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return step, model


def test_a_step_under_autocast(device: str, library: Queued) -> None:
    plain, own = build()
    step, model = build()
    step = ruda.compile(step)
    for i in range(3):
        x = normal(48, 24, seed=i)
        found, names = launched(lambda x=x: step(x))
        np.testing.assert_allclose(found.item(), plain(x).item(), rtol=2e-2)
    assert sum(name.startswith("astype") for name in names) <= 2
    assert any(name.startswith("astype") and name.endswith("many") for name in names)
    assert any(name.startswith("adamw_step_f32_bf16") for name in names)
    for p, q in zip(model.parameters(), own.parameters(), strict=True):
        gap = np.abs(p.detach().numpy() - q.detach().numpy()).max()
        assert gap < 2.5e-2


def test_rows_of_several_states(device: str) -> None:
    tensors = [normal(5, 7, seed=i) for i in range(4)] + [normal(3000, seed=9)]
    step = ruda.compile(lambda: [ruda.exp(t) for t in tensors])
    for _ in range(2):
        found, names = launched(step)
        for got, t in zip(found, tensors, strict=True):
            np.testing.assert_array_equal(got.numpy(), ruda.exp(t).numpy())
    assert len([n for n in names if n.startswith("exp")]) == 1
