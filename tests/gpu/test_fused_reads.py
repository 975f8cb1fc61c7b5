"""Kernels of compiled steps that read at places of their own, draw, or end a product in a gelu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.errors import IndexRangeError

ROWS, WIDTH = 3000, 1032


def normal(device: str, dtype: str, *shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    return ruda.asarray(values, dtype=dtype, device=device)


def places(device: str, count: int, size: int) -> Any:
    rng = np.random.default_rng(1)
    return ruda.asarray(rng.integers(-size, size, count), device=device)


READS: dict[str, Callable[..., Any]] = {
    "rows": lambda x, y, i: x[i] + y,
    "a table": lambda x, y, i: F.embedding(abs(i) % ROWS, x) * y,
    "elements": lambda x, y, i: ruda.take_along_axis(x, i[:, None] % WIDTH, axis=1) * x,
    "parts": lambda x, y, i: F.relu(ruda.concat([x, y], axis=1)) * 2,
    "uneven parts": lambda x, y, i: ruda.concat([x, y[:, :3]], axis=1) * 2,
    "rolled rows": lambda x, y, i: ruda.roll(x, 7, axis=0) - y,
    "rolled columns": lambda x, y, i: ruda.roll(x, 8, axis=1) - y,
    "padded": lambda x, y, i: ruda.pad(x, ((1, 2), (8, 16)), value=0.5) * 3,
    "a transposed one": lambda x, y, i: x.mT[i % WIDTH] * 2,
    "dropout": lambda x, y, i: F.dropout(ruda.exp(x), 0.3) + y,
    "noise": lambda x, y, i: x * ruda.random.uniform(x.shape, dtype=x.dtype, device=x.device) + y,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", READS)
def test_a_kernel_reads_what_operators_read(device: str, name: str, dtype: str) -> None:
    plain = READS[name]
    args = (
        normal(device, dtype, ROWS, WIDTH),
        normal(device, dtype, ROWS, WIDTH, seed=1),
        places(device, ROWS, ROWS),
    )
    step = ruda.compile(plain)
    for _ in range(2):
        ruda.random.manual_seed(2)
        found = step(*args)
    ruda.random.manual_seed(2)
    assert found.numpy().tobytes() == plain(*args).numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_of_a_table_are_normalised_where_they_are_read(device: str, dtype: str) -> None:
    table, added = normal(device, dtype, 500, 768), normal(device, dtype, ROWS, 768, seed=1)
    ids = places(device, ROWS, 500) % 500

    def plain(t: Any, i: Any, y: Any) -> Any:
        x = F.embedding(i, t) + y
        return x, F.layer_norm(x)

    step = ruda.compile(plain)
    step(table, ids, added)
    found, wanted = step(table, ids, added), plain(table, ids, added)
    assert found[0].numpy().tobytes() == wanted[0].numpy().tobytes()
    tolerance = 1e-5 if dtype == "float32" else 2**-7
    got, want = (v.astype("float32").numpy() for v in (found[1], wanted[1]))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


FACTS: dict[str, Callable[..., Any]] = {
    "of chosen rows": lambda t, i: ((t[i] * 2).sum(axis=-1), ruda.exp(t[i]).max(axis=-1)),
    "of chosen rows, which are kept": lambda t, i: ((x := t[i] * 2), x.mean(axis=-1)),
    "of all rows": lambda t, i: (ruda.abs(t).sum(axis=-1), (t * t).mean(axis=-1), t.min(axis=-1)),
    "of columns": lambda t, i: (ruda.abs(t).sum(axis=0), (t * t).mean(axis=0), t.max(axis=0)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", [30, 1024, 5003, 40000])
@pytest.mark.parametrize("name", FACTS)
def test_facts_of_rows_and_columns(device: str, name: str, width: int, dtype: str) -> None:
    table, i = normal(device, dtype, 600, width), places(device, 200, 600)
    step = ruda.compile(FACTS[name])
    for _ in range(2):
        found = step(table, i)
    # The order of sums is another one: each result beside that of its operators in float64.
    wanted = FACTS[name](table.astype("float64"), i)
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype.name == dtype
        exact = want.numpy()
        bound = (2**-7 if dtype == "bfloat16" else 1e-5) * max(1.0, float(np.abs(exact).max()))
        np.testing.assert_allclose(got.astype("float64").numpy(), exact, rtol=0, atol=bound)


def test_what_a_call_changes_comes_by_one_launch(device: str) -> None:
    step = ruda.compile(lambda x, y, n, rate: (x * rate + y[:, None], y.sum() * n))
    for call in range(6):
        x = normal(device, "float32", 300, 1001, seed=call)
        y = normal(device, "float64", 301, seed=call)[1:].astype("float32")
        n = ruda.asarray(np.int8(call), device=device)
        out, total = step(x, y, n, 0.5 + call)
        wanted = x.numpy() * np.float32(0.5 + call) + y.numpy()[:, None]
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(total.numpy(), y.numpy().sum() * call, rtol=1e-4, atol=1e-4)
    assert "replayed as one graph" in step.explain()


def test_an_index_out_of_range_is_told_by_a_replay(device: str) -> None:
    table, added = normal(device, "float32", 4, 8), normal(device, "float32", 3, 8)
    for last in (lambda x: x * 2, F.layer_norm, lambda x: x.sum(axis=-1)):
        step = ruda.compile(lambda t, i, y, last=last: last(F.embedding(i, t) + y))
        good = ruda.asarray(np.array([0, 1, 2]), device=device)
        for _ in range(2):
            step(table, good, added).numpy()
        with pytest.raises(IndexRangeError, match="embedding"):
            step(table, good + 3, added).numpy()
        assert np.isfinite(step(table, good, added).numpy()).all()


def test_a_large_product_of_bfloat16_ends_in_its_gelu(device: str) -> None:
    x, w = normal(device, "bfloat16", 4096, 256), normal(device, "bfloat16", 2048, 256, seed=1)
    b = normal(device, "bfloat16", 2048, seed=2)

    def plain(x: Any) -> Any:
        z = F.linear(x, w, b)
        return z, F.gelu(z, approximate="tanh")

    step = ruda.compile(plain)
    step(x)
    found, wanted = step(x), plain(x)
    np.testing.assert_allclose(*(v[0].astype("float32").numpy() for v in (found, wanted)), 2**-7)
    exact = F.gelu(F.linear(*(v.astype("float32") for v in (x, w, b))), approximate="tanh").numpy()
    far = [np.linalg.norm(v[1].astype("float32").numpy() - exact) for v in (found, wanted)]
    assert far[0] <= far[1]
