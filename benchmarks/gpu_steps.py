"""A whole training step of a small network as one graph, where launching is all the cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks import Line, row
from benchmarks.gpu import alternate, result

SIZES = (784, 256, 256, 10)
BATCH = 128


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((BATCH, SIZES[0]), dtype=np.float32), np.arange(BATCH) % 10


def weights() -> list[Any]:
    rng = np.random.default_rng(1)
    scaled = ((rng.standard_normal((b, a)) / np.sqrt(a)) for a, b in pairwise(SIZES))
    return [w.astype("f4") for w in scaled]


def mlp_by_ruda() -> Callable[[], Any]:
    """The step of the README, compiled."""
    import ruda
    import ruda.nn.functional as F
    from ruda import nn, optim

    layers: list[Any] = []
    for w in weights():
        linear = nn.Linear(w.shape[1], w.shape[0])
        linear.load_state_dict({"weight": ruda.asarray(w), "bias": ruda.zeros(w.shape[0])})
        layers += [linear, nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).to("cuda")
    opt = optim.AdamW(model.parameters(), lr=1e-3)
    x, y = (ruda.asarray(v, device="cuda") for v in data())

    @ruda.compile
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return lambda: step(x, y)


def torch_parts() -> tuple[Any, Any, Any, Any]:
    import torch

    layers: list[Any] = []
    for w in weights():
        linear = torch.nn.Linear(w.shape[1], w.shape[0])
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(w))
            linear.bias.zero_()
        layers += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1]).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True, fused=True)
    x, y = (torch.from_numpy(v).cuda() for v in data())
    return model, opt, x, y.long()


def mlp_by_torch(how: str) -> Callable[[], Any]:
    """Eager, or with a forward compiled for least overhead."""
    import torch

    model, opt, x, y = torch_parts()
    forward = model if how == "eager" else torch.compile(model, mode=how)

    def step() -> Any:
        loss = torch.nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return step


def mlp_by_a_graph() -> Callable[[], Any]:
    """The whole step of PyTorch captured by hand; the batch is copied in before each replay."""
    import torch

    model, opt, x, y = torch_parts()
    given, wanted = x.clone(), y.clone()

    def step() -> Any:
        opt.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(given), wanted)
        loss.backward()
        opt.step()
        return loss

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    # The graph knows addresses only: parameters and state of the optimizer have to outlive it.
    held = model, opt

    def replay() -> Any:
        assert held
        given.copy_(x)
        wanted.copy_(y)
        graph.replay()
        return loss

    return replay


def mlp_by_jax() -> Callable[[], Any]:
    """One jitted function with donated state; Adam with decoupled decay written out."""
    import jax
    import jax.numpy as jnp

    params = [(jnp.asarray(w.T), jnp.zeros(w.shape[0])) for w in weights()]
    zeros = jax.tree.map(jnp.zeros_like, params)
    x, y = (jnp.asarray(v) for v in data())

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        for i, (w, b) in enumerate(params):
            x = x @ w + b
            x = jax.nn.relu(x) if i < len(params) - 1 else x
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    def step(state: Any, x: Any, y: Any) -> Any:
        params, m, v, t = state
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)

        def moved(p: Any, m: Any, v: Any) -> Any:
            up, down = m / (1 - 0.9**t), jnp.sqrt(v / (1 - 0.999**t)) + 1e-8
            return p * (1 - 1e-5) - 1e-3 * up / down

        return (jax.tree.map(moved, params, m, v), m, v, t), loss

    jitted = jax.jit(step, donate_argnums=0)
    held = [(params, zeros, jax.tree.map(jnp.copy, zeros), jnp.float32(0))]

    def call() -> Any:
        held[0], loss = jitted(held[0], x, y)
        return loss

    return call


@row("J2", "training step of a network 784-256-256-10, batch 128, AdamW")
def mlp() -> Iterator[Line]:
    steps = {
        "ruda": mlp_by_ruda(),
        "graph": mlp_by_a_graph(),
        "TE": mlp_by_torch("eager"),
        "TC": mlp_by_torch("reduce-overhead"),
        "JX": mlp_by_jax(),
    }
    compared = {name: [float(steps[name]()) for _ in range(8)] for name in ("ruda", "TE", "JX")}
    for other in ("TE", "JX"):
        np.testing.assert_allclose(compared["ruda"], compared[other], rtol=2e-3)
    times = alternate(steps, rounds=30, warmup=20)
    yield result("J2", "compiled", times, goal=1.4, unit="us", strategy="one graph")
