"""The CUDA client: products, gradients, in-place changes, memory, and mixing of devices."""

from __future__ import annotations

import gc
import struct

import numpy as np
import pytest

import ruda
from ruda.backends.cuda.launch import Launcher
from ruda.core.devices import client
from ruda.core.errors import DeviceError
from ruda.testing import assert_close


def on(device: str, *shape: int, dtype: str = "float32", seed: int = 0) -> ruda.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape)
    return ruda.asarray(values, dtype=dtype, device=device)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((64, 96), (96, 32)),
        ((5, 7, 3), (3, 4)),
        ((2, 1, 4, 6), (3, 6, 5)),
        ((8,), (8, 3)),
        ((9,), (9,)),
    ],
)
def test_matmul(device: str, dtype: str, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, b = on(device, *x, dtype=dtype), on(device, *y, dtype=dtype, seed=1)
    wide = "complex128" if dtype == "complex64" else "float64"
    expected = np.matmul(a.numpy().astype(wide), b.numpy().astype(wide))
    assert_close((a @ b).to("cpu"), expected, length=x[-1], name="matmul")


def test_matmul_of_views_and_a_large_one(device: str) -> None:
    a, b = on(device, 700, 500), on(device, 300, 500, seed=1)
    expected = a.numpy().astype("float64") @ b.numpy().T.astype("float64")
    assert_close((a @ b.T).to("cpu"), expected, length=500, name="matmul")
    big = ruda.ones((2048, 2048), device=device, dtype="bfloat16")
    assert float((big @ big)[0, 0]) == 2048.0


def test_gradients_equal_those_of_the_cpu(device: str) -> None:
    found = []
    for where in ("cpu", device):
        x, w = on(where, 8, 6), on(where, 6, 4, seed=1).requires_grad_()
        loss = (ruda.exp((x @ w) * 0.1).mean(axis=0) * w.sum(axis=0)).sum()
        loss.backward()
        found.append(w.grad.to("cpu"))
    assert_close(found[1], found[0].numpy(), length=32, name="grad")


def test_in_place_and_strided_writes(device: str) -> None:
    x = ruda.zeros((4, 6), device=device)
    x[1:3, ::2] = ruda.asarray([1.0, 2.0, 3.0], device=device)
    x.T[5].assign(7.0)
    x += 1.0
    expected = np.zeros((4, 6), "f")
    expected[1:3, ::2] = [1, 2, 3]
    expected[:, 5] = 7
    np.testing.assert_array_equal(x.numpy(), expected + 1)
    y = ruda.arange(6, device=device)
    y[1:] = y[:-1]
    assert y.tolist() == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("shape", [(1 << 20,), (3, 1 << 18), (1 << 18, 3), (129, 257, 65)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_reductions_of_large_tensors(device: str, shape: tuple[int, ...], axis: int | None) -> None:
    x = on(device, *shape)
    wide = x.numpy().astype("float64")
    length = x.size if axis is None else shape[axis]
    scale = float(np.abs(wide).sum(axis=axis).max())
    assert_close(x.sum(axis=axis).to("cpu"), wide.sum(axis=axis), length=length, scale=scale)
    np.testing.assert_array_equal(x.max(axis=axis).numpy(), wide.max(axis=axis).astype("f"))


def test_memory_returns_to_where_it_was(device: str) -> None:
    pool = ruda.zeros(1, device=device).client.pool
    gc.collect()
    gc.disable()
    try:
        before = pool.used
        for _ in range(50):
            w = on(device, 64, 64).requires_grad_()
            ((w @ w) * w).sum().backward()
        del w
        assert pool.used == before
    finally:
        gc.enable()


def test_an_older_plan_keeps_its_shared_memory(device: str) -> None:
    """One kernel, first with more dynamic shared memory than later."""
    text = """#include "ruda/ptx.cuh"
extern "C" __global__ void last_of(float* out, int n) {
    DYNAMIC_SHARED(float, room);
    room[n - 1] = n;
    *out = room[n - 1];
}
"""
    out = ruda.zeros(1, device=device)
    sizes = (30_000, 20_000)
    launchers = [
        Launcher(client(device), text, "last_of", 1, 1, (1,), [struct.pack("<i", n)], 4 * n)
        for n in sizes
    ]
    for n, launch in zip(sizes, launchers, strict=True):
        launch(out.handle.address)
        assert out.item() == n


def test_devices_do_not_mix(device: str) -> None:
    with pytest.raises(DeviceError, match="operands live on different devices"):
        ruda.ones(3) + ruda.ones(3, device=device)
    with pytest.raises(DeviceError, match="a NumPy array is on the CPU"):
        ruda.ones(3, device=device) * np.ones(3)
    assert ruda.ones(3, device=device).to("cpu").device == "cpu"
