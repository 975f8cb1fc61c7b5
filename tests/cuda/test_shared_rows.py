"""Rows that the blocks of a cluster share, on an emulated GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.launch import spied
from ruda.testing import assert_close


def check(function: Callable[..., Any], device: str, *given: Any, length: int) -> list[str]:
    """Compare with the CPU in float64; returns the names of the kernels that ran."""
    names: list[str] = []
    with spied(lambda launcher: names.append(launcher.name)):
        got = function(*(t.to(device) for t in given))
    want = function(*(t.astype("float64") for t in given))
    assert_close(got.to("cpu"), want.numpy(), length=length)
    return names


@pytest.mark.parametrize(("n", "blocks"), [(16392, 2), (40000, 4), (131072, 8)])
def test_lengths(device: str, rng: np.random.Generator, n: int, blocks: int) -> None:
    x = ruda.asarray(rng.standard_normal((3, n)), dtype="bfloat16")
    names = check(F.softmax, device, x, length=n)
    assert [name.rsplit("_", 1)[1] for name in names] == [f"cluster{blocks}"]


def test_more_rows_than_clusters(device: str, rng: np.random.Generator) -> None:
    x = ruda.asarray(rng.standard_normal((40, 20000)), dtype="bfloat16")
    w, b = (ruda.asarray(rng.standard_normal(20000), dtype="float32") for _ in range(2))
    names = check(F.layer_norm, device, x, w, b, length=20000)
    assert any("cluster" in name for name in names)


@pytest.mark.parametrize(
    ("rows", "n", "dtype", "kept"),
    [
        (3, 100000, "bfloat16", "cluster8_keeps_abreast2"),
        (2, 65536, "bfloat16", "cluster2_keeps_abreast2"),
        (5, 40000, "float32", "cluster4_keeps_abreast2"),
    ],
)
def test_rows_abreast_have_the_same_columns(
    device: str, rng: np.random.Generator, rows: int, n: int, dtype: str, kept: str
) -> None:
    x = ruda.asarray(rng.standard_normal((rows, n)) + 3, dtype="bfloat16")
    w, b = (ruda.asarray(rng.standard_normal(n), dtype=dtype) for _ in range(2))
    names = check(F.layer_norm, device, x, w, b, length=n)
    assert [name.endswith(kept) for name in names] == [True], names


def test_rows_through_strides(device: str, rng: np.random.Generator) -> None:
    x = ruda.asarray(rng.standard_normal((2, 3, 18000)), dtype="bfloat16")
    names = check(lambda t: F.softmax(t.permute(1, 0, 2)[::-1]), device, x, length=18000)
    assert any("cluster" in name for name in names)


def test_not_a_number_spreads_over_the_row_alone(device: str) -> None:
    x = np.zeros((2, 40000), np.float32)
    x[1, 39999] = np.nan
    found = F.softmax(ruda.asarray(x, dtype="bfloat16").to(device)).to("cpu").numpy()
    assert np.isfinite(found[0].astype(np.float32)).all()
    assert np.isnan(found[1].astype(np.float32)).all()


def test_backward(device: str, rng: np.random.Generator) -> None:
    x = ruda.asarray(rng.standard_normal((2, 20000)), dtype="bfloat16")

    def slope(t: Any) -> Any:
        _, pull = ruda.vjp(F.softmax, t)
        return pull(t)[0]

    assert any("cluster" in name for name in check(slope, device, x, length=20000))


@pytest.mark.parametrize(
    ("n", "dtype"), [(9000, "bfloat16"), (9000, "float32"), (40000, "bfloat16")]
)
def test_sums_over_rows(device: str, rng: np.random.Generator, n: int, dtype: str) -> None:
    x, seed = (ruda.asarray(rng.standard_normal((7, n)), dtype=dtype) for _ in range(2))
    w, b = (ruda.asarray(rng.standard_normal(n), dtype="float32") for _ in range(2))
    names: list[str] = []
    found = []
    for place in (lambda t: t.to(device), lambda t: t.astype("float64")):
        with spied(lambda launcher: names.append(launcher.name)):
            _, pull = ruda.vjp(F.layer_norm, *(place(t) for t in (x, w, b)))
            found.append([t.to("cpu") for t in pull(place(seed))])
    shared = ("cluster", "piped")
    assert any("backward" in name and any(s in name for s in shared) for name in names)
    for got, want in zip(*found, strict=True):
        assert_close(got, want.numpy(), length=n)


# Kept by a part of a warp, by a warp, by a block, by a cluster; rows that fill no thread's packs.
@pytest.mark.parametrize("n", [24, 250, 1000, 9001, 20004, 40000])
def test_far_from_zero(device: str, rng: np.random.Generator, n: int) -> None:
    far = 1e4
    x = (rng.standard_normal((3, n)) + far).astype(np.float32)
    x[1] = far
    x[2, : n // 2] = 0
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    got = F.layer_norm(ruda.asarray(x, device=device)).to("cpu").numpy()
    # The mean is rounded once for all and may be off by two steps; squares do not cancel.
    step = far * np.finfo(np.float32).eps
    assert np.abs(got - want)[0].max() < 2 * step
    np.testing.assert_array_less(np.abs(got[1]), 2 * step / np.sqrt(1e-5))
    np.testing.assert_allclose(got[2], want[2], rtol=1e-5, atol=1e-5)
