"""Gradients of norms that are a row further in their first pass than in their second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.launch import spied
from ruda.backends.cuda.prim import row_pipes
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that lets rows of any length be shared in one way alone."""

    def choose(threads: int, blocks: int) -> None:
        for name in ("PIPES", "SKEWED"):
            monkeypatch.setattr(row_pipes, name, ((threads, blocks),))
        monkeypatch.setattr(row_pipes, "_SHORT", 0)
        clear_plans()

    yield choose
    clear_plans()


def of(rng: np.random.Generator, dtype: str, *shape: int) -> ruda.Tensor:
    return ruda.asarray(rng.standard_normal(shape) + 0.5, dtype=dtype)


def check(function: Any, device: str, *given: ruda.Tensor, dy: ruda.Tensor) -> list[str]:
    """Gradients against the CPU's in float64, twice the same; the kernels that ran."""
    names: list[str] = []

    def slopes(place: Any) -> list[ruda.Tensor]:
        _, pull = ruda.vjp(function, *(place(t) for t in given))
        return [t.to("cpu") for t in pull(place(dy))]

    with spied(lambda launcher: names.append(launcher.name)):
        found = slopes(lambda t: t.to(device))
    want = slopes(lambda t: t.astype("float64"))
    rows, n = dy.size // dy.shape[-1], dy.shape[-1]
    for got, exact in zip(found, want, strict=True):
        assert_close(got, exact.numpy(), length=n, scale=np.sqrt(max(n, rows)))
    for a, b in zip(found, slopes(lambda t: t.to(device)), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    return [name for name in names if "backward" in name]


# One block, few and many of a cluster; rows that begin anywhere, of which blocks have several.
CASES = [
    (512, 1, 30, 4104, "bfloat16", "float32"),
    (256, 2, 7, 4100, "float32", "float32"),
    (512, 16, 3, 20000, "bfloat16", "bfloat16"),
    (512, 4, 19, 8201, "bfloat16", "bfloat16"),
    (256, 1, 27, 1030, "bfloat16", "bfloat16"),
    (64, 1, 600, 515, "float16", "float32"),
]


@pytest.mark.parametrize(("threads", "blocks", "rows", "n", "dtype", "beside"), CASES)
def test_gradients(
    device: str,
    rng: np.random.Generator,
    pipes: Any,
    threads: int,
    blocks: int,
    rows: int,
    n: int,
    dtype: str,
    beside: str,
) -> None:
    pipes(threads, blocks)
    x, dy = of(rng, dtype, rows, n), of(rng, dtype, rows, n)
    w, b = of(rng, beside, n), of(rng, beside, n)
    norm = F.rms_norm if blocks == 4 else F.layer_norm
    given = (x, w) if blocks == 4 else (x, w, b)
    (name,) = check(norm, device, *given, dy=dy)
    assert name.endswith("piped")
    assert ("skewed" in name, f"cluster{blocks}" in name) == (n % 4 != 0, blocks > 1)


def test_rows_through_strides(device: str, rng: np.random.Generator, pipes: Any) -> None:
    pipes(256, 2)
    x, dy, w = (
        of(rng, "float32", 3, 5, 2056),
        of(rng, "float32", 5, 3, 2056),
        of(rng, "float32", 2056),
    )
    (name,) = check(lambda x, w: F.rms_norm(x.permute_dims((1, 0, 2)), w), device, x, w, dy=dy)
    assert name.endswith("piped") and "_r21" in name


def test_fewer_rows_than_begin_alike(device: str, rng: np.random.Generator, pipes: Any) -> None:
    pipes(128, 1)
    x, w, dy = of(rng, "bfloat16", 2, 1001), of(rng, "float32", 1001), of(rng, "bfloat16", 2, 1001)
    (name,) = check(F.rms_norm, device, x, w, dy=dy)
    assert name.endswith("skewed_piped")


def test_not_a_number_spreads_over_its_row_and_column(device: str, pipes: Any) -> None:
    pipes(128, 1)
    x = np.tile(np.arange(1001, dtype=np.float32) % 5, (9, 1))
    w = np.ones(1001, np.float32)
    x[4, 1000] = np.nan
    _, pull = ruda.vjp(F.layer_norm, *(ruda.asarray(a, device=device) for a in (x, w)))
    dx, dw = (t.to("cpu").numpy() for t in pull(ruda.ones((9, 1001), device=device)))
    np.testing.assert_array_equal(np.isnan(dx).all(1), np.arange(9) == 4)
    assert np.isfinite(np.delete(dx, 4, 0)).all() and np.isnan(dw).all()
