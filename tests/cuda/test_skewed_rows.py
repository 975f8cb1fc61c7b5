"""Rows that begin at no multiple of a pack, on an emulated GPU: read by packs all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.launch import spied
from ruda.ops.add_norm import add_layer_norm
from ruda.testing import assert_close


def check(function: Any, device: str, *given: Any) -> None:
    """Compare with the CPU in float64; the kernel has to be one of skewed rows."""
    names: list[str] = []
    with spied(lambda launcher: names.append(launcher.name)):
        got = function(*(t.to(device) for t in given))
    want = function(*(t.astype("float64") if t.dtype.is_floating else t for t in given))
    assert any("skewed" in name for name in names)
    outs = zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), strict=True)
    for g, w in outs:
        assert_close(g.to("cpu"), w.numpy(), length=given[0].shape[-1])


def of(rng: np.random.Generator, dtype: str, *shape: int) -> ruda.Tensor:
    return ruda.asarray(rng.standard_normal(shape), dtype=dtype)


# Kept by a warp, by a block, by a cluster; too long to be kept.
@pytest.mark.parametrize("n", [517, 1001, 1002, 9001, 20001, 300001])
def test_lengths(device: str, rng: np.random.Generator, n: int) -> None:
    x, w, b = of(rng, "bfloat16", 9, n), of(rng, "bfloat16", n), of(rng, "bfloat16", n)
    check(F.softmax, device, x)
    check(F.layer_norm, device, x, w, b)


@pytest.mark.parametrize(
    ("dtype", "beside"), [("float32", "float32"), ("float16", "float32"), ("float64", "float64")]
)
def test_dtypes(device: str, rng: np.random.Generator, dtype: str, beside: str) -> None:
    n = 1003
    x, y, w, b = of(rng, dtype, 5, n), of(rng, dtype, 5, n), of(rng, beside, n), of(rng, beside, n)
    check(F.rms_norm, device, x, w)
    check(add_layer_norm, device, x, y, w, b)


def test_losses(device: str, rng: np.random.Generator) -> None:
    x = of(rng, "bfloat16", 5, 1001)
    target = ruda.asarray(np.array([0, 1000, -100, 3, 7]))
    weight = of(rng, "float32", 1001) ** 2

    def loss(x: Any, target: Any, weight: Any) -> Any:
        wide = "float64" if x.dtype == "float64" else "float32"
        more: dict[str, Any] = {"label_smoothing": 0.1, "weight": weight.astype(wide)}
        return F.cross_entropy(x, target, reduction="none", **more)

    check(loss, device, x, target, weight)
    check(lambda x, t: F.cross_entropy(x, t, reduction="none"), device, x, target)


def test_what_lies_around_the_rows_is_left_alone(device: str, rng: np.random.Generator) -> None:
    wide = rng.standard_normal((4, 1019))
    wide[:, :8] = wide[:, -8:] = np.nan
    names: list[str] = []
    with spied(lambda launcher: names.append(launcher.name)):
        x = ruda.asarray(wide, dtype="bfloat16", device=device)[:, 8:-8]
        found = F.layer_norm(x).to("cpu").numpy().astype(np.float64)
    assert any("skewed" in name for name in names)
    assert np.isfinite(found).all()


def test_sums_over_rows_stay_as_they_are(device: str, rng: np.random.Generator) -> None:
    x, w, seed = of(rng, "float32", 7, 1001), of(rng, "float32", 1001), of(rng, "float32", 7, 1001)
    found = []
    for place in (lambda t: t.to(device), lambda t: t.astype("float64")):
        _, pull = ruda.vjp(F.rms_norm, place(x), place(w))
        found.append([t.to("cpu") for t in pull(place(seed))])
    for got, want in zip(*found, strict=True):
        assert_close(got, want.numpy(), length=1001)


@pytest.mark.parametrize(
    ("n", "held"), [(513, "held16x4"), (1001, "held32x4"), (5003, "held256x3")]
)
def test_gradients_of_losses_keep_their_rows(
    device: str, rng: np.random.Generator, n: int, held: str
) -> None:
    x, target = of(rng, "bfloat16", 9, n), ruda.asarray(np.array([0, n - 1, -100] * 3))
    names: list[str] = []

    def slope(x: Any, target: Any) -> Any:
        _, pull = ruda.vjp(lambda x: F.cross_entropy(x, target, reduction="none"), x)
        return pull(ruda.ones((9,), dtype="float32", device=x.device).astype(x.dtype))[0]

    with spied(lambda launcher: names.append(launcher.name)):
        found = slope(x.to(device), target.to(device))
    assert any(f"{held}x8_r11_skewed" in name for name in names), names
    want = slope(x.astype("float64"), target).numpy()
    assert_close(found.to("cpu"), want, length=n)
