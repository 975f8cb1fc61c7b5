"""Small products of float32 on a GPU: layouts, edges, clusters, and steps eager and compiled."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from ruda.backends.cuda.blas import layout, small
from ruda.core.devices import client as client_of
from ruda.testing import assert_close
from tests.cuda.test_products import exact, on

SIZES = ((2048, 384, 128), (128, 10, 255), (512, 128, 2048), (130, 250, 96), (2047, 129, 77))


@pytest.mark.parametrize("size", SIZES)
def test_every_way_that_operands_lie(device: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    for turned in itertools.product((False, True), repeat=2):
        x = on(device, (k, m) if turned[0] else (m, k), "float32")
        y = on(device, (n, k) if turned[1] else (k, n), "float32", 1)
        x, y = x.T if turned[0] else x, y.T if turned[1] else y
        want = np.matmul(exact(x), exact(y))
        assert_close((x @ y).to("cpu"), want, length=k, name="matmul")


@pytest.mark.parametrize("cluster", [1, 2, 4, 8])
@pytest.mark.parametrize("tile", small.TILES, ids=lambda t: f"{t.rows}x{t.columns}x{t.slices}")
def test_every_tile(device: str, tile: small.Tile, cluster: int) -> None:
    client: Any = client_of(device)
    if not client.driver.arch.startswith("sm_90"):
        pytest.skip("double tensor cores are quick on sm_90 alone: others have the library")
    (m, n, k), batch = (300, 200, 1000), 3
    x, y = on(device, (batch, m, k), "float32"), on(device, (batch, k, n), "float32", 1)
    bias, out = on(device, (n,), "float32", 2), ruda.zeros((batch, m, n), device=device)
    shape = layout.geometry((x.shape, x.strides), (y.shape, y.strides))
    multiply = small.product(client, shape, small.Choice(tile, cluster), relu=True)
    first = []
    for _ in range(3):
        multiply(*(t.handle.address for t in (x, y, out, bias)))
        first.append(out.numpy())
    want = np.maximum(np.matmul(exact(x), exact(y)) + exact(bias), 0)
    assert_close(out.to("cpu"), want, length=k, name="product")
    assert np.array_equal(first[0], first[1]) and np.array_equal(first[0], first[2])


def test_infinity_and_nan(device: str) -> None:
    x, y = np.ones((256, 128), "f"), np.ones((128, 256), "f")
    x[3, 5], x[200, 127], y[0, 9] = np.inf, np.nan, -np.inf
    got = (ruda.asarray(x, device=device) @ ruda.asarray(y, device=device)).numpy()
    with np.errstate(invalid="ignore"):
        want = x @ y
    assert np.array_equal(got, want, equal_nan=True)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_compiled_step_is_the_eager_one(device: str, activation: str) -> None:
    """Equal losses, to the bit: the same kernel in the same order of sums."""
    runs = []
    for wrap in (lambda f: f, ruda.compile):
        ruda.random.seed(0)
        middle = nn.GELU("tanh") if activation == "gelu" else nn.ReLU()
        model = nn.Sequential(nn.Linear(128, 512), middle, nn.Linear(512, 96)).to(device)
        opt = optim.SGD(model.parameters(), lr=1e-2)

        def step(x: Any, y: Any, model: Any = model, opt: Any = opt) -> Any:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss

        rng = np.random.default_rng(0)
        x = ruda.asarray(rng.standard_normal((2048, 128)).astype("f"), device=device)
        y = ruda.asarray(rng.integers(0, 96, 2048), device=device)
        made = wrap(step)
        runs.append([made(x, y).item() for _ in range(5)])
    assert runs[0] == runs[1]


def test_gradients_equal_those_of_the_cpu(device: str) -> None:
    found = []
    for where in ("cpu", device):
        x = on(where, (1500, 130), "float32").requires_grad_()
        w = on(where, (70, 130), "float32", 1).requires_grad_()
        b = on(where, (70,), "float32", 2).requires_grad_()
        (F.linear(x, w, b) ** 2).mean().backward()
        found.append([t.grad.to("cpu") for t in (x, w, b)])
    for got, want in zip(found[1], found[0], strict=True):
        assert_close(got, want.numpy(), length=1500, name="grad")
