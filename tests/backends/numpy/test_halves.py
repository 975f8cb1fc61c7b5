"""Half operands run what float32 has, between casts, and mean what the reference means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.numpy import products
from ruda.ops.table import TABLE
from ruda.testing import assert_close
from tests.backends.numpy.pairs import any_size, normal

pytest.importorskip("numba")
pytest.importorskip("threadpoolctl")

HALVES = ["bfloat16", "float16"]


def half(*shape: int, dtype: str = "bfloat16", seed: int = 0) -> ruda.Tensor:
    return ruda.asarray(normal(*shape, seed=seed)).astype(dtype)


def matrices(dtype: str) -> list[tuple[ruda.Tensor, ruda.Tensor]]:
    x, w = half(128, 64, dtype=dtype), half(96, 64, dtype=dtype, seed=1)
    batch = half(3, 128, 64, dtype=dtype, seed=2)
    return [
        (x, w.T),
        (x[::-2], w.T[:, ::3]),
        (x, ruda.broadcast_to(w[:1], (96, 64)).T),
        (batch, w.T),
        (batch, batch.mT),
        (batch.mT[:, 5:], x),
        (x[0], w.T),
        (half(0, 64, dtype=dtype), w.T),
    ]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", range(8))
def test_products_of_any_layout(case: int, dtype: str) -> None:
    x, y = matrices(dtype)[case]
    got = x @ y
    assert got.dtype == x.dtype and got.contiguous() is got
    wide = np.matmul(x.astype("float64").numpy(), y.astype("float64").numpy())
    assert_close(got, wide, length=x.shape[-1])


def test_products_of_halves_are_cut_like_those_of_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    multiply = products.multiply
    monkeypatch.setattr("ruda.backends.numpy.fast.multiply", lambda *a: taken.append(multiply(*a)))
    x, w, b = half(512, 64), half(256, 64), half(256)
    TABLE["matmul"].clear()
    TABLE["linear"].clear()
    x @ w.T
    F.linear(x, w, b)
    assert len(taken) == 2


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.gelu(x),
        lambda x: F.softmax(x),
        lambda x: F.layer_norm(x, weight=x[0, 0, 0]),
        lambda x: F.attention(x, x, x, is_causal=True),
        lambda x: F.conv2d(x, x[:, :, :3, :3], padding=1),
    ],
    ids=["gelu", "softmax", "layer_norm", "attention", "conv"],
)
def test_kernels_take_halves(call: Any, dtype: str) -> None:
    """Result and gradient, of the kernel and of the reference: they differ by roundings."""
    found = []
    for setting in ("auto", "off"):
        with pytest.MonkeyPatch.context() as patch, any_size():
            patch.setenv("RUDA_CPU_KERNELS", setting)
            for op in TABLE.values():
                op.clear()
            x = ruda.tensor(half(2, 4, 16, 8, dtype=dtype), requires_grad=True)
            y = call(x)
            y.backward(half(*y.shape, dtype=dtype, seed=3))
            found.append((y.detach(), x.grad))
    for op in TABLE.values():
        op.clear()
    for got, want in zip(*found, strict=True):
        assert got.dtype == want.dtype == x.dtype
        assert_close(got, want.astype("float64").numpy(), length=64)
