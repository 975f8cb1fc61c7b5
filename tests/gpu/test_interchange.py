"""Memory exchanged with CuPy, PyTorch, JAX and other processes, without a copy."""

from __future__ import annotations

import base64
import gc
import importlib
import os
import pickle
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import cuda


def library(name: str) -> Any:
    """Another library, which may warn of its own affairs while it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError:
            return None


# JAX takes three quarters of the GPU otherwise, which other workers use as well.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Before any test: one that is interrupted by an error in the middle of its import stays broken.
torch, jax, cupy = (library(name) for name in ("torch", "jax", "cupy"))
# What they warn of when they are used is theirs as well.
pytestmark = pytest.mark.filterwarnings(r"ignore:::(torch|jax|cupy|cupyx)(\.|$)")

DTYPES = ["bool", "int8", "int32", "int64", "float16", "float32", "float64", "complex64"]


def on(device: str, dtype: str = "float32") -> ruda.Tensor:
    return ruda.asarray(np.arange(12).reshape(3, 4) % 3, device=device).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cupy_both_ways(device: str, dtype: str) -> None:
    x = on(device, dtype)
    for source in (x, x.T, x[1:, ::2]):
        there = cupy.from_dlpack(source)
        assert there.data.ptr == source.data_ptr()
        np.testing.assert_array_equal(there.get(), source.numpy())
        seen = cupy.asarray(source)
        assert seen.data.ptr == source.data_ptr()
        back = ruda.from_dlpack(there)
        assert back.data_ptr() == source.data_ptr()
        assert back.shape == source.shape
        np.testing.assert_array_equal(ruda.asarray(there).numpy(), source.numpy())


def test_order_with_cupys_stream(device: str) -> None:
    x = ruda.zeros(1 << 26, device=device)
    for i in range(3):
        y = x
        for _ in range(30):
            y = y + 1.0
        there = cupy.from_dlpack(y)
        there += i
        z = ruda.from_dlpack(there) * 2.0
        assert z[:: 1 << 20].numpy().tolist() == [2.0 * (30 + i)] * 64
        del y, there, z


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_torch_both_ways(device: str, dtype: str) -> None:
    if torch is None or not torch.cuda.is_available():
        pytest.skip("the other side is PyTorch with CUDA, which ruda does not depend on")
    x = on(device, dtype)
    there = torch.from_dlpack(x)
    assert there.data_ptr() == x.data_ptr()
    back = ruda.from_dlpack(there)
    assert back.data_ptr() == x.data_ptr()
    assert str(back.dtype) == str(x.dtype)
    there.zero_()
    torch.cuda.synchronize()
    assert not np.any(back.numpy().astype("complex64"))


def test_jax_both_ways(device: str) -> None:
    if jax is None or jax.default_backend() != "gpu":
        pytest.skip("the other side is JAX with CUDA, which ruda does not depend on")
    x = on(device)
    there = jax.dlpack.from_dlpack(x)
    np.testing.assert_array_equal(np.asarray(there), x.numpy())
    back = ruda.from_dlpack(there * 2)
    np.testing.assert_array_equal(back.numpy(), 2 * x.numpy())


def test_memory_returns_when_consumers_are_done(device: str) -> None:
    gc.collect()
    cuda.empty_cache()
    before = cuda.memory_allocated()
    for _ in range(50):
        x = ruda.ones(1 << 20, device=device)
        there = cupy.from_dlpack(x)
        there *= 2
        back = ruda.from_dlpack(there)
        assert back[3].item() == 2
    del x, there, back
    gc.collect()
    cuda.empty_cache()
    assert cuda.memory_allocated() == before


WORKER = """
import base64, pickle, sys, ruda
from ruda import cuda
handles = pickle.loads(base64.b64decode(sys.argv[1]))
x, y = map(cuda.open_memory, handles)
x[0, 0] = 99.0
print((x.sum() + y.sum()).item())
cuda.synchronize()
del x, y
cuda.empty_cache()
"""


def test_another_process_sees_the_same_memory(device: str) -> None:
    x = ruda.asarray(np.arange(12, dtype="float32").reshape(3, 4), device=device)
    y = ruda.ones(1 << 22, device=device)[5:25:2]
    handles = (cuda.share_memory(x.T), cuda.share_memory(y))
    text = base64.b64encode(pickle.dumps(handles)).decode()
    done = subprocess.run(
        [sys.executable, "-c", WORKER, text], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "175.0", done.stderr
    assert x[0, 0].item() == 99


def test_foreign_memory_in_gradients(device: str) -> None:
    w = ruda.from_dlpack(cupy.arange(5, dtype="float32")).requires_grad_()
    (w * w).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * np.arange(5))
