"""Pooling references against loops over every window, transposes, and PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from ruda.ops.reference import pool
from ruda.ops.reference.windows import Array


class Case(NamedTuple):
    x: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    ceil_mode: bool

    @property
    def undilated(self) -> tuple[object, ...]:
        return self.kernel, self.stride, self.padding, self.ceil_mode


CASES = {
    "halves": Case((2, 3, 6, 8), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False),
    "overlap": Case((2, 3, 7, 6), (3, 3), (2, 1), ((1, 1), (1, 1)), (1, 1), False),
    "ceil": Case((2, 2, 6, 7), (3, 2), (2, 3), ((1, 1), (0, 0)), (1, 1), True),
    "ceil drops a window": Case((1, 2, 4, 5), (1, 2), (3, 4), ((0, 0), (1, 1)), (1, 1), True),
    "dilated": Case((2, 2, 9, 8), (3, 2), (1, 2), ((1, 1), (1, 1)), (2, 3), False),
    "uneven padding": Case((1, 2, 5, 6), (3, 3), (2, 2), ((0, 1), (1, 0)), (1, 1), False),
    "gaps": Case((1, 1, 9, 9), (2, 2), (4, 3), ((0, 0), (0, 0)), (1, 1), False),
    "one axis": Case((3, 2, 11), (4,), (3,), ((2, 2),), (1,), True),
    "three axes": Case(
        (2, 2, 5, 4, 6), (2, 3, 2), (2, 1, 3), ((1, 1), (0, 0), (1, 1)), (1, 1, 1), True
    ),
    "no image": Case((0, 2, 5, 5), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False),
    "no leading axes": Case((5, 5), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
PLAIN = [name for name, case in CASES.items() if set(case.dilation) == {1}]
each_plain_case = pytest.mark.parametrize("case", [CASES[name] for name in PLAIN], ids=PLAIN)


def normal(shape: tuple[int, ...], seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def windows(case: Case) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Yield each window's place and the input positions inside it, in row-major order."""
    sizes = case.x[len(case.x) - len(case.kernel) :]
    counts = pool.pool_output_shape(case.x, *case[1:])[len(case.x) - len(case.kernel) :]
    for at in product(*map(range, counts)):
        axes = [
            [p for p in range(i * s - lo, i * s - lo + d * k, d) if 0 <= p < n]
            for i, s, (lo, _), d, k, n in zip(
                at, case.stride, case.padding, case.dilation, case.kernel, sizes, strict=True
            )
        ]
        yield at, list(product(*axes))


def largest(x: Array, case: Case) -> tuple[Array, Array]:
    shape = pool.pool_output_shape(x.shape, *case[1:])
    sizes = x.shape[x.ndim - len(case.kernel) :]
    values, indices = np.full(shape, -np.inf), np.full(shape, -1)
    for at, inside in windows(case):
        for lead in product(*map(range, x.shape[: x.ndim - len(case.kernel)])):
            seen = [x[lead + p] for p in inside]
            if seen:
                best = int(np.argmax(seen))
                values[lead + at] = seen[best]
                indices[lead + at] = np.ravel_multi_index(inside[best], sizes)
    return values, indices


def averages(x: Array, case: Case, count_include_pad: bool, divisor: int | None) -> Array:
    shape = pool.pool_output_shape(x.shape, *case[1:])
    sizes = x.shape[x.ndim - len(case.kernel) :]
    out = np.zeros(shape)
    for at, inside in windows(case):
        padded = math.prod(
            min(i * s - lo + k, n + hi) - (i * s - lo)
            for i, s, (lo, hi), k, n in zip(
                at, case.stride, case.padding, case.kernel, sizes, strict=True
            )
        )
        count = divisor or (padded if count_include_pad else len(inside))
        for lead in product(*map(range, x.shape[: x.ndim - len(case.kernel)])):
            out[lead + at] = sum(x[lead + p] for p in inside) / count
    return out


@each_case
@pytest.mark.parametrize("kind", ["normal", "ties", "nan", "lowest"])
def test_max_pool_is_the_definition(case: Case, kind: str) -> None:
    x = normal(case.x)
    if kind == "ties":
        x = np.round(x)
    if kind == "nan":
        x[normal(case.x, 4) > 1] = np.nan
    if kind == "lowest":
        x = np.full(case.x, -np.inf)
    values, indices = pool.max_pool(x, *case[1:])
    expected, positions = largest(x, case)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(indices, positions)
    assert indices.dtype == np.int64
    assert values.dtype == x.dtype


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32"])
def test_max_pool_dtypes(dtype: str) -> None:
    case = CASES["overlap"]
    x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, case.x).astype(dtype)
    values, indices = pool.max_pool(x, *case[1:])
    expected, positions = largest(x.astype("float64"), case)
    assert values.dtype == x.dtype
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(indices, positions)


def test_max_pool_window_of_padding_only() -> None:
    x = np.array([[[3.0]]])
    values, indices = pool.max_pool(x, (2,), (1,), ((1, 1),), (2,))
    assert values.tolist() == [[[-math.inf]]]
    assert indices.tolist() == [[[-1]]]
    assert pool.max_pool_backward(np.ones((1, 1, 1)), indices, x.shape, 1).tolist() == [[[0.0]]]
    assert pool.max_pool_pick(x, indices, 1).tolist() == [[[0.0]]]


def test_max_pool_kernel_beyond_one_byte() -> None:
    x = normal((1, 1, 20, 20))
    values, indices = pool.max_pool(x, (18, 17), (1, 1), ((0, 0), (0, 0)), (1, 1))
    np.testing.assert_array_equal(x.reshape(-1)[indices], values)
    assert values[0, 0, 0, 0] == x[0, 0, :18, :17].max()


@each_case
def test_max_pool_transposes(case: Case) -> None:
    x = normal(case.x)
    values, indices = pool.max_pool(x, *case[1:])
    g, other = normal(values.shape, 5), normal(case.x, 6)
    dx = pool.max_pool_backward(g, indices, x.shape, len(case.kernel))
    picked = pool.max_pool_pick(other, indices, len(case.kernel))
    assert dx.shape == x.shape
    assert (dx * other).sum() == pytest.approx((g * picked).sum(), rel=1e-12, abs=1e-12)
    np.testing.assert_array_equal(pool.max_pool_pick(x, indices, len(case.kernel)), values)


@each_plain_case
@pytest.mark.parametrize(("count_include_pad", "divisor"), [(True, None), (False, None), (True, 5)])
def test_avg_pool_is_the_definition(
    case: Case, count_include_pad: bool, divisor: int | None
) -> None:
    x = normal(case.x)
    options = (*case.undilated, count_include_pad, divisor)
    out = pool.avg_pool(x, *options)
    np.testing.assert_allclose(
        out, averages(x, case, count_include_pad, divisor), rtol=1e-13, atol=1e-14
    )
    g = normal(out.shape, 8)
    dx = pool.avg_pool_backward(g, x.shape, *options)
    assert dx.shape == x.shape
    assert (x * dx).sum() == pytest.approx((out * g).sum(), rel=1e-12, abs=1e-12)


def test_avg_pool_keeps_its_dtype() -> None:
    x = normal((1, 1, 6)).astype("float32")
    assert pool.avg_pool(x, (2,), (2,), ((0, 0),)).dtype == np.float32
    assert pool.avg_pool(x + 1j, (2,), (2,), ((0, 0),)).dtype == np.complex64


ADAPTIVE = [
    ((2, 3, 7, 5), (3, 2)),
    ((2, 3, 6, 6), (3, 6)),
    ((1, 2, 2, 3), (5, 4)),
    ((2, 2, 9), (4,)),
    ((1, 2, 4, 5, 3), (2, 3, 1)),
    ((0, 2, 4, 4), (2, 2)),
    ((2, 2, 4, 4), (0, 2)),
]


@pytest.mark.parametrize(("shape", "output_size"), ADAPTIVE)
def test_adaptive_pools_are_the_definition(
    shape: tuple[int, ...], output_size: tuple[int, ...]
) -> None:
    x = np.round(2 * normal(shape)) / 2
    x.reshape(-1)[::7] = np.nan
    first = len(shape) - len(output_size)
    values, indices = pool.adaptive_max_pool(x, output_size)
    means = pool.adaptive_avg_pool(x, output_size)
    assert values.shape == indices.shape == means.shape == (*shape[:first], *output_size)
    bounds = [pool.adaptive_bounds(n, m) for n, m in zip(shape[first:], output_size, strict=True)]
    planes = np.arange(math.prod(shape[first:])).reshape(shape[first:])
    for lead in product(*map(range, shape[:first])):
        for at in product(*map(range, output_size)):
            where = tuple(slice(*bounds[axis][i]) for axis, i in enumerate(at))
            window = x[(*lead, *where)].reshape(-1)
            position = planes[where].reshape(-1)[window.argmax()]
            assert indices[lead + at] == position
            np.testing.assert_array_equal(values[lead + at], window.max())
            np.testing.assert_allclose(means[lead + at], window.mean(), atol=1e-14)


@pytest.mark.parametrize(("shape", "output_size"), ADAPTIVE)
def test_adaptive_avg_pool_transposes(shape: tuple[int, ...], output_size: tuple[int, ...]) -> None:
    x = normal(shape)
    out = pool.adaptive_avg_pool(x, output_size)
    g = normal(out.shape, 2)
    dx = pool.adaptive_avg_pool_backward(g, shape, len(output_size))
    assert dx.shape == shape
    assert (x * dx).sum() == pytest.approx((out * g).sum(), rel=1e-12, abs=1e-12)


@each_case
def test_max_pool_matches_torch(case: Case) -> None:
    torch = pytest.importorskip("torch")
    if 0 in case.x or len(case.x) == 2 or any(lo != hi for lo, hi in case.padding):
        pytest.skip("PyTorch has no such max pooling")
    functional = torch.nn.functional
    apply = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
    x = normal(case.x)
    tx = torch.tensor(x, requires_grad=True)
    y, where = apply[len(case.kernel) - 1](
        tx,
        case.kernel,
        case.stride,
        tuple(lo for lo, _ in case.padding),
        case.dilation,
        case.ceil_mode,
        return_indices=True,
    )
    values, indices = pool.max_pool(x, *case[1:])
    g = normal(values.shape, 5)
    (dx,) = torch.autograd.grad(y, tx, torch.tensor(g))
    np.testing.assert_array_equal(values, y.detach().numpy())
    np.testing.assert_array_equal(indices, where.numpy())
    ours = pool.max_pool_backward(g, indices, x.shape, len(case.kernel))
    np.testing.assert_allclose(ours, dx.numpy(), atol=1e-14)


@each_plain_case
@pytest.mark.parametrize("count_include_pad", [True, False])
def test_avg_pool_matches_torch(case: Case, count_include_pad: bool) -> None:
    torch = pytest.importorskip("torch")
    if 0 in case.x or len(case.x) == 2 or any(lo != hi for lo, hi in case.padding):
        pytest.skip("PyTorch has no such average pooling")
    functional = torch.nn.functional
    apply = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)
    x = normal(case.x)
    tx = torch.tensor(x, requires_grad=True)
    padding = tuple(lo for lo, _ in case.padding)
    y = apply[len(case.kernel) - 1](
        tx, case.kernel, case.stride, padding, case.ceil_mode, count_include_pad
    )
    options = (*case.undilated, count_include_pad)
    out = pool.avg_pool(x, *options)
    g = normal(out.shape, 5)
    (dx,) = torch.autograd.grad(y, tx, torch.tensor(g))
    np.testing.assert_allclose(out, y.detach().numpy(), rtol=1e-12, atol=1e-14)
    ours = pool.avg_pool_backward(g, x.shape, *options)
    np.testing.assert_allclose(ours, dx.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("shape", "output_size"), ADAPTIVE[:5])
def test_adaptive_pools_match_torch(shape: tuple[int, ...], output_size: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    ndim = len(output_size)
    x = normal(shape)
    tx = torch.tensor(x, requires_grad=True)
    mean = getattr(functional, f"adaptive_avg_pool{ndim}d")(tx, output_size)
    top, where = getattr(functional, f"adaptive_max_pool{ndim}d")(
        tx, output_size, return_indices=True
    )
    g = normal(tuple(mean.shape), 9)
    (dx,) = torch.autograd.grad(mean, tx, torch.tensor(g), retain_graph=True)
    (dtop,) = torch.autograd.grad(top, tx, torch.tensor(g))
    values, indices = pool.adaptive_max_pool(x, output_size)
    close = {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(
        pool.adaptive_avg_pool(x, output_size), mean.detach().numpy(), **close
    )
    np.testing.assert_allclose(pool.adaptive_avg_pool_backward(g, shape, ndim), dx.numpy(), **close)
    np.testing.assert_array_equal(values, top.detach().numpy())
    np.testing.assert_array_equal(indices, where.numpy())
    np.testing.assert_allclose(
        pool.max_pool_backward(g, indices, shape, ndim), dtop.numpy(), **close
    )
