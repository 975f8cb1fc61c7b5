"""What typical steps become on a GPU: how many nodes their graphs have, and which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from tests.fusion.dry import dry, graph_of, names


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with dry() as client:
        yield client


def on(*shape: int, dtype: str = "float32") -> Any:
    return ruda.asarray(np.ones(shape), dtype=dtype, device="cuda")


def bodies(step: Any, *args: Any) -> list[str]:
    """The nodes of the graph; arguments come to their places outside of it."""
    return names(graph_of(ruda.compile(step), *args))


def test_parameters_that_were_moved_are_updated_in_place() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to("cuda")
    opt = optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Any) -> Any:
        loss = (model(x) ** 2).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    found = bodies(step, on(16, 8))
    assert sum("adamw" in name for name in found) == 2
    assert not any(name.startswith("copy_") for name in found)
