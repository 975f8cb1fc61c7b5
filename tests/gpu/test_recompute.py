"""Results in the memory of operands, and steps within a budget, are the same as without."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import cuda, nn, optim
from ruda.testing import assert_close
from tests.fusion.twins import bits
from tests.training import step_of


@pytest.mark.parametrize(("classes", "dtype"), [(50304, "bfloat16"), (1001, "float32")])
def test_gradients_of_logits_lie_in_the_logits(device: Any, classes: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((512, classes)).astype("f4")
    x = ruda.asarray(logits, dtype=dtype, device=device)
    target = ruda.asarray(rng.integers(0, classes, 512), device=device)

    def step(x: Any, target: Any) -> Any:
        return ruda.value_and_grad(lambda x: F.cross_entropy(ruda.cumsum(x, axis=0), target))(x)

    compiled = ruda.compile(step)
    compiled(x, target)
    found, again = (compiled(x, target) for _ in range(2))
    assert bits(again) == bits(found)
    assert [i.op for i in compiled._all()[0].captured.given]
    for one, other in zip(found, step(x, target), strict=True):
        # One kernel for losses and gradient adds up in another order.
        assert_close(one, other, length=classes)


def trained(device: Any, memory: int | None) -> tuple[Any, list[float], int]:
    """A compiled step, the losses of some calls, and the peak of memory in the last ones."""
    ruda.random.manual_seed(5)
    layers = [
        nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU(), nn.Dropout(0.1))
        for _ in range(8)
    ]
    model = nn.Sequential(*layers, nn.Linear(512, 10)).to(device)
    opt = optim.AdamW(model.parameters(), lr=1e-3)
    x = np.random.default_rng(1).standard_normal((16384, 512)).astype("f4")
    given = ruda.asarray(x, device=device), ruda.asarray(np.arange(16384) % 10, device=device)

    step = step_of(model, opt)

    compiled = ruda.compile(step, memory=memory)
    predicted = compiled.memory(*given).peak
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    losses = [compiled(*given).item() for _ in range(5)]
    assert cuda.max_memory_allocated() == pytest.approx(predicted, rel=0.05)
    return compiled, losses, predicted


def test_a_budget_changes_no_bit(device: Any) -> None:
    with ruda.deterministic():
        free, wanted, peak = trained(device, None)
        del free
        # Its graph holds memory until it is gone.
        gc.collect()
        small, found, least = trained(device, int(0.7 * peak))
        assert least <= 0.7 * peak and found == wanted
        assert "recomputed: " in small.explain()
