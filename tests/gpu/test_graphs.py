"""Graphs by hand on a real GPU: training steps, pools, graphed callables, what capture refuses."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import cuda, nn
from ruda.core.errors import CaptureError


def model(device: str) -> nn.Module:
    ruda.random.seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).to(
        device
    )


def batch(device: str, seed: int) -> tuple[ruda.Tensor, ruda.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((16, 32)).astype("float32")
    return ruda.asarray(x, device=device), ruda.asarray(rng.integers(0, 8, 16), device=device)


def step(net: nn.Module, x: ruda.Tensor, y: ruda.Tensor) -> ruda.Tensor:
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    with ruda.no_grad():
        for p in net.parameters():
            p.assign(p - p.grad * 0.1)
            p.grad = None
    return loss


def test_a_captured_training_step(device: str) -> None:
    eager, captured = model(device), model(device)
    x, y = batch(device, 0)
    g = cuda.Graph()
    step(model(device), x, y)
    with cuda.graph(g):
        loss = step(captured, x, y)
    for seed in range(5):
        new = batch(device, seed)
        expected = step(eager, *new)
        x.copy_(new[0])
        y.copy_(new[1])
        g.replay()
        np.testing.assert_allclose(loss.numpy(), expected.numpy(), rtol=1e-5)
    for a, b in zip(captured.parameters(), eager.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


def test_a_captured_step_in_a_side_stream(device: str) -> None:
    side = cuda.Stream()
    x = ruda.zeros(1 << 20, device=device)
    g = cuda.Graph()
    with cuda.stream(side), cuda.graph(g):
        y = (x + 1) * 2
    for i in range(3):
        x.assign(float(i))
        g.replay()
        assert y[7].item() == (i + 1) * 2
        with cuda.stream(side):
            g.replay()
        assert y[7].item() == (i + 1) * 2


def test_graphs_with_products_run_beside_each_other(device: str) -> None:
    """Deep products of small results add partial sums in scratch memory: each graph in its own."""
    rng = np.random.default_rng(0)
    pairs = [
        [
            ruda.asarray(rng.standard_normal(s), dtype="float32", device=device)
            for s in ((96, 16384), (16384, 96))
        ]
        for _ in range(2)
    ]
    wanted = [(x @ y).numpy() for x, y in pairs]
    graphs, outs = [cuda.Graph(), cuda.Graph()], []
    for g, (x, y) in zip(graphs, pairs, strict=True):
        with cuda.graph(g):
            outs.append([x @ y for _ in range(20)])
    streams = [cuda.Stream(), cuda.Stream()]
    for _ in range(20):
        for g, stream in zip(graphs, streams, strict=True):
            with cuda.stream(stream):
                g.replay()
    for found, want in zip(outs, wanted, strict=True):
        for out in found:
            np.testing.assert_array_equal(out.numpy(), want)


def test_fork_and_join(device: str) -> None:
    a, b = cuda.Stream(), cuda.Stream()
    x = ruda.ones(1 << 16, device=device)
    g = cuda.Graph()
    with cuda.graph(g):
        with cuda.stream(a):
            left = x * 2
        with cuda.stream(b):
            right = x * 3
        y = left + right
    g.replay()
    assert y.sum().item() == 5 * (1 << 16)


def test_graphed_callables(device: str) -> None:
    net = model(device)
    x, y = batch(device, 0)
    x.requires_grad_()

    def gradients(f: Any) -> list[Any]:
        x.grad = None
        for p in net.parameters():
            p.grad = None
        F.cross_entropy(f(x), y).backward()
        return [x.grad.numpy(), *(p.grad.numpy() for p in net.parameters())]

    expected = gradients(net)
    fast = cuda.make_graphed_callables(net, (x,))
    for _ in range(3):
        for got, want in zip(gradients(fast), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_memory_goes_with_the_graph(device: str) -> None:
    x = ruda.zeros(1 << 20, device=device)

    def once() -> None:
        g = cuda.Graph()
        with cuda.graph(g):
            y = x
            for _ in range(20):
                y = y + 1
        g.replay()
        assert y[0].item() == 20

    once()
    gc.collect()
    cuda.empty_cache()
    used, reserved = cuda.memory_allocated(), cuda.memory_reserved()
    for _ in range(20):
        once()
    gc.collect()
    cuda.empty_cache()
    assert cuda.memory_allocated() == used
    assert cuda.memory_reserved() == reserved


def test_what_a_capture_refuses(device: str) -> None:
    x = ruda.ones(4, device=device)
    for bad in (
        lambda: x.sum().item(),
        lambda: ruda.asarray(np.ones(4), device=device),
        cuda.synchronize,
        lambda: print(x),
    ):
        with pytest.raises(CaptureError, match=r"test_graphs\.py:\d+"), cuda.graph(cuda.Graph()):
            bad()
        assert (x + 1).sum().item() == 8


def test_a_pool_is_shared_in_order(device: str) -> None:
    x = ruda.zeros(1 << 18, device=device)
    first, second = cuda.Graph(), cuda.Graph()
    with cuda.graph(first):
        y = x + 1
    with cuda.graph(second, pool=first.pool()):
        z = y * 3
    for _ in range(3):
        first.replay()
        second.replay()
        assert z[5].item() == 3
    with pytest.raises(CaptureError, match="order of their captures"):
        second.replay()
