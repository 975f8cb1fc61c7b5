"""Products of matrices on a GPU: large ones, every dtype and layout, precisions, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.blas import cublaslt, tune
from ruda.core.devices import client as client_of
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close
from tests.cuda.test_products import FLOATS, VIEWS, exact, on


def check(got: ruda.Tensor, x: ruda.Tensor, y: ruda.Tensor, bias: Any = 0) -> None:
    want = np.matmul(exact(x), exact(y)) + bias
    assert_close(got.to("cpu"), want, length=x.shape[-1], name="matmul")


@pytest.fixture(params=["cublasLt", "cuBLAS"])
def engine(request: pytest.FixtureRequest, device: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each library in turn; the one of CuPy as where nvmath-python is not installed."""
    if request.param == "cuBLAS":
        monkeypatch.setattr(cublaslt, "library", lambda client: None)
    elif cublaslt.library(client_of(device)) is None:
        pytest.skip("cuBLASLt comes with nvmath-python, without which products go to cuBLAS")
    clear_plans()
    yield request.param
    clear_plans()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", VIEWS)
def test_views(device: str, engine: str, name: str, dtype: str) -> None:
    left, right, show, _ = VIEWS[name]
    x, y = show(on(device, left, dtype), on(device, right, dtype, 1))
    check(x @ y, x, y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_large_products(device: str, engine: str, dtype: str) -> None:
    x, w, b = on(device, (6, 300, 1000), dtype), on(device, (700, 1000), dtype, 1), None
    b = on(device, (700,), dtype, 2)
    check(F.linear(x, w, b), x, w.mT, exact(b))
    check(x[:, 1:] @ w.mT, x[:, 1:], w.mT)


@pytest.mark.parametrize(("given", "out"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_out_dtype(device: str, engine: str, given: str, out: str) -> None:
    x, y = on(device, (64, 96), given), on(device, (96, 32), given, 1)
    got = ruda.matmul(x, y, out_dtype=out)
    assert got.dtype == out
    check(got, x, y)


@pytest.mark.parametrize(("m", "n", "k"), [(256, 512, 1024), (33, 17, 65), (1, 4096, 4096)])
def test_integers(device: str, m: int, n: int, k: int) -> None:
    x, w = on(device, (m, k), "int8"), on(device, (n, k), "int8", 1)
    want = x.numpy().astype("i4") @ w.numpy().astype("i4").T
    np.testing.assert_array_equal(ruda.matmul(x, w.mT, out_dtype="int32").numpy(), want)
    np.testing.assert_array_equal((x @ w.mT).numpy(), want.astype("i1"))
    y = w.mT.copy()
    np.testing.assert_array_equal(ruda.matmul(x, y, out_dtype="int32").numpy(), want)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 13, 16])
@pytest.mark.parametrize(("wide", "depth"), [(4096, 14336), (14336, 4096), (12344, 1032)])
@pytest.mark.parametrize("transposed", [False, True])
def test_thin_products(
    device: str, dtype: str, rows: int, wide: int, depth: int, transposed: bool
) -> None:
    x = on(device, (rows, depth), dtype)
    w = on(device, (wide, depth) if transposed else (depth, wide), dtype, 1)
    y = w.mT if transposed else w
    got = x @ y
    check(got, x, y)
    check(y.mT @ x.mT, y.mT, x.mT)
    for _ in range(3):
        np.testing.assert_array_equal((x @ y).numpy(), got.numpy())
    if transposed:
        b = on(device, (wide,), dtype, 2)
        check(F.linear(x, w, b), x, y, exact(b))


def test_tf32_is_asked_for_and_seen(device: str, engine: str) -> None:
    x, y = on(device, (512, 2048), "float32"), on(device, (2048, 512), "float32", 1)
    want = exact(x) @ exact(y)
    plain = np.abs((x @ y).numpy() - want).max()
    rough = np.abs(ruda.matmul(x, y, precision="tf32").numpy() - want).max()
    assert plain < 1e-3 < rough < 1.0
    with ruda.precision(matmul="tf32"):
        assert ruda.explain_precision(device).splitlines()[0] == "matmul: tf32"


def test_gradients_equal_those_of_the_cpu(device: str, engine: str) -> None:
    found = []
    for where in ("cpu", device):
        x = on(where, (4, 40, 96), "float32").requires_grad_()
        w = on(where, (64, 96), "float32", 1).requires_grad_()
        b = on(where, (64,), "float32", 2).requires_grad_()
        (F.linear(x, w, b) ** 2).mean().backward()
        found.append([t.grad.to("cpu") for t in (x, w, b)])
    for got, want in zip(found[1], found[0], strict=True):
        assert_close(got, want.numpy(), length=160, name="grad")


def test_the_chosen_algorithm_is_timed_once_and_kept(
    device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    if cublaslt.library(client_of(device)) is None:
        pytest.skip("cuBLASLt comes with nvmath-python, without which products go to cuBLAS")
    monkeypatch.setenv("RUDA_CACHE", str(tmp_path))
    monkeypatch.setenv("RUDA_AUTOTUNE", "on")
    clear_plans()
    x, y = on(device, (520, 1032), "bfloat16"), on(device, (1032, 776), "bfloat16", 1)
    check(x @ y, x, y)
    files = list(tmp_path.rglob("tuned/*.json"))
    assert len(files) == 1
    monkeypatch.setenv("RUDA_AUTOTUNE", "cached")
    monkeypatch.setattr(tune, "_measured", lambda *_: pytest.fail("timed again"))
    clear_plans()
    check(x @ y, x, y)
    clear_plans()
