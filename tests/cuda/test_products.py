"""Products of matrices: the arguments of the libraries, and the kernels of our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.blas import cublaslt, gemm, integer, skinny
from ruda.core.dtypes import as_dtype
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close
from tests.cuda.libraries.cublaslt import CublasLt
from tests.cuda.test_compile import spills

compiler = pytest.importorskip("ruda.backends.cuda.compiler")

FLOATS = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")


@pytest.fixture
def library(client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[CublasLt]:
    """A cuBLASLt of NumPy in the place of the real one."""
    fake = CublasLt()
    made = cublaslt.Library(client, fake)
    monkeypatch.setattr(cublaslt, "library", lambda client: made)
    clear_plans()
    yield fake
    clear_plans()
    assert not any(hasattr(o, "compute") for o in fake.objects.values()), "descriptors are left"
    for address in made.workspaces.values():
        client.driver.release(address)


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if dtype.startswith(("int", "uint")):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)) if dtype.startswith("complex") else x


def on(device: str, shape: tuple[int, ...], dtype: str, seed: int = 0) -> ruda.Tensor:
    return ruda.asarray(values(shape, dtype, seed), dtype=dtype, device=device)


def exact(x: ruda.Tensor) -> Any:
    a = x.numpy()
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def check(got: ruda.Tensor, x: ruda.Tensor, y: ruda.Tensor, bias: Any = 0) -> None:
    want = np.matmul(exact(x), exact(y)) + bias
    assert_close(got.to("cpu"), want, length=x.shape[-1], name="matmul")


# What is done to two dense tensors before they are multiplied, and the calls that it takes.
VIEWS = {
    "plain": ((5, 7), (7, 3), lambda x, y: (x, y), 1),
    "both transposed": ((7, 5), (3, 7), lambda x, y: (x.mT, y.mT), 1),
    "rows of a wider matrix": ((5, 9), (9, 3), lambda x, y: (x[:, 1:8], y[2:, :]), 1),
    "every other row": ((10, 7), (7, 3), lambda x, y: (x[::2], y), 1),
    "every other column": ((5, 14), (7, 6), lambda x, y: (x[:, ::2], y[:, ::2]), 1),
    "backwards": ((5, 7), (7, 3), lambda x, y: (x[::-1], y[::-1]), 1),
    "expanded rows": ((1, 7), (7, 3), lambda x, y: (ruda.broadcast_to(x, (5, 7)), y), 1),
    "vectors": ((7,), (7,), lambda x, y: (x, y), 1),
    "vector and matrix": ((7,), (7, 3), lambda x, y: (x, y), 1),
    "a strided vector": ((5, 7), (14,), lambda x, y: (x, y[::2]), 1),
    "a vector backwards": ((5, 7), (7,), lambda x, y: (x, y[::-1]), 1),
    "batch": ((4, 5, 7), (4, 7, 3), lambda x, y: (x, y), 1),
    "shared right side": ((4, 5, 7), (7, 3), lambda x, y: (x, y), 1),
    "shared left side": ((5, 7), (4, 7, 3), lambda x, y: (x, y), 1),
    "shared right side, rows apart": ((5, 4, 7), (7, 3), lambda x, y: (x[:, :3], y), 1),
    "heads": ((2, 5, 3, 7), (2, 7, 3, 4), lambda x, y: (x.swapaxes(1, 2), y.swapaxes(1, 2)), 2),
    "two batch axes": ((2, 3, 5, 7), (2, 3, 7, 4), lambda x, y: (x, y), 1),
    "crossed broadcasting": ((3, 1, 5, 7), (1, 2, 7, 4), lambda x, y: (x, y), 2),
    "many heads": (
        (9, 5, 9, 7),
        (9, 7, 9, 4),
        lambda x, y: (x.swapaxes(1, 2), y.swapaxes(1, 2)),
        1,
    ),
    "a batch backwards": ((4, 5, 7), (4, 7, 3), lambda x, y: (x[::-1], y), 1),
    "transposed in a batch": ((4, 7, 5), (3, 7), lambda x, y: (x.mT, y.mT), 1),
    "one row each": ((4, 1, 7), (4, 7, 1), lambda x, y: (x, y), 1),
    "size one": ((1, 1, 1), (1, 1), lambda x, y: (x, y), 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_multiplied_where_they_lie(device: str, library: CublasLt, name: str) -> None:
    left, right, show, calls = VIEWS[name]
    x, y = show(on(device, left, "float32"), on(device, right, "float32", 1))
    check(x @ y, x, y)
    assert len(library.calls) == calls


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtypes(device: str, library: CublasLt, dtype: str) -> None:
    x, y = on(device, (3, 5, 7), dtype), on(device, (7, 4), dtype, 1)
    got = x @ y
    assert got.dtype == dtype
    check(got, x, y)
    assert library.calls[-1].d.rows == 4
    assert library.calls[-1].d.columns == 15


def test_a_shared_right_side_is_one_large_product(device: str, library: CublasLt) -> None:
    x, y = on(device, (6, 5, 7), "float32"), on(device, (1, 7, 3), "float32", 1)
    check(x @ ruda.broadcast_to(y, (6, 7, 3)), x, y)
    assert [(c.d.columns, c.d.count) for c in library.calls] == [(30, 1)]


@pytest.mark.parametrize(
    ("kernels", "code"),
    [((), 100), (((103, 3),), 103), (((103, 2), (105, 3), (101, 3)), 105), (((99, 3),), 100)],
)
def test_a_kernel_that_is_named_comes_first(
    client: Any, library: CublasLt, kernels: Any, code: int
) -> None:
    x, y = on("cuda:0", (5, 7), "float32"), on("cuda:0", (7, 3), "float32")
    out = ruda.zeros((5, 3), device="cuda:0")
    given = (each.handle.spec for each in (x, y, out))
    gemm.into(client, "matmul", *given, None, kernels=kernels)(
        *(each.handle.address for each in (x, y, out))
    )
    assert library.calls[-1].code == code
    check(out, x, y)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("lead", [(6,), (2, 3), ()])
def test_linear_adds_its_bias(
    device: str, library: CublasLt, dtype: str, lead: tuple[int, ...]
) -> None:
    x, w, b = (
        on(device, (*lead, 7), dtype),
        on(device, (4, 7), dtype, 1),
        on(device, (4,), dtype, 2),
    )
    check(F.linear(x, w, b), x, w.mT, exact(b))
    check(F.linear(x, w), x, w.mT)
    wide = on(device, (8,), dtype, 3)
    check(F.linear(x, w, wide[::2]), x, w.mT, exact(wide)[::2])


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_weight_and_bias(
    device: str, client: Any, library: CublasLt, dtype: str
) -> None:
    x, w, b = (on(device, s, dtype, i) for i, s in enumerate([(2, 3, 7), (4, 7), (4,)]))
    leaves = [w.requires_grad_(), b.requires_grad_()]
    dy = on(device, (2, 3, 4), dtype, 5)
    out = F.linear(x, *leaves)
    library.calls.clear()
    out.backward(dy)
    rows = dy.reshape((6, 4))
    check(w.grad, rows.mT, x.reshape((6, 7)).conj() if dtype.startswith("c") else x.reshape((6, 7)))
    assert_close(b.grad.to("cpu"), exact(rows).sum(0), length=6)
    if not dtype.startswith("c"):
        assert len(library.calls) == 1
    # Rows that do not follow each other go by way of a copy.
    w.grad = None
    F.linear(x, *leaves).backward(dy.permute_dims((1, 0, 2)).contiguous().permute_dims((1, 0, 2)))
    check(w.grad, rows.mT, x.reshape((6, 7)).conj() if dtype.startswith("c") else x.reshape((6, 7)))


def test_what_the_library_is_asked_for(device: str, library: CublasLt) -> None:
    x, y = on(device, (6, 8), "float32"), on(device, (8, 4), "float32", 1)
    x @ y
    assert library.calls[-1].how.compute == 68
    with ruda.precision(matmul="tf32"):
        x @ y
    assert library.calls[-1].how.compute == 77
    h, k = x.astype("float16"), y.astype("float16")
    h @ k
    assert (library.calls[-1].how.compute, library.preferences[-1].sums) == (68, 2)
    with ruda.precision(half_reduction=True, fp16_accumulate=True):
        h @ k
    assert (library.calls[-1].how.compute, library.preferences[-1].sums) == (64, 7)
    assert library.preferences[-1].align5 >= 64
    h[2:] @ k
    assert library.preferences[-1].align5 == 32


@pytest.mark.parametrize(
    ("given", "out_dtype"),
    [
        ("bfloat16", "float32"),
        ("float16", "float64"),
        ("float32", "float16"),
        ("float16", "bfloat16"),
    ],
)
def test_out_dtype(device: str, library: CublasLt, given: str, out_dtype: str) -> None:
    x, y = on(device, (5, 7), given), on(device, (7, 3), given, 1)
    got = ruda.matmul(x, y, out_dtype=out_dtype)
    assert got.dtype == out_dtype
    check(got, x, y)


def test_operands_of_two_dtypes(device: str, library: CublasLt) -> None:
    x, y = on(device, (5, 7), "float32"), on(device, (7, 3), "complex64", 1)
    check(x @ y, x, y)
    z = on(device, (5, 7), "int16")
    got = z.astype("float32") @ on(device, (7, 3), "float64", 1)
    assert got.dtype == "float64"


def test_int8_goes_to_the_library_where_it_lies_as_wanted(device: str, library: CublasLt) -> None:
    x, w = on(device, (32, 64), "int8"), on(device, (16, 64), "int8", 1)
    for y, calls in ((w.mT, 1), (w.reshape(64, 16), 1), (w[:, :63].mT, 1)):
        got = ruda.matmul(x[:, : y.shape[0]], y, out_dtype="int32")
        want = x.numpy().astype("i4")[:, : y.shape[0]] @ y.numpy().astype("i4")
        np.testing.assert_array_equal(got.numpy(), want)
        assert len(library.calls) == calls


@pytest.mark.parametrize("shapes", [((0, 5), (5, 3)), ((4, 0), (0, 3)), ((2, 3, 0), (0, 0))])
def test_zero_sizes(device: str, library: CublasLt, shapes: Any) -> None:
    x, y = (ruda.zeros(s, device=device) for s in shapes)
    want = np.matmul(x.numpy(), y.numpy())
    np.testing.assert_array_equal((x @ y).numpy(), want)
    bias = ruda.ones(y.shape[-1], device=device)
    np.testing.assert_array_equal(F.linear(x, y.mT, bias).numpy(), want + 1)
    assert library.calls == []


@pytest.mark.parametrize(
    ("left", "right", "out_dtype"),
    [
        ("int8", "int8", None),
        ("int8", "int8", "int32"),
        ("uint8", "int16", None),
        ("int64", "int64", None),
        ("int32", "uint32", None),
    ],
)
def test_integers_are_exact_and_wrap(device: str, left: str, right: str, out_dtype: Any) -> None:
    x, y = on(device, (2, 1, 70, 19), left), on(device, (3, 19, 66), right, 1)
    got = ruda.matmul(x, y, out_dtype=out_dtype)
    kind = got.dtype.numpy
    want = np.matmul(x.numpy().astype(kind), y.numpy().astype(kind))
    np.testing.assert_array_equal(got.numpy(), want)


def test_views_of_integers(device: str) -> None:
    x, y, b = (
        on(device, (9, 20), "int32"),
        on(device, (7, 20), "int32", 1),
        on(device, (7,), "int32"),
    )
    flipped = x[::-2, ::-1]
    np.testing.assert_array_equal((flipped @ y.mT).numpy(), flipped.numpy() @ y.numpy().T)
    np.testing.assert_array_equal(
        (y[0, ::2] @ x[0, :10]).numpy(), y.numpy()[0, ::2] @ x.numpy()[0, :10]
    )
    np.testing.assert_array_equal(F.linear(x, y, b).numpy(), x.numpy() @ y.numpy().T + b.numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(("rows", "wide", "depth"), [(1, 80, 256), (5, 48, 328), (16, 72, 264)])
@pytest.mark.parametrize("transposed", [False, True])
def test_thin_products(
    device: str, dtype: str, rows: int, wide: int, depth: int, transposed: bool
) -> None:
    rows = min(rows, 8) if dtype == "float32" else rows
    wide = wide if transposed else 4 * wide
    x, bias = on(device, (rows, depth), dtype), on(device, (wide,), dtype, 2)
    w = on(device, (wide, depth) if transposed else (depth, wide), dtype, 1)
    y = w.mT if transposed else w
    before = len(x.client.driver.launches)
    check(x @ y, x, y)
    check(y.mT @ x.mT, y.mT, x.mT)
    if transposed:
        check(F.linear(x, w, bias), x, y, exact(bias))
    if rows == 1:
        check(x[0] @ y, x[0], y)
    launches = x.client.driver.launches[before:]
    assert sum("skinny" in name for name in launches) >= 2


def test_thin_products_of_addresses_between_leave_it_to_the_library(
    device: str, library: CublasLt
) -> None:
    x, y = on(device, (265,), "bfloat16")[1:257], on(device, (264, 256), "bfloat16", 1).mT
    check(x @ y, x, y)
    assert len(library.calls) == 1
    check(x[:] @ y, x, y)
    assert len(library.calls) == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_library_has_the_thin_products_that_it_does_better(
    device: str, library: CublasLt, dtype: str
) -> None:
    for rows, turned, own in ((1, True, 1), (3, True, dtype == "float32"), (1, False, 0)):
        x, y = on(device, (rows, 256), dtype), on(device, (256, 256), dtype, 1)
        y = y.mT if turned else y
        before = len(library.calls)
        check(x @ y, x, y)
        assert len(library.calls) - before == 1 - own


def test_few_rows_of_an_uneven_wide_operand(device: str) -> None:
    """A warp may have one row or two, the last block fewer than it has warps for."""
    for wide in (43, 97, 150):
        for rows in (1, 2):
            x, w = on(device, (rows, 520), "bfloat16"), on(device, (wide, 520), "bfloat16", 1)
            b = on(device, (wide,), "bfloat16", 2)
            check(F.linear(x, w, b), x, w.mT, exact(b))
            check(w @ x.mT, w, x.mT)
    names = {n for n in x.client.driver.launches if "skinny_few" in n}
    assert any(n.endswith("1x8") for n in names) and any(n.endswith("2x4") for n in names), names


CLASSES = [
    skinny.Kernel(as_dtype(given, "test"), as_dtype(out, "test"), columns, *rest)
    for given, out, *forms in [
        (
            "bfloat16",
            "bfloat16",
            (False, 1, 1, 8),
            (False, 2, 2, 4),
            (False, 2, 2, 8),
            (True, 2, 1, 8),
        ),
        ("float16", "float32", (True, 1, 1, 8)),
        ("float32", "float32", (False, 8, 2, 4), (True, 8, 1, 8), (True, 1, 1, 8)),
    ]
    for columns, *rest in forms
]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_kernels_compile_without_spills(arch: str) -> None:
    int8, int32, int64 = (as_dtype(n, "test") for n in ("int8", "int32", "int64"))
    bfloat16 = as_dtype("bfloat16", "test")
    few = [skinny.Few(bfloat16, bfloat16, n, *more) for n in (1, 2) for more in ((1, 8), (2, 4))]
    sources = [(k.name, k.source()) for k in (*CLASSES, *few)]
    sources += [integer.source(int8, int8, int32, int32), integer.source(*(int64,) * 4)]
    for name, text in sources:
        _, log = compiler.compile_cubin(text, name, arch)
        assert set(spills(log).values()) == {0}, name
