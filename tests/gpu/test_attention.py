"""Attention of short sequences, eager and in compiled layers, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.testing import assert_close

# Batch, query heads, key heads, queries, keys, depth; and the options.
CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "a small model": ((32, 4, 4, 64, 64, 32), {"is_causal": True}),
    "windows of an image": ((128, 4, 4, 49, 49, 32), {}),
    "grouped": ((8, 8, 2, 128, 128, 64), {"is_causal": True}),
    "deep": ((4, 4, 4, 128, 128, 128), {"window": (50, None)}),
    "few of each": ((16, 4, 4, 7, 30, 64), {"softcap": 3.0}),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_heads_that_fit_into_a_block(name: str, dtype: str, device: str) -> None:
    (batch, heads, groups, queries, keys, depth), settings = CASES[name]
    rng, kept = np.random.default_rng(0), (batch, keys, groups, depth)
    shapes = (batch, queries, heads, depth), kept, kept, (batch, queries, heads, depth)
    arrays = [rng.standard_normal(s).astype("f4") for s in shapes]
    both = []
    for where in (device, "cpu"):
        given = [ruda.asarray(a, dtype=dtype, device=where) for a in arrays]
        if where == "cpu":
            given = [x.astype("float32") for x in given]
        *x, dy = (t.permute_dims((0, 2, 1, 3)) for t in given)
        x = [t.detach().requires_grad_() for t in x]
        strategy = "auto" if where == "cpu" else "flash_unit"
        out = F.attention(*x, strategy=strategy, **settings)
        out.backward(dy)
        both.append([out.detach(), *(t.grad for t in x)])
    for got, want in zip(*both, strict=True):
        exact = want.numpy()
        scale = float(np.abs(exact).max())
        assert_close(got.to("cpu"), exact, length=4 * keys, scale=scale, name=name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_compiled_layer_has_what_the_eager_one_has(dtype: str, device: str) -> None:
    rng, shape = np.random.default_rng(1), (4, 64, 3, 4, 64)
    x = ruda.asarray(rng.standard_normal(shape), dtype=dtype, device=device).requires_grad_()

    def step(x: ruda.Tensor) -> Any:
        q, k, v = ruda.unstack((x * 1.5).permute_dims((2, 0, 3, 1, 4)))
        out = F.attention(q, k, v, is_causal=True)
        out = out.permute_dims((0, 2, 1, 3)).reshape((4, 64, 256)) * 2
        (out * out).sum().backward()
        grad, x.grad = x.grad * 1, None
        return out, grad

    with ruda.deterministic():
        found = []
        for run in (step, ruda.compile(step)):
            for _ in range(3):
                outs = run(x)
            found.append([o.detach().astype("float32").numpy() for o in outs])
    for got, want in zip(*found, strict=True):
        if dtype == "float32":
            np.testing.assert_array_equal(got, want)
        # cuDNN may choose another kernel for results in another layout.
        largest = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0.02, atol=0.02 * largest)
