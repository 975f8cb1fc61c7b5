"""Reading and writing where tensors of integers point: every form of the kernels, small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.nn import functional
from ruda.ops import index
from ruda.testing import assert_close

compiler = pytest.importorskip("ruda.backends.cuda.compiler")


def same(function: Callable[..., Any], *arrays: Any, device: str, length: int = 0) -> None:
    """``function`` of ``arrays`` on the device as on the CPU, bit by bit without a length."""
    want = function(*(ruda.asarray(a) for a in arrays))
    got = function(*(ruda.asarray(a, device=device) for a in arrays))
    assert got.device == device
    if length:
        assert_close(got.to("cpu"), want.numpy(), length=length)
    else:
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_slices_are_read_through_any_strides(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 40, 16)).astype("f")
    spots = np.array([[5, -1, 0], [2, 2, -6]])
    same(lambda a, i: a[i], x, spots, device=device)
    same(lambda a, i: a[:, i], x, spots, device=device)
    same(lambda a, i: a.mT[::-1][i.T], x, spots, device=device)
    same(lambda a, i: a[i, :, i + 1], x, spots % 3, device=device)
    same(lambda a, i: a[:, 1:][i], x, spots, device=device)
    same(lambda a, i: ruda.broadcast_to(a[:1], (6, 40, 16))[i], x, spots, device=device)
    same(lambda a, i: a[i, i], x, spots, device=device)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "complex128"])
def test_rows_are_moved_in_units_that_fit(device: str, dtype: str) -> None:
    x = ruda.asarray(np.arange(7 * 24).reshape(7, 24), dtype=dtype, device=device)
    spots = ruda.asarray(np.array([6, 0, 3], np.uint8), device=device)
    for part in (x, x[:, 3:], x[:, :5], x[::-1], x[:, ::2]):
        want = part.to("cpu").numpy()[[6, 0, 3]]
        np.testing.assert_array_equal(ruda.take(part, spots, axis=0).numpy(), want)


def test_reading_is_one_launch(device: str, client: Any) -> None:
    x, spots = ruda.zeros((50, 64), device=device), ruda.zeros(9, dtype="int64", device=device)
    ruda.take(x, spots, axis=0)
    client.driver.launches.clear()
    ruda.take(x, spots, axis=0)
    assert client.driver.launches == ["gather_16b_i64_r2k1"]


def test_nothing_is_launched_for_nothing(device: str) -> None:
    none = ruda.zeros(0, dtype="int64", device=device)
    x = ruda.asarray(np.arange(6.0).reshape(2, 3), device=device)
    assert ruda.take(x, none, axis=0).shape == (0, 3)
    assert ruda.take(x[:, :0], ruda.asarray([1], device=device), axis=0).shape == (1, 0)
    np.testing.assert_array_equal(ruda.index_add(x, none, x[:0]).numpy(), x.numpy())
    empty = ruda.scatter(x, ruda.zeros((0, 3), dtype="int64", device=device), 1.0, axis=0)
    np.testing.assert_array_equal(empty.numpy(), x.numpy())


@pytest.mark.parametrize("count", [40, 700])
def test_the_last_of_equal_places_wins(device: str, rng: np.random.Generator, count: int) -> None:
    x, y = rng.standard_normal((20, 12)).astype("f"), rng.standard_normal((count, 12)).astype("f")
    spots = rng.integers(-20, 20, count)
    same(lambda a, i, v: ruda.index_put(a, i, v), x, spots, y, device=device)
    same(lambda a, i, v: ruda.index_put(a, (i, i // 2), v[:, 0]), x, spots % 12, y, device=device)
    places = rng.integers(0, 12, (20, count))
    z = rng.standard_normal((20, count)).astype("f")
    same(lambda a, i, v: ruda.scatter(a, i, v, axis=1), x, places, z, device=device)
    same(lambda a, i, v: ruda.scatter(a.T, i.T, v.T, axis=0), x, places, z, device=device)
    same(lambda a, i: ruda.scatter(a, i, 2.5, axis=1), x, places, device=device)


MODES = ["add", "max", *(pytest.param(m, marks=pytest.mark.slow) for m in ("mul", "min"))]


@pytest.mark.parametrize("count", [40, 700])
@pytest.mark.parametrize("mode", MODES)
def test_repeated_places_are_combined(
    device: str, rng: np.random.Generator, mode: str, count: int
) -> None:
    x = rng.standard_normal((20, 12)).astype("f")
    places, y = rng.integers(-12, 12, (20, count)), rng.uniform(0.9, 1.1, (20, count)).astype("f")
    function = lambda a, i, v: ruda.scatter(a, i, v, axis=1, mode=mode)  # noqa: E731
    same(function, x, places, y, device=device, length=count)
    if mode == "add":
        z = rng.standard_normal((count, 12)).astype("f")
        spots = rng.integers(-20, 20, count)
        same(lambda a, i, v: ruda.index_add(a, i, v), x, spots, z, device=device, length=count)


def test_sums_of_rows_in_every_form(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 30, 5, 16)).astype("f")
    spots = rng.integers(-30, 30, 200)
    v = rng.standard_normal((3, 200, 5, 16)).astype("f")
    add = ruda.index_add
    same(lambda a, i, b: add(a, i, b, axis=1), x, spots, v, device=device, length=200)
    same(lambda a, i, b: add(a, i, b[:, :1], axis=1), x, spots, v, device=device, length=200)
    same(lambda a, i, b: add(a, i, b[..., :1], axis=1), x, spots, v, device=device, length=200)
    same(lambda a, i: add(a, i, 0.5, axis=1), x, spots, device=device, length=200)
    pairs = rng.integers(0, 3, 200)

    def both(a: Any, i: Any, j: Any, b: Any) -> Any:
        return ruda.index_put(a, (j, i), b[0], accumulate=True)

    same(both, x, spots, pairs, v, device=device, length=200)


SUMMED = [
    "bfloat16",
    *(pytest.param(d, marks=pytest.mark.slow) for d in ("int16", "float64", "complex64")),
]


@pytest.mark.parametrize("dtype", SUMMED)
def test_sums_by_dtype(device: str, rng: np.random.Generator, dtype: str) -> None:
    values = rng.integers(-3, 4, (300, 8))
    spots = rng.integers(0, 11, 300)
    got = ruda.index_add(
        ruda.ones((11, 8), dtype=dtype, device=device),
        ruda.asarray(spots, device=device),
        ruda.asarray(values, dtype=dtype, device=device),
    )
    want = np.ones((11, 8))
    np.add.at(want, spots, values)
    np.testing.assert_array_equal(got.to("cpu").astype("complex128").numpy(), want)


def test_a_long_segment_is_split(device: str, rng: np.random.Generator) -> None:
    count = 6000
    spots = np.where(rng.uniform(size=count) < 0.6, 7, rng.integers(0, 300, count))
    g = rng.standard_normal((count, 8)).astype("f")

    def summed(grads: Any, places: Any) -> Any:
        return index.index_adjoint(grads, places, (300, 8), (0,))

    same(summed, g, spots, device=device, length=count)
    on = [ruda.asarray(a, device=device) for a in (g, spots)]
    np.testing.assert_array_equal(summed(*on).numpy(), summed(*on).numpy())
    one = np.zeros(count, np.int32)
    same(summed, g, one, device=device, length=count)


@pytest.mark.parametrize("count", [12, 150])
def test_gradient_of_an_embedding(device: str, rng: np.random.Generator, count: int) -> None:
    tokens, found = rng.integers(0, 90, (2, count)), []
    for where in ("cpu", device):
        w = ruda.asarray(rng.standard_normal((90, 128)), dtype="float32", device=where)
        w = w.requires_grad_()
        seed = np.random.default_rng(1).standard_normal((2, count, 128)).astype("f")
        out = functional.embedding(ruda.asarray(tokens, device=where), w, int(tokens[0, 0]))
        out.backward(ruda.asarray(seed, device=where))
        found.append(w.grad.to("cpu"))
    assert_close(found[1], found[0].numpy(), length=2 * count)
    assert not found[1].numpy()[tokens[0, 0]].any()


@pytest.mark.parametrize("count", [9, 100])
def test_gradients_equal_those_of_the_cpu(
    device: str, rng: np.random.Generator, count: int
) -> None:
    x, y = rng.standard_normal((8, 6)), rng.uniform(0.9, 1.1, (count, 6))
    spots, along = rng.integers(-8, 8, count), rng.integers(0, 8, (count, 6))

    def loss(a: Any, v: Any, i: Any, j: Any) -> Any:
        read = (a[i] * v).sum() + (ruda.take_along_axis(a, j, axis=0) * v).sum()
        put = (ruda.index_put(a, i, v) * a).sum() + (ruda.scatter(a, j, v, axis=0) * a).sum()
        added = (ruda.index_add(a, i, v) ** 2).sum()
        scaled = sum((ruda.scatter(a, j, v, axis=0, mode=m) * a).sum() for m in ("mul", "max"))
        return read + put + added + scaled

    found = []
    for where in ("cpu", device):
        a, v = (ruda.asarray(n, device=where).requires_grad_() for n in (x, y))
        loss(a, v, ruda.asarray(spots, device=where), ruda.asarray(along, device=where)).backward()
        found.append((a.grad.to("cpu"), v.grad.to("cpu")))
    for got, want in zip(found[1], found[0], strict=True):
        assert_close(got, want.numpy(), length=20 * count)


def test_writes_in_place(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((30, 8)).astype("f")
    y = ruda.asarray(x, device=device)
    spots = ruda.asarray(np.array([3, -1, 3]), device=device)
    y[spots] = ruda.asarray(np.arange(24.0).reshape(3, 8), dtype="float32", device=device)
    y[:, 2:4][spots] = 5.0
    x[[3, -1, 3]] = np.arange(24.0).reshape(3, 8)
    x[[3, -1], 2:4] = 5.0
    y[spots] = y[spots + 1 - 1 * (spots == -1)]
    x[[3, -1, 3]] = x[[4, -1, 4]]
    np.testing.assert_array_equal(y.numpy(), x)
