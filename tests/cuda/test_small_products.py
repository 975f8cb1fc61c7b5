"""Products of float32 by tiles of our own: how operands lie, edges, clusters, both gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.blas import layout, small, tune
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close
from tests.cuda.gate.programs import spills

compiler = pytest.importorskip("ruda.backends.cuda.compiler")

# m, n, k: edges on all sides, and rows that are no multiple of 16 bytes.
SIZES = {
    "even": (96, 100, 104),
    "odd": (67, 10, 513),
    "deep": (33, 44, 1100),
    "wide": (130, 190, 34),
}


def on(device: str, *shape: int, seed: int = 0) -> Any:
    return ruda.asarray(
        np.random.default_rng(seed).standard_normal(shape).astype("f"), device=device
    )


def launched(client: Any) -> list[str]:
    return [name for name in client.driver.launches if name.startswith("small_product")]


def laid(x: Any, turned: bool) -> Any:
    """``x`` with its rows, or with its columns, without gaps."""
    return ruda.asarray(x.numpy().T.copy(), device=str(x.device)).T if turned else x


@pytest.mark.parametrize("size", SIZES)
def test_every_way_that_operands_lie(client: Any, device: str, size: str) -> None:
    m, n, k = SIZES[size]
    x, y, bias = on(device, m, k), on(device, k, n, seed=1), on(device, n, seed=2)
    want = x.numpy().astype("d") @ y.numpy().astype("d")
    for turned in itertools.product((False, True), repeat=2):
        client.driver.launches.clear()
        got = laid(x, turned[0]) @ laid(y, turned[1])
        assert launched(client), client.driver.launches
        assert_close(got.to("cpu"), want, length=k, name="matmul")
    got = F.linear(x, laid(y, True).T, bias)
    assert_close(got.to("cpu"), want + bias.numpy(), length=k, name="linear")


def test_batches_and_views(client: Any, device: str) -> None:
    x, y = on(device, 3, 40, 72), on(device, 3, 72, 36, seed=1)
    want = np.matmul(x.numpy().astype("d"), y.numpy().astype("d"))
    assert_close((x @ y).to("cpu"), want, length=72, name="matmul")
    wide, flat = on(device, 64, 131), on(device, 100 * 64 + 1, seed=3)
    part = wide[:, 1:101]
    got = part @ flat[1:].reshape((100, 64))
    want = part.numpy().astype("d") @ flat.numpy()[1:].reshape(100, 64).astype("d")
    assert_close(got.to("cpu"), want, length=100, name="matmul")
    assert len(launched(client)) >= 2


@pytest.mark.parametrize("cluster", [1, 2, 4, 8])
@pytest.mark.parametrize("tile", small.TILES, ids=lambda t: f"{t.rows}x{t.columns}x{t.slices}")
@pytest.mark.slow
def test_every_tile(client: Any, device: str, tile: small.Tile, cluster: int) -> None:
    m, n, k = 70, 68, 300
    x, y, bias = on(device, m, k), on(device, k, n, seed=1), on(device, n, seed=2)
    shape = layout.geometry((x.shape, x.strides), (y.shape, y.strides))
    out = ruda.zeros((m, n), device=device)
    multiply = small.product(client, shape, small.Choice(tile, cluster), relu=True)
    multiply(*(t.handle.address for t in (x, y, out, bias)))
    want = np.maximum(x.numpy().astype("d") @ y.numpy().astype("d") + bias.numpy(), 0)
    assert_close(out.to("cpu"), want, length=k, name="product")


def test_infinity_and_nan_stay_where_they_are(device: str) -> None:
    x, y = np.zeros((70, 80), "f"), np.ones((80, 64), "f")
    x[3, 5], x[9, 1], x[69, 79] = np.inf, np.nan, -np.inf
    got = (ruda.asarray(x, device=device) @ ruda.asarray(y, device=device)).numpy()
    assert np.all(got[3] == np.inf) and np.all(np.isnan(got[9])) and np.all(got[69] == -np.inf)
    assert np.isfinite(np.delete(got, (3, 9, 69), axis=0)).all()


@pytest.mark.parametrize(("rows", "high", "wide"), [(600, 40, 72), (129, 10, 256), (96, 70, 65)])
def test_both_gradients_of_a_layer(
    client: Any, device: str, rows: int, high: int, wide: int
) -> None:
    x, w, b = on(device, rows, wide), on(device, high, wide, seed=1), on(device, high, seed=2)
    w.requires_grad = b.requires_grad = True
    client.driver.launches.clear()
    g = on(device, rows, high, seed=3)
    (F.linear(x, w, b) * g).sum().backward()
    assert any("_sums" in name for name in launched(client)), client.driver.launches
    given, g = x.numpy().astype("d"), g.numpy().astype("d")
    assert_close(w.grad.to("cpu"), g.T @ given, length=rows, name="weight")
    assert_close(b.grad.to("cpu"), g.sum(0), length=rows, name="bias")


def both(step: Any, *args: Any) -> tuple[Any, Any]:
    """What ``step`` gives operator by operator, and compiled."""
    return step(*args), ruda.compile(step)(*args)


def test_what_follows_a_product_is_done_by_its_kernel(client: Any, device: str) -> None:
    x, w, b = on(device, 70, 64), on(device, 68, 64, seed=1), on(device, 68, seed=2)
    r = on(device, 70, 68, seed=3)

    def step(x: Any, w: Any, b: Any, r: Any) -> Any:
        h = F.linear(x, w, b)
        y = F.gelu(h, approximate="tanh")
        return h, y * r, (x @ w.T) - r

    eager = step(x, w, b, r)
    client.driver.launches.clear()
    made = ruda.compile(step)(x, w, b, r)
    names = client.driver.launches
    assert any("gelu_tanh_multiply" in name for name in launched(client)), names
    assert any("subtract" in name for name in launched(client)), names
    for got, want in zip(made, eager, strict=True):
        assert np.array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_compiled_layer_learns_as_an_eager_one(device: str, activation: str) -> None:
    x, w, v = on(device, 65, 66), on(device, 72, 66, seed=1), on(device, 70, 72, seed=2)
    function = getattr(F, activation)
    grads = []
    for wrap in (lambda f: f, ruda.compile):
        a, c = (ruda.asarray(t.numpy(), device=device) for t in (w, v))
        a.requires_grad = c.requires_grad = True

        def step(x: Any, a: Any = a, c: Any = c) -> Any:
            (F.linear(function(F.linear(x, a)), c) ** 2).sum().backward()

        wrap(step)(x)
        grads.append((a.grad.numpy(), c.grad.numpy()))
    for eager, made in zip(*grads, strict=True):
        assert np.array_equal(eager, made)


# Count, m, n, k, whether rows of each operand are without gaps; all were timed on an H200.
QUICKER = (
    (1, 2048, 384, 128, True, False), (1, 2048, 128, 512, True, True),
    (1, 512, 128, 2048, False, True), (1, 128, 256, 10, True, True), (1, 10, 256, 128, False, True),
    (1, 64, 64, 64, True, False), (256, 32, 32, 32, True, False), (4096, 16, 16, 16, True, False),
    (1, 16, 4096, 4096, True, True), (1, 4096, 10, 512, True, False),
    (1, 2048, 2048, 32, True, False), (1, 2048, 2048, 2048, True, False),
)  # fmt: skip
SLOWER = (
    (1, 64, 64, 65536, False, True), (1, 4096, 4096, 4, True, False),
    (1, 4096, 4096, 16, True, True), (1, 1000, 1001, 999, True, False),
    (1, 2047, 129, 513, True, True),
)  # fmt: skip


def geometry_of(case: tuple[int, int, int, int, bool, bool]) -> layout.Geometry:
    count, m, n, k, left, right = case
    batch, steps = ((count,), ((m * k,), (k * n,))) if count > 1 else ((), ((), ()))
    x = (*batch, m, k), (*steps[0], *((k, 1) if left else (1, m)))
    y = (*batch, k, n), (*steps[1], *((n, 1) if right else (1, k)))
    return layout.geometry(x, y)


def test_the_rule_takes_what_was_quicker(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    monkeypatch.setattr(client.driver, "multiprocessors", 132)
    assert all(small.fits(client, geometry_of(case)) for case in QUICKER)
    assert not any(small.fits(client, geometry_of(case)) for case in SLOWER)
    monkeypatch.setattr(client.driver, "arch", "sm_80")
    assert not any(small.fits(client, geometry_of(case)) for case in QUICKER)


def test_hardly_anything_is_spilt() -> None:
    for tile, cluster in ((small.TILES[2], 1), (small.TILES[0], 8)):
        kernel = small.Kernel(tile, cluster, False, False, 4, 4, True, True, small.PLAIN)
        log = compiler.compile_cubin(kernel.source(), kernel.name, "sm_90a")[1]
        assert all(size <= 32 for size in spills(log).values()), log


def test_what_was_measured_decides(
    client: Any, device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("RUDA_CACHE", str(tmp_path))
    monkeypatch.setenv("RUDA_AUTOTUNE", "on")
    x, y = on(device, 64, 96), on(device, 96, 64, seed=1)
    shape = layout.geometry((x.shape, x.strides), (y.shape, y.strides))
    found = small.candidates(client, shape)

    def measured(client: Any, trials: Any) -> list[float]:
        # The last is the library's, which is not there.
        for trial in trials[:-1]:
            trial()
        return [2.0, 1.0, *(3.0 for _ in trials[2:])]

    monkeypatch.setattr(tune, "_measured", measured)
    monkeypatch.setattr(tune, "_is_captured", lambda client: False)
    clear_plans()
    want = (x @ y).numpy()
    monkeypatch.setenv("RUDA_AUTOTUNE", "cached")
    monkeypatch.setattr(tune, "_measured", lambda *_: pytest.fail("timed again"))
    clear_plans()
    client.driver.launches.clear()
    assert np.array_equal((x @ y).numpy(), want)
    tile, cluster = found[1]
    assert f"{tile.rows}x{tile.columns}" in launched(client)[0]
    assert f"_c{cluster}" in launched(client)[0]
    clear_plans()
