"""Calls of a compiled step that are like the last one, and those that only seem to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn
from ruda.core import config
from ruda.core.errors import CaptureError
from ruda.fusion import zero_copy


@pytest.fixture(autouse=True)
def small_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second graph is made however little memory the device has."""
    monkeypatch.setattr(zero_copy, "_SPARE", 0)


def ones(value: float = 1.0) -> Any:
    """Four times a value, on the GPU."""
    return ruda.full((4,), value, device="cuda")


def test_a_call_like_the_last_one_is_known(deferred: Any) -> None:
    total = ruda.zeros(4, device="cuda")

    @ruda.compile
    def step(x: Any, rate: float) -> Any:
        total.assign(total + x * rate)
        return total.sum()

    x = ones()
    found = [step(x, 0.5 * i).item() for i in range(8)]
    np.testing.assert_array_equal(found, 2.0 * np.cumsum(np.arange(8)))
    fast = step._fast_path
    assert fast is not None and fast.whole is fast.program.zero_copy.captured
    x.assign(ones(3.0))
    assert step(x, 1.0).item() == 68.0 and step._fast_path is fast
    # Elsewhere, a part of something larger, or by its name: each is found out.
    assert step(ones(), 1.0).item() == 72.0
    assert step(ruda.full((8,), 2.0, device="cuda")[4:], 1.0).item() == 80.0
    assert step(x, rate=0.0).item() == 80.0
    with ruda.no_grad():
        assert step(x, 1.0).item() == 92.0
    assert "1 signature" not in repr(step)


def test_what_arguments_have_nothing_to_do_with_is_asked_each_time(deferred: Any) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(ruda.full((4,), 2.0))
            self.by = 1.0

        def forward(self) -> Any:
            return self.weight * self.by

    model = Scaled().to("cuda")
    step = ruda.compile(lambda: model())
    assert [step().sum().item() for _ in range(4)] == [8.0] * 4
    assert step._fast_path is not None and step().requires_grad
    model.by = 2.0
    assert step().sum().item() == 16.0
    model.by = 1.0
    assert step().sum().item() == 8.0
    model.weight.requires_grad_(False)
    assert not step().requires_grad and step().sum().item() == 8.0
    model.weight.requires_grad_(True)
    assert step().requires_grad
    with ruda.no_grad():
        model.weight.assign(model.weight + 1.0)
    assert step().sum().item() == 12.0


def test_a_node_that_an_assignment_leaves_behind_is_seen(deferred: Any) -> None:
    held = ones()
    step = ruda.compile(lambda: held * 2.0)
    assert not any(step().requires_grad for _ in range(3))
    weight = ones().requires_grad_()
    held.assign(weight * 3.0)
    with pytest.raises(CaptureError, match="a history from outside"):
        step()


def test_a_watched_variable_shows_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    look = config.watch("RUDA_DEVICE")
    monkeypatch.delenv("RUDA_DEVICE", raising=False)
    seen = [look()]
    for value in ("cpu", "cuda"):
        monkeypatch.setenv("RUDA_DEVICE", value)
        seen.append(look())
    assert len(set(seen)) == 3
    monkeypatch.setenv("RUDA_DEVICE", "cpu")
    assert look() == seen[1]
