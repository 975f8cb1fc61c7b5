"""Products of matrices against NumPy and, for gradients, PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import DTypeError, ShapeError
from ruda.testing import assert_close, gradcheck

SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((2, 3), (6, 3, 2)),
    ((5, 1, 2, 3), (4, 3, 2)),
    ((1, 2, 3), (1, 3, 4)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((4, 0, 3), (3, 2)),
    ((0, 2, 3), (3, 4)),
]
BITS = ("int8", "uint8", "int16", "int32", "int64")


def complexes(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(shapes: Any, rng: np.random.Generator) -> None:
    x, y = (np.asarray(complexes(rng, *s)) for s in shapes)
    for parts in ((x, y), (x.real.copy(), y), (x.real.copy(), y.real.copy())):
        out = ruda.asarray(parts[0]) @ ruda.asarray(parts[1])
        assert out.is_contiguous()
        assert not out.is_view
        assert_close(out, parts[0] @ parts[1], length=shapes[0][-1])


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_gradient_is_that_of_torch(shapes: Any, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    values = [np.asarray(complexes(rng, *s)) for s in shapes]
    ours = [ruda.tensor(v, requires_grad=True) for v in values]
    theirs = [torch.tensor(v, requires_grad=True) for v in values]
    out, expected = ours[0] @ ours[1], theirs[0] @ theirs[1]
    seed = np.asarray(complexes(rng, *out.shape))
    out.backward(ruda.asarray(seed))
    expected.backward(torch.tensor(seed))
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a.grad, b.grad.numpy(), length=30)


def test_third_order(rng: np.random.Generator) -> None:
    gradcheck(lambda x, y: x @ y, [rng.random((2, 2, 3)), rng.random((3, 2))], order=3)


@pytest.mark.parametrize("layout", ["transposed", "stepped", "reversed", "repeated", "heads"])
def test_layouts(layout: str, rng: np.random.Generator) -> None:
    x = {
        "transposed": rng.random((6, 4)).T,
        "stepped": rng.random((4, 12))[:, ::2],
        "reversed": rng.random((4, 6))[::-1, ::-1],
        "repeated": np.broadcast_to(rng.random(6), (4, 6)),
        "heads": rng.random((4, 3, 5, 6)).transpose(0, 2, 1, 3),
    }[layout]
    weight = rng.random((5, 6)).T
    out = ruda.asarray(x) @ ruda.asarray(weight)
    assert out.is_contiguous()
    assert_close(out, x @ weight, length=6)


def test_half_types_round_once(rng: np.random.Generator) -> None:
    x, y = (ruda.asarray(rng.random((8, 64))).astype("bfloat16") for _ in range(2))
    exact = x.numpy().astype(np.float32) @ y.numpy().astype(np.float32).T
    out = x @ ruda.matrix_transpose(y)
    assert out.dtype == "bfloat16"
    np.testing.assert_array_equal(out.numpy(), exact.astype(out.numpy().dtype))


@pytest.mark.parametrize("first", BITS)
@pytest.mark.parametrize("second", BITS)
def test_integers_wrap_as_in_numpy(first: str, second: str, rng: np.random.Generator) -> None:
    x, y = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max, (40, 40), d, endpoint=True)
        for d in (first, second)
    )
    out = ruda.asarray(x) @ ruda.asarray(y)
    np.testing.assert_array_equal(out.numpy(), x @ y)
    assert out.numpy().dtype == (x @ y).dtype


@pytest.mark.parametrize("length", [3, 1024, 1500])
def test_int8_into_int32(length: int) -> None:
    """The largest sums: exact in float32 up to 1024 terms, in float64 beyond."""
    x = np.full((2, length), -128, np.int8)
    out = ruda.matmul(ruda.asarray(x), ruda.asarray(x.T), out_dtype="int32")
    assert out.dtype == "int32"
    assert (out.numpy() == 128 * 128 * length).all()


def test_out_dtype(rng: np.random.Generator) -> None:
    x = ruda.asarray(rng.random((3, 4))).astype("float16")
    wide = ruda.matmul(x, ruda.matrix_transpose(x), out_dtype="float32")
    assert wide.dtype == "float32"
    assert_close(wide, x.numpy().astype(np.float64) @ x.numpy().T.astype(np.float64), length=4)
    x.requires_grad_()
    ruda.matmul(x, ruda.ones((4, 2), dtype="float16"), out_dtype="float32").sum().backward()
    assert x.grad.dtype == "float16"
    assert (x.grad == 2).all()


@pytest.mark.parametrize(("dtype", "wanted"), [("int32", "int8"), ("float32", "int32")])
def test_out_dtype_that_loses_its_kind(dtype: str, wanted: str) -> None:
    x = ruda.ones((2, 2), dtype=dtype)
    with pytest.raises(DTypeError, match="matmul: out_dtype does not fit"):
        ruda.matmul(x, x, out_dtype=wanted)


def test_out(rng: np.random.Generator) -> None:
    x, y = ruda.asarray(rng.random((2, 3))), ruda.asarray(rng.random((3, 2)))
    target = ruda.zeros((2, 2), dtype="float64")
    assert ruda.matmul(x, y, out=target) is target
    assert_close(target, x.numpy() @ y.numpy(), length=3)


def test_operators(rng: np.random.Generator) -> None:
    x = rng.random((3, 3))
    ours = ruda.asarray(x.copy())
    assert_close(x @ ours, x @ x, length=3)
    assert_close(ours @ x, x @ x, length=3)
    ours @= ruda.asarray(x)
    assert_close(ours, x @ x, length=3)


def test_autocast_lowers() -> None:
    with ruda.autocast("bfloat16"):
        assert (ruda.ones((2, 2)) @ ruda.ones((2, 2))).dtype == "bfloat16"


def test_hint_at_the_transpose() -> None:
    with pytest.raises(ShapeError, match=r"inner sizes differ.*Try y\.mT"):
        ruda.ones((2, 3)) @ ruda.ones((4, 3))


@pytest.mark.parametrize(
    "axes", [0, 1, 2, ((2,), (0,)), ((0, 2), (2, 0)), ((-1,), (-3,)), ((), ())], ids=str
)
def test_tensordot(axes: Any, rng: np.random.Generator) -> None:
    x, y = rng.random((3, 4, 4)), rng.random((4, 4, 3))
    out = ruda.tensordot(ruda.asarray(x), ruda.asarray(y), axes=axes)
    assert_close(out, np.tensordot(x, y, axes), length=16)


@pytest.mark.parametrize("axis", [-1, -2])
def test_vecdot(axis: int, rng: np.random.Generator) -> None:
    x, y = complexes(rng, 5, 3, 3), complexes(rng, 3, 3)
    out = ruda.vecdot(ruda.asarray(x), ruda.asarray(y), axis=axis)
    assert_close(out, np.vecdot(x, y, axis=axis), length=3)


def test_vecdot_keeps_integers() -> None:
    x = ruda.asarray([1, 2, 3], dtype="int8")
    assert ruda.vecdot(x, x).dtype == "int8"
