"""Shapes, axes, diagonals, triangles, grids and methods that move tensors, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import DeviceError, DTypeError, ShapeError
from ruda.testing import gradcheck


@pytest.fixture
def x(rng: np.random.Generator) -> Any:
    return rng.standard_normal((3, 4, 2))


def same(got: ruda.Tensor, expected: Any) -> bool:
    return got.shape == np.shape(expected) and np.array_equal(got.numpy(), expected)


@pytest.mark.parametrize("axes", [(0, 1), (0, -1), (2, 1), (1, 1)])
def test_swapaxes(axes: tuple[int, int], x: Any) -> None:
    assert same(ruda.swapaxes(ruda.asarray(x), *axes), np.swapaxes(x, *axes))
    assert same(ruda.asarray(x).transpose(*axes), np.swapaxes(x, *axes))


def test_transposes(x: Any) -> None:
    t, m = ruda.asarray(x), ruda.asarray(x[0])
    z = ruda.asarray(x[0] + 1j)
    assert same(m.T, x[0].T)
    assert same(t.mT, x.swapaxes(1, 2))
    assert same(t.mH, x.swapaxes(1, 2))
    assert same(z.H, (x[0] + 1j).conj().T)
    assert same(z.mH, (x[0] + 1j).conj().T)
    assert same(t.transpose(), x.swapaxes(1, 2))
    assert same(t.permute(2, 0, 1), x.transpose(2, 0, 1))
    assert same(t.permute((2, 0, 1)), x.transpose(2, 0, 1))
    assert all(v.is_view for v in (m.T, t.mT, t.mH, t.permute(2, 0, 1)))


@pytest.mark.parametrize("span", [(0, -1), (0, 1), (1, 2), (2, 2)])
def test_flatten_and_unflatten(span: tuple[int, int], x: Any) -> None:
    flat = ruda.flatten(ruda.asarray(x), *span)
    first, last = span[0], span[1] % 3
    sizes = x.shape[first : last + 1]
    assert flat.shape == (*x.shape[:first], int(np.prod(sizes)), *x.shape[last + 1 :])
    assert same(ruda.unflatten(flat, first, (-1, *sizes[1:])), x)
    assert ruda.flatten(ruda.asarray(1.0)).shape == (1,)


@pytest.mark.parametrize("shape", [(24,), (2, 12), (4, 3, 2), (3, 1, 8), (3, 4, 2, 1), (-1, 2)])
@pytest.mark.parametrize("layout", ["dense", "transposed", "sliced", "reversed"])
def test_reshape_of_any_layout(shape: Any, layout: str, x: Any) -> None:
    array = {
        "dense": x,
        "transposed": x.T,
        "sliced": np.repeat(x, 2, axis=1)[:, ::2],
        "reversed": x[::-1, :, ::-1],
    }[layout]
    assert same(ruda.reshape(ruda.asarray(array), shape), array.reshape(shape))


def test_reshape_says_when_it_copies(x: Any) -> None:
    t = ruda.asarray(x)
    assert ruda.reshape(t, (12, 2), copy=False).is_view
    assert ruda.reshape(t, (12, 2), copy=True).data_ptr() != t.data_ptr()
    with pytest.raises(ShapeError, match="copy=False"):
        ruda.reshape(t.mT, (24,), copy=False)


@pytest.mark.parametrize("axis", [None, 0, (0, 2), -1])
def test_flip(axis: Any, x: Any) -> None:
    assert same(ruda.flip(ruda.asarray(x), axis=axis), np.flip(x, axis))


@pytest.mark.parametrize("axis", [0, -1, (0, 2), (1, -1), (-1, 0)])
def test_expand_dims_and_squeeze(axis: Any, x: Any) -> None:
    wide = ruda.expand_dims(ruda.asarray(x), axis)
    assert same(wide, np.expand_dims(x, axis))
    assert same(ruda.squeeze(wide, axis), x)
    assert same(ruda.squeeze(wide), x)


@pytest.mark.parametrize(("source", "to"), [(0, 2), (-1, 0), ((0, 1), (2, 0)), ((2, 0), (0, 1))])
def test_moveaxis(source: Any, to: Any, x: Any) -> None:
    assert same(ruda.moveaxis(ruda.asarray(x), source, to), np.moveaxis(x, source, to))


@pytest.mark.parametrize("offset", [-5, -2, -1, 0, 1, 3, 4])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 0), (-1, 1)])
def test_diagonal(offset: int, axes: tuple[int, int], x: Any) -> None:
    got = ruda.diagonal(ruda.asarray(x), offset=offset, axis1=axes[0], axis2=axes[1])
    assert same(got, np.diagonal(x, offset, *axes))
    assert got.is_view


def test_a_diagonal_is_written(x: Any) -> None:
    t, expected = ruda.tensor(x), x.copy()
    ruda.diagonal(t, offset=1)[...] = 5.0
    expected[range(3), range(1, 4)] = 5.0
    assert same(t, expected)


@pytest.mark.parametrize("k", [-4, -1, 0, 1, 2, 5])
def test_triangles(k: int, x: Any) -> None:
    t = ruda.asarray(x)
    assert same(ruda.tril(t, k=k), np.tril(x, k))
    assert same(ruda.triu(t, k=k), np.triu(x, k))
    assert same(ruda.tri(3, 4, k=k), np.tri(3, 4, k))
    assert same(ruda.eye(3, 4, k=k, dtype="int8"), np.eye(3, 4, k, np.int8))
    assert same(ruda.diag(t[0, :, 0], k=k), np.diag(x[0, :, 0], k))
    assert same(ruda.diag(t[0], k=k), np.diag(x[0], k))
    gradcheck(lambda x: ruda.diag(x * x, k=k), [x[0, :, 0]])


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_meshgrid(indexing: Any, count: int, rng: np.random.Generator) -> None:
    arrays = [rng.standard_normal(n) for n in (2, 3, 4)[:count]]
    got = ruda.meshgrid(*map(ruda.asarray, arrays), indexing=indexing)
    expected = np.meshgrid(*arrays, indexing=indexing)
    assert len(got) == count
    assert all(same(a, b) for a, b in zip(got, expected, strict=True))


def test_moving_to_where_it_is(x: Any) -> None:
    t = ruda.asarray(x)
    assert t.cpu() is t
    assert t.to("cpu") is t
    assert t.to_device("cpu") is t
    assert t.to(ruda.float32).dtype is ruda.float32
    for move in (t.cuda, t.pin_memory, lambda: t.cuda(1), lambda: t.to("cuda")):
        with pytest.raises(DeviceError):
            move()


def test_copy_into(x: Any) -> None:
    t = ruda.zeros((2, 3))
    assert t.copy_(ruda.asarray([1, 2, 3])) is t
    assert t.tolist() == [[1, 2, 3]] * 2
    with pytest.raises(DTypeError, match="kind"):
        ruda.zeros(2, dtype="int32").copy_(ruda.ones(2))
    gradcheck(lambda x: ruda.zeros((2, 3, 4, 2), dtype="float64").copy_(x * x), [x])


def test_data_ptr(x: Any) -> None:
    t = ruda.asarray(x)
    assert t.data_ptr() == x.ctypes.data
    assert t[1:, ::-1].data_ptr() == x[1:, ::-1].ctypes.data


def test_broadcasting(x: Any) -> None:
    line = ruda.asarray(x[0, 0])
    got = ruda.broadcast_arrays(ruda.asarray(x), line)
    assert all(same(a, b) for a, b in zip(got, np.broadcast_arrays(x, x[0, 0]), strict=True))
    gradcheck(lambda v: ruda.broadcast_to(v * v, (3, 4, 2)), [x[0, 0]])


@pytest.mark.parametrize("shape", [(0, 3), (), (1,), (2, 0, 1)])
def test_nothing_and_0d(shape: Any) -> None:
    array = np.zeros(shape)
    t = ruda.asarray(array)
    assert same(ruda.flip(t), np.flip(array))
    assert same(ruda.reshape(t, (-1,) if array.size else (0,)), array.reshape(-1))
    assert same(ruda.permute_dims(t, tuple(range(array.ndim))[::-1]), array.T)
    assert same(ruda.tile(t, 2), np.tile(array, 2))
    assert same(t[...], array)


def test_sizes_of_reshape_come_one_by_one_too() -> None:
    assert ruda.zeros(6).reshape(2, -1).shape == ruda.zeros(6).reshape((2, 3)).shape == (2, 3)


def test_to_takes_the_name_of_a_dtype() -> None:
    assert ruda.ones(2).to("float64").dtype is ruda.float64
