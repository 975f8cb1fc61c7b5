"""Pooling against PyTorch: settings, indices, derivatives, NaN, ties, half types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.errors import ArgumentError
from tests.ops.peer import assert_near, assert_same, torch

MAXIMA: dict[str, Any] = {
    "plain": ((2, 3, 8), (2,), {}),
    "overlapping": ((2, 3, 8, 9), (3, 2), {"stride": (2, 1), "padding": (1, 1)}),
    "ceil": ((1, 2, 7, 8), (2, 3), {"ceil_mode": True}),
    "dilated": ((1, 2, 9), (3,), {"dilation": 2, "stride": 1}),
    "solid": ((1, 2, 4, 5, 6), (2, 2, 2), {"padding": 1}),
    "no batch axis": ((2, 6, 6), (2, 2), {}),
}
AVERAGES: dict[str, Any] = {
    "plain": ((2, 3, 8), (2,), {}),
    "padded": ((2, 3, 8, 9), (3, 2), {"stride": (2, 1), "padding": (1, 1)}),
    "inside only": ((2, 3, 7), (3,), {"padding": 1, "count_include_pad": False}),
    "ceil": ((1, 2, 7, 8), (2, 3), {"ceil_mode": True, "padding": (1, 1)}),
    "divisor": ((1, 2, 7, 8), (2, 3), {"divisor_override": 4}),
    "ceil, inside only": (
        (1, 2, 7, 8),
        (3, 3),
        {"ceil_mode": True, "padding": 1, "stride": 2, "count_include_pad": False},
    ),
    "ceil of a line": ((2, 3, 9), (4,), {"ceil_mode": True, "stride": 3}),
    "ceil of a solid": ((1, 2, 4, 5, 7), (2, 2, 2), {"ceil_mode": True, "divisor_override": 3}),
    "solid": ((1, 2, 4, 5, 6), (2, 2, 2), {"padding": 1}),
}
ADAPTIVE: dict[str, Any] = {
    "line": ((2, 3, 7), (3,)),
    "plane": ((2, 3, 7, 5), (3, 4)),
    "more than there are": ((2, 3, 3), (5,)),
    "solid": ((1, 2, 4, 5, 6), (2, 3, 4)),
}


def values(*shape: int) -> Any:
    return np.random.default_rng(np.prod(shape, dtype=int)).standard_normal(shape)


def functions(name: str, rank: int) -> tuple[Any, Any]:
    return getattr(F, f"{name}{rank}d"), getattr(torch().nn.functional, f"{name}{rank}d")


@pytest.mark.parametrize("name", MAXIMA)
def test_max_against_torch(name: str) -> None:
    shape, kernel, options = MAXIMA[name]
    mine, theirs = functions("max_pool", len(kernel))
    x = values(*shape)
    assert_same(lambda a: mine(a, kernel, **options), lambda a: theirs(a, kernel, **options), x)
    got = mine(ruda.asarray(x), kernel, **options, return_indices=True)
    want = theirs(torch().tensor(x), kernel, **options, return_indices=True)
    np.testing.assert_array_equal(got[1].numpy(), want[1].numpy())


@pytest.mark.parametrize("name", AVERAGES)
def test_average_against_torch(name: str) -> None:
    shape, kernel, options = AVERAGES[name]
    mine, theirs = functions("avg_pool", len(kernel))
    assert_same(
        lambda a: mine(a, kernel, **options),
        lambda a: theirs(a, kernel, **options),
        values(*shape),
    )


@pytest.mark.parametrize("name", ADAPTIVE)
@pytest.mark.parametrize("family", ["adaptive_avg_pool", "adaptive_max_pool"])
def test_adaptive_against_torch(family: str, name: str) -> None:
    shape, size = ADAPTIVE[name]
    mine, theirs = functions(family, len(size))
    assert_same(lambda a: mine(a, size), lambda a: theirs(a, size), values(*shape))


@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_indices_against_torch(name: str) -> None:
    shape, size = ADAPTIVE[name]
    mine, theirs = functions("adaptive_max_pool", len(size))
    x = values(*shape)
    got = mine(ruda.asarray(x), size, return_indices=True)
    want = theirs(torch().tensor(x), size, return_indices=True)
    np.testing.assert_array_equal(got[1].numpy(), want[1].numpy())


def test_complex_averages_by_parts() -> None:
    x = values(1, 2, 6) + 1j * values(1, 3, 4).reshape(1, 2, 6)
    out = F.avg_pool1d(ruda.asarray(x), 2)
    assert_near(ruda.real(out), F.avg_pool1d(ruda.asarray(x.real.copy()), 2))
    assert_near(ruda.imag(out), F.avg_pool1d(ruda.asarray(x.imag.copy()), 2))


def test_nan_wins_and_ties_take_the_lower_index() -> None:
    x = ruda.asarray([[1.0, 1.0, 0.0, np.nan, np.inf, 2.0]])
    out, where = F.max_pool1d(x, 2, return_indices=True)
    np.testing.assert_array_equal(out.numpy(), [[1.0, np.nan, np.inf]])
    assert where.tolist() == [[0, 3, 4]]


def test_integers_have_maxima() -> None:
    x = ruda.asarray([[-3, -1, -2, -4]], dtype="int8")
    assert F.max_pool1d(x, 3, 1, 1).tolist() == [[-1, -1, -1, -2]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_averages_round_once(dtype: str) -> None:
    x = ruda.asarray(values(2, 3, 9)).astype(dtype)
    wide = F.avg_pool1d(x.astype("float32"), 3)
    np.testing.assert_array_equal(F.avg_pool1d(x, 3).numpy(), wide.astype(dtype).numpy())


def test_no_images() -> None:
    assert F.max_pool2d(ruda.ones((0, 3, 4, 4)), 2).shape == (0, 3, 2, 2)
    assert F.avg_pool2d(ruda.ones((0, 3, 4, 4)), 2).shape == (0, 3, 2, 2)


def test_an_axis_of_none_stays() -> None:
    x = ruda.asarray(values(1, 2, 4, 5))
    assert_near(F.adaptive_avg_pool2d(x, (2, None)), F.adaptive_avg_pool2d(x, (2, 5)))


@pytest.mark.parametrize("more", [{}, {"return_indices": True}, {"ceil_mode": True}])
def test_channels_last(more: dict[str, bool]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (2, 4, 7, 9)).astype(np.float32)
    first = ruda.asarray(x).requires_grad_()
    last = ruda.asarray(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).requires_grad_()
    want, got = (
        F.max_pool2d(first, 3, 2, 1, **more),
        F.max_pool2d(last, 3, 2, 1, **more, layout="nhwc"),
    )
    if "return_indices" in more:
        (want, places), (got, found) = want, got
        np.testing.assert_array_equal(found.numpy(), places.numpy().transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(got.numpy(), want.numpy().transpose(0, 2, 3, 1))
    for out in (want, got):
        ruda.sum(out * out).backward()
    np.testing.assert_array_equal(last.grad.numpy(), first.grad.numpy().transpose(0, 2, 3, 1))
    one = F.max_pool2d(last[0], 3, 2, 1, layout="nhwc")
    np.testing.assert_array_equal(
        one.numpy(), F.max_pool2d(first[0], 3, 2, 1).numpy().transpose(1, 2, 0)
    )
    with pytest.raises(ArgumentError, match="unknown layout"):
        F.max_pool2d(first, 3, layout="last")
