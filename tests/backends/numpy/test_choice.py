"""When kernels are chosen, and who pays for numba."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import ruda
from ruda.backends.numpy import kernels
from ruda.ops.table import TABLE
from tests.backends.numpy.pairs import normal

SMALL = """
import sys, ruda, ruda.nn.functional as F
from ruda import nn, optim
model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10))
step = optim.AdamW(model.parameters())
x = ruda.ones((32, 64))
for _ in range(3):
    F.cross_entropy(model(x), ruda.zeros((32,), dtype="int32")).backward()
    step.step()
{}
assert "numba" not in sys.modules and "threadpoolctl" not in sys.modules
"""
LARGE = "F.gelu(ruda.ones((1 << 20,)))"


def run(code: str, setting: str = "auto") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RUDA_CPU_KERNELS": setting}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_small_program_never_imports_numba() -> None:
    result = run(SMALL.format(""))
    assert result.returncode == 0, result.stderr


def test_off_means_numpy_alone() -> None:
    result = run(SMALL.format(LARGE), "off")
    assert result.returncode == 0, result.stderr


def test_an_unknown_setting_raises() -> None:
    result = run(SMALL.format(LARGE), "sometimes")
    assert "RUDA_CPU_KERNELS: unknown value. Got 'sometimes'" in result.stderr


def test_without_the_extra_numpy_runs_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_installed", lambda: False)
    x = ruda.asarray(normal(1 << 18))
    plan = TABLE["gelu"].plan((x.spec,), ())
    assert "kernels" not in plan.run.__module__
    expected = ruda.nn.functional.gelu(x).numpy()
    np.testing.assert_allclose(plan.run(x.handle).array, expected, rtol=1e-5, atol=1e-6)


def test_a_kernel_that_does_not_compile_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    pytest.importorskip("threadpoolctl")
    from ruda.backends.numpy.kernels import pointwise
    from ruda.backends.numpy.kernels.compiler import Kernel

    def broken(x, out):
        out[0] = x.no_such_attribute

    patched = {**pointwise.KERNELS, "gelu": Kernel(broken, "void(f4[::1], f4[::1])")}
    monkeypatch.setattr(pointwise, "KERNELS", patched)
    with pytest.raises(numba.core.errors.TypingError):
        TABLE["gelu"].plan((ruda.asarray(normal(1 << 18)).spec,), ())


def test_other_dtypes_stay_with_numpy() -> None:
    for dtype in ("float64", "float16", "int32"):
        x = ruda.ones((1 << 18,), dtype=dtype)
        run = TABLE["silu"].plan((x.spec,), ()).run
        assert "kernels" not in run.__module__


def test_small_attention_and_convolutions_have_kernels() -> None:
    """Their references are loops over heads, and BLAS with all its threads."""
    pytest.importorskip("numba")
    pytest.importorskip("threadpoolctl")
    q, x, w = ruda.ones((8, 4, 16, 16)), ruda.ones((16, 4, 8, 8)), ruda.ones((4, 4, 3, 3))
    TABLE["attention"].clear()
    TABLE["conv"].clear()
    ruda.nn.functional.attention(q, q, q)
    ruda.nn.functional.conv2d(x, w)
    for row in ("attention", "conv"):
        plans = [*TABLE[row].hot.values(), *TABLE[row].cold.values()]
        assert plans and all("numpy.kernels" in plan.run.__module__ for plan in plans)
