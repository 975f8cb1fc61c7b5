"""Columns of rows that begin anywhere, kept in shared memory by clusters, on an emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.launch import spied
from ruda.testing import assert_close


def of(rng: np.random.Generator, dtype: str, *shape: int) -> ruda.Tensor:
    return ruda.asarray(rng.standard_normal(shape), dtype=dtype)


@pytest.mark.parametrize(
    ("rows", "n", "dtype", "beside", "kept"),
    [
        (9, 20001, "bfloat16", "bfloat16", "cluster2_keeps_skewed_abreast2"),
        (9, 50257, "bfloat16", "bfloat16", "cluster4_keeps_skewed_abreast2"),
        (9, 40002, "bfloat16", "float32", "cluster4_keeps_skewed_abreast2"),
        (5, 20003, "float16", "float16", "cluster2_keeps_skewed_abreast2"),
        (5, 16385, "bfloat16", "bfloat16", "held512x4x8_r11_keeps_skewed"),
        (3, 32774, "bfloat16", "bfloat16", "cluster2_keeps_skewed_abreast3"),
        (3, 10001, "float32", "float32", "cluster2_keeps_skewed_abreast2"),
        (50, 1001, "bfloat16", "bfloat16", "held32x4x8_r11_skewed"),
        (70, 2047, "bfloat16", "bfloat16", "held64x4x8_r11_keeps_skewed"),
        (21, 5001, "bfloat16", "float32", "held256x4x8_r11_skewed"),
        (21, 12289, "bfloat16", "bfloat16", "held512x4x8_r11_keeps_skewed"),
    ],
)
def test_norms(
    device: str,
    rng: np.random.Generator,
    rows: int,
    n: int,
    dtype: str,
    beside: str,
    kept: str,
) -> None:
    x, w, b = of(rng, dtype, rows, n), of(rng, beside, n), of(rng, beside, n)
    names: list[str] = []
    with spied(lambda launcher: names.append(launcher.name)):
        got = F.layer_norm(*(t.to(device) for t in (x, w, b)))
    want = F.layer_norm(*(t.astype("float64") for t in (x, w, b)))
    assert [name.endswith(kept) for name in names] == [True], names
    assert_close(got.to("cpu"), want.numpy(), length=n)
    check_root(device, x, w)


def check_root(device: str, x: Any, w: Any) -> None:
    got = F.rms_norm(*(t.to(device) for t in (x, w)))
    want = F.rms_norm(*(t.astype("float64") for t in (x, w)))
    assert_close(got.to("cpu"), want.numpy(), length=x.shape[-1])


def test_blocks_have_rows_that_begin_alike(device: str, rng: np.random.Generator) -> None:
    # More rows than clusters that run at a time, and not a multiple of a pack.
    x, w, b = (of(rng, "bfloat16", *shape, 20003) for shape in ((61,), (), ()))
    check_root(device, x, w)
    got = F.layer_norm(*(t.to(device) for t in (x, w, b)))
    want = F.layer_norm(*(t.astype("float64") for t in (x, w, b)))
    assert_close(got.to("cpu"), want.numpy(), length=20003)
