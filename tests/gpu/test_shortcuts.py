"""Products of bfloat16 that add a shortcut, or a gradient so far, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.testing import assert_close


def half(device: Any, *shape: int, seed: int, scale: float = 1.0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype("f4") * scale
    return ruda.asarray(values, dtype="bfloat16", device=device)


@pytest.mark.parametrize("biased", [True, False])
def test_a_shortcut_in_a_large_product(device: Any, biased: bool) -> None:
    rows, width = 6144, 768
    w, b = half(device, width, width, seed=1, scale=0.04), half(device, width, seed=2)

    def block(x: Any) -> Any:
        y = x + F.linear(F.relu(x), w, b if biased else None)
        return y, F.layer_norm(y)

    step = ruda.compile(block)
    for seed in (3, 4, 5):
        x = half(device, rows, width, seed=seed)
        total, norm = step(x)
        f, g = (v.astype("float32").numpy().astype("f8") for v in (x, w))
        exact = np.maximum(f, 0) @ g.T + f + (b.astype("float32").numpy() if biased else 0)
        assert_close(total.to("cpu"), exact, length=width, name="linear")
        assert_close(norm.to("cpu"), F.layer_norm(total).to("cpu"), length=width, name="norm")
    assert "linear+add(" in step.explain()


def test_gradients_of_several_calls(device: Any) -> None:
    layer = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).to(device)

    def micro(x: Any) -> None:
        with ruda.autocast("bfloat16"):
            loss = (layer(x) ** 2).mean()
        loss.backward()

    xs = [half(device, 2048, 1024, seed=k).astype("float32") for k in range(4)]

    def gradients(step: Any) -> list[Any]:
        for p in layer.parameters():
            p.grad = None
        micro(xs[0])
        for x in xs[1:]:
            step(x)
        return [p.grad.numpy() for p in layer.parameters()]

    compiled = ruda.compile(micro)
    for got, want in zip(gradients(compiled), gradients(micro), strict=True):
        # Eager code rounds each product to 8 bits before it is added.
        assert np.linalg.norm(got - want) <= 2**-7 * np.linalg.norm(want)
    assert "matmul+astype+add(" in compiled.explain()


def test_a_table_that_is_looked_up_and_multiplied_by(device: Any) -> None:
    rows, width = 8192, 768
    rng = np.random.default_rng(0)
    table = ruda.asarray(rng.standard_normal((rows, width)).astype("f4") * 0.05, device=device)

    def gradient(table: Any, places: Any) -> Any:
        w = table.detach()
        w.requires_grad = True
        with ruda.autocast("bfloat16"):
            loss = (F.linear(F.tanh(F.embedding(places, w)), w) ** 2).mean()
        loss.backward()
        return w.grad

    compiled = ruda.compile(gradient)
    for most in (rows, 100):
        places = ruda.asarray(rng.integers(0, most, 3000), device=device)
        got, want = (f(table, places).numpy() for f in (compiled, gradient))
        assert np.linalg.norm(got - want) <= 2**-7 * np.linalg.norm(want)
        assert np.isfinite(got).all()
    assert "index_add(" in compiled.explain()
