"""Convolutions of few channels with a stride of two on an emulated GPU, by images half as large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.dtypes import as_dtype
from ruda.ops import conv_rows as rows
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close
from tests.cuda.test_compile import ARCHITECTURES, spills

compiler = pytest.importorskip("ruda.backends.cuda.compiler")
conv = pytest.importorskip("ruda.backends.cuda.dnn.conv")
stem = pytest.importorskip("ruda.backends.cuda.dnn.stem")


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Small images as well, and kernels of our own where cuDNN would be."""
    monkeypatch.setattr(stem, "LEAST", 1)
    monkeypatch.setattr(conv, "_vendor_lacks", lambda dtype: None)

    def refused(*_: Any) -> Any:
        raise conv.Unsupported("emulated")

    monkeypatch.setattr(conv, "_bound", refused)
    clear_plans()
    yield
    clear_plans()


# Kernels of odd and even sizes, padding on one side, planes that the last window does not reach.
@pytest.mark.parametrize(
    ("size", "channels", "kernel", "padding"),
    [
        ((9, 12), 3, (7, 7), ((3, 3), (3, 3))),
        ((8, 9), 4, (3, 4), ((0, 0), (1, 2))),
        ((10, 7), 1, (5, 3), ((2, 0), (0, 1))),
    ],
)
def test_both_ways(
    device: str, everywhere: None, size: Any, channels: int, kernel: Any, padding: Any
) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, *size, channels)), rng.standard_normal((8, *kernel, channels))
    attrs = ((2, 2), padding, (1, 1), 1, "nhwc", "auto")
    half = as_dtype("bfloat16").numpy
    x, w = (a.astype(half) for a in (x, w))
    windows = [(n + sum(p) - k) // 2 + 1 for n, k, p in zip(size, kernel, padding, strict=True)]
    g, found = rng.standard_normal((2, *windows, 8)).astype(half), []
    for where, dtype in ((device, "bfloat16"), ("cpu", "float64")):
        a, b = (ruda.asarray(t, device=where).astype(dtype) for t in (x, w))
        # The weight lies with its channels first, as layers keep it.
        b = b.permute_dims((0, 3, 1, 2)).copy().permute_dims((0, 2, 3, 1))
        y = rows.conv(a, b, *attrs)
        given = ruda.asarray(g, device=where).astype(dtype)
        found.append([y, rows.weight_backward(given, a, b.shape, *attrs)])
    for got, want in zip(*found, strict=True):
        scale = float(np.abs(want.numpy()).max())
        assert_close(got.to("cpu"), want.numpy(), length=4, scale=scale)


def test_what_is_made_half_as_large() -> None:
    attrs = ((2, 2), ((3, 3), (3, 3)), (1, 1), 1, "nhwc", "auto")
    shapes = ((256, 224, 224, 3), (64, 7, 7, 3), (256, 112, 112, 64))
    how = stem.halved(*shapes, ruda.bfloat16, attrs)
    assert how.image == (256, 115, 115, 16)
    assert how.kernel == (64, 4, 4, 16)
    assert stem.halved(*shapes, ruda.float32, attrs) is None
    assert stem.halved(*shapes, ruda.bfloat16, (*attrs[:5], "vendor")) is None
    assert stem.halved(*shapes, ruda.bfloat16, ((2, 1), *attrs[1:])) is None


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_register_is_spilt(arch: str) -> None:
    for pack in (True, False):
        for channels in (1, 3):
            name, source = stem.text(pack, ruda.bfloat16, channels)
            _, log = compiler.compile_cubin(source, name, arch)
            assert not any(spills(log).values()), name
