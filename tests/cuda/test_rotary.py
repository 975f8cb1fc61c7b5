"""Rotary positions on an emulated GPU: layouts of operands, dtypes, shapes without packs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.testing import assert_close

# Of x and of the angles; rows that share angles stand before, behind and between the others.
SHAPES = [
    ((2, 3, 37, 16), (37, 8)),
    ((2, 40, 3, 16), (40, 1, 8)),
    ((3, 2, 5, 32), (3, 1, 5, 16)),
    ((5, 6), (1, 3)),
    ((16,), (8,)),
]


def operands(rng: Any, shape: Any, angles: Any, dtype: str) -> list[ruda.Tensor]:
    """x, cosines and sines on the CPU; of a half x the angles are float32."""
    x = ruda.asarray(rng.standard_normal(shape), dtype=dtype)
    turn = ruda.asarray(rng.standard_normal(angles), dtype="float64")
    beside = "float32" if dtype == "bfloat16" else dtype
    return [x, ruda.cos(turn).astype(beside), ruda.sin(turn).astype(beside)]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_forward_and_backward(
    device: str, rng: np.random.Generator, dtype: str, interleaved: bool
) -> None:
    for shape, angles in SHAPES if dtype == "bfloat16" else SHAPES[:1]:
        given = operands(rng, shape, angles, dtype)
        seed = ruda.asarray(rng.standard_normal(shape), dtype=dtype)
        found = []
        for place in (lambda t: t.to(device), lambda t: t.astype("float64")):
            turned = [place(t) for t in given]
            out, pull = ruda.vjp(lambda x, *a: F.apply_rotary(x, *a, interleaved), *turned)
            found.append([t.to("cpu") for t in (out, *pull(place(seed)))])
        for got, want in zip(*found, strict=True):
            assert_close(got, want.numpy(), length=max(2, got.size and seed.size // got.size))


def test_views(device: str, rng: np.random.Generator) -> None:
    x, cos, sin = operands(rng, (2, 9, 4, 24), (9, 8), "float32")
    heads, want = (t.permute(0, 2, 1, 3)[..., :16] for t in (x.to(device), x))
    for interleaved in (False, True):
        got = F.apply_rotary(heads[..., ::-1], cos.to(device), sin.to(device), interleaved)
        wanted = F.apply_rotary(want[..., ::-1], cos, sin, interleaved)
        assert_close(got.to("cpu"), wanted.numpy(), length=2)
    angles = [t[:, None] for t in (cos, sin)]
    partial = F.apply_rotary(x.to(device)[:, :, 1:3], *(t.to(device) for t in angles))
    assert_close(partial.to("cpu"), F.apply_rotary(x[:, :, 1:3], *angles).numpy(), length=2)


def test_nothing_is_launched_for_no_rows(device: str) -> None:
    angles = ruda.ones((4, 2), device=device)
    assert F.apply_rotary(ruda.ones((0, 4, 4), device=device), angles, angles).shape == (0, 4, 4)
