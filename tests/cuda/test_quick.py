"""Activations of half types by quick functions: every number there is, on an emulated GPU."""

from __future__ import annotations

import numpy as np
import pytest

import ruda
from ruda.core.dtypes import as_dtype, finfo
from ruda.ops.reference import smooth

# What quick functions take for nothing: 2^-126, times the largest number that is not yet 0 for it.
_NOTHING = 2.0**-126 * 128


def check(device: str, dtype: str, name: str) -> None:
    """All numbers of ``dtype``: half a step from the reference in float64, and a hundredth."""
    words = np.arange(1 << 16, dtype=np.uint16)
    x = words.view(as_dtype(dtype).numpy)
    with np.errstate(all="ignore"):
        want = getattr(smooth, name)(x.astype(np.float64))
        got = getattr(ruda, name)(ruda.asarray(x, device=device)).to("cpu")
        got, same = got.astype("float64").numpy(), finfo(as_dtype(dtype))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    real = np.isfinite(want) & (np.abs(want) <= same.max)
    step = np.maximum(np.abs(want[real]) * same.eps, same.tiny * same.eps)
    assert (np.abs(got[real] - want[real]) <= 0.51 * step + _NOTHING).all()


@pytest.mark.parametrize("name", ["sigmoid", "silu"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_number(device: str, dtype: str, name: str) -> None:
    check(device, dtype, name)


def test_fused_activations_have_the_same_bits(device: str) -> None:
    values = np.random.default_rng(0).standard_normal((2, 2, 500))
    gate, up = (ruda.asarray(v, dtype="bfloat16", device=device) for v in values)

    def block(gate: ruda.Tensor, up: ruda.Tensor) -> ruda.Tensor:
        return ruda.silu(gate) * up + ruda.sigmoid(up)

    np.testing.assert_array_equal(
        ruda.compile(block)(gate, up).to("cpu").numpy(), block(gate, up).to("cpu").numpy()
    )
