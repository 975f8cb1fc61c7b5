"""Rotary positions at the size that a model has, against the CPU in float64."""

from __future__ import annotations

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.testing import assert_close


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_turns_there_and_back(device: str, dtype: str, interleaved: bool) -> None:
    rng = np.random.default_rng(0)
    x, seed = (
        ruda.asarray(rng.standard_normal((2, 1000, 12, 128), np.float32), dtype=dtype)
        for _ in range(2)
    )
    turn = ruda.asarray(rng.standard_normal((1000, 1, 64)))
    angles = [ruda.cos(turn).astype("float32"), ruda.sin(turn).astype("float32")]
    found = []
    for place in (lambda t: t.to(device), lambda t: t.astype("float64")):
        given = [place(t) for t in (x, *angles)]
        out, pull = ruda.vjp(lambda x, *a: F.apply_rotary(x, *a, interleaved), *given)
        found.append([t.to("cpu") for t in (out, *pull(place(seed)))])
    for got, want in zip(*found, strict=True):
        assert_close(got, want.numpy(), length=2 * seed.size // got.size)


@pytest.mark.parametrize("interleaved", [False, True])
def test_heads_of_a_transposed_view(device: str, interleaved: bool) -> None:
    rng = np.random.default_rng(1)
    x = ruda.asarray(rng.standard_normal((3, 257, 5, 64), np.float32), dtype="bfloat16")
    turn = ruda.asarray(rng.standard_normal((257, 32), np.float32))
    angles = [ruda.cos(turn), ruda.sin(turn)]
    got = F.apply_rotary(
        x.to(device).permute(0, 2, 1, 3), *(t.to(device) for t in angles), interleaved
    )
    want = F.apply_rotary(
        x.astype("float64").permute(0, 2, 1, 3), *(t.astype("float64") for t in angles), interleaved
    )
    assert_close(got.to("cpu"), want.numpy(), length=2)
