"""Random rows on an emulated GPU: the bits of the CPU's stream, or its values up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError
from ruda.nn import functional as F
from ruda.random import Generator
from ruda.testing import tolerance

R = ruda.random
# One element; less than a block; whole packs of every dtype; several blocks of threads and a rest.
SHAPES = [(1,), (3,), (4, 16), (3, 1411)]
STREAMS = [(0, 0), (2**64 - 1, 2**32 + 5)]


def slow(value: Any) -> Any:
    """A parameter for the longer runs alone."""
    return pytest.param(value, marks=pytest.mark.slow)


def stream(seed: int, draw: int = 0) -> Generator:
    made = Generator(seed)
    made.advance(draw)
    return made


def both(draw: Callable[..., ruda.Tensor], device: str, seed: int = 7, at: int = 2) -> list[Any]:
    """The values of one draw on the CPU and on ``device``."""
    found = []
    for where in ("cpu", device):
        out = draw(device=where, generator=stream(seed, at))
        assert out.device == where
        found.append(out.numpy())
    assert found[0].dtype == found[1].dtype
    return found


def same(draw: Callable[..., ruda.Tensor], device: str, seed: int = 7, at: int = 2) -> Any:
    want, got = both(draw, device, seed, at)
    np.testing.assert_array_equal(got, want)
    return got


def close(draw: Callable[..., ruda.Tensor], device: str, *, flips: int = 0) -> None:
    """Equal up to rounding, but for ``flips`` elements that a rounding accepted or refused."""
    want, got = both(draw, device)
    wide, other = want.astype(np.float64), got.astype(np.float64)
    # Of 2 pi in the angle and of the logarithm under the root, in the compute dtype.
    limit = 8 * tolerance(got.dtype) * (np.abs(wide) + 1)
    assert int((~(np.abs(other - wide) <= limit)).sum()) <= flips


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", slow("float16")])
def test_uniform(dtype: str, shape: tuple[int, ...], device: str) -> None:
    for seed, at in STREAMS:
        same(lambda **k: R.uniform(shape, dtype=dtype, **k), device, seed, at)
        same(lambda **k: R.uniform(shape, -0.3, 7.1, dtype=dtype, **k), device, seed, at)


@pytest.mark.parametrize(
    "dtype",
    ["int8", "int32", "uint64", *(slow(d) for d in ("uint8", "int16", "uint32", "int64"))],
)
def test_integers(dtype: str, device: str) -> None:
    info = np.iinfo(dtype)
    # The second span refuses a third of the words, the third takes two words where it is wide.
    spans = [(0, 10), (int(info.min), int(info.min) + (int(info.max) - int(info.min)) // 3 * 2)]
    spans.append((int(info.min), int(info.max) + 1))
    for low, high in spans:
        for shape in SHAPES:
            same(lambda **k: R.integers(low, high, shape, dtype=dtype, **k), device)  # noqa: B023


def test_masks(device: str) -> None:
    for shape in SHAPES:
        for p in (0.0, 0.3, 1.0):
            same(lambda **k: R.bernoulli(p, shape, **k), device)  # noqa: B023
    p = np.linspace(0, 1, 1411)
    same(lambda device, **k: R.bernoulli(ruda.asarray(p, device=device), (3, 1411), **k), device)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", slow("float64"), slow("float16")])
def test_dropout(dtype: str, device: str, rng: np.random.Generator) -> None:
    base = rng.standard_normal((3, 1412)).astype("f")
    for pick in (lambda x: x, lambda x: x[:, 1:], lambda x: x.T, lambda x: x[1], lambda x: x[:0]):
        found = []
        for where in ("cpu", device):
            x = ruda.asarray(base, dtype=dtype, device=where)
            out = F.dropout(pick(x), 0.4, generator=stream(5, 1))
            found.append(out.numpy().astype("d"))
        np.testing.assert_allclose(found[1], found[0], rtol=tolerance(dtype))


def test_dropout_of_memory_that_is_not_aligned(device: str) -> None:
    x = ruda.ones(103, device=device)[3:]
    got = F.dropout(x, 0.5, generator=stream(3)).numpy()
    want = F.dropout(ruda.ones(100), 0.5, generator=stream(3)).numpy()
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_normal_and_exponential(dtype: str, device: str) -> None:
    for shape in SHAPES:
        close(lambda **k: R.normal(shape, dtype=dtype, **k), device)  # noqa: B023
        close(lambda **k: R.exponential(shape, 3.0, dtype=dtype, **k), device)  # noqa: B023
    close(lambda **k: R.normal((3, 1411), 2.0, 0.5, dtype=dtype, **k), device)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "bounds",
    [(0.0, 1.0, -2.0, 2.0), (1.0, 2.0, 1.5, 2.0), (0.0, 1.0, 4.0, np.inf), (0.0, 1.0, -9.0, -3.0)],
    ids=["bulk", "box", "tail", "mirrored"],
)
def test_truncated_normal(dtype: str, bounds: tuple[float, ...], device: str) -> None:
    close(lambda **k: R.truncated_normal((3, 1411), *bounds, dtype=dtype, **k), device, flips=2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma(dtype: str, device: str) -> None:
    for alpha in (0.3, 1.0, 40.0):
        close(lambda **k: R.gamma((3, 411), alpha, 2.0, dtype=dtype, **k), device, flips=2)  # noqa: B023
    each = np.linspace(0.2, 9.0, 411)
    close(
        lambda device, **k: R.gamma((3, 411), ruda.asarray(each, device=device), **k, dtype=dtype),
        device,
        flips=2,
    )
    odd = ruda.asarray([1.0, -1.0, np.nan, np.inf], device=device)
    out = R.gamma((4,), odd, generator=stream(1))
    with pytest.raises(ArgumentError, match="concentration out of its domain"):
        out.numpy()
    assert np.isnan(out.numpy()).tolist() == [False, True, True, True]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", slow("float64")])
@pytest.mark.parametrize("logits", [False, True])
def test_categorical(dtype: str, logits: bool, device: str, rng: np.random.Generator) -> None:
    weights = rng.standard_normal((3, 2500)) if logits else rng.random((3, 2500)) ** 4
    weights[:, ::3] = -np.inf if logits else 0
    found = []
    for where in ("cpu", device):
        w = ruda.asarray(weights, dtype=dtype, device=where)
        found.append(R.categorical(w, 200, logits=logits, generator=stream(9, 4)).numpy())
    # A draw within rounding of a boundary may fall on either side.
    assert int((found[0] != found[1]).sum()) <= 1
    assert not (found[1] % 3 == 0).any()


def test_categorical_of_views_and_of_rows_without_an_answer(device: str) -> None:
    weights = np.array([[1.0, 0.0, 3.0], [0.0, 0.0, 0.0], [1.0, np.nan, 1.0], [1.0, -1.0, 1.0]])
    w = ruda.asarray(weights, device=device)
    out = R.categorical(w, 5, generator=stream(2))
    with pytest.raises(ArgumentError, match="categorical"):
        out.numpy()
    got = out.numpy()
    want = R.categorical(ruda.asarray(weights[:1]), 5, generator=stream(2)).numpy()
    np.testing.assert_array_equal(got[:1], want)
    assert (got[1:] == -1).all()
    same(
        lambda device, **k: R.categorical(ruda.asarray(weights[:1].T, device=device).T, 4, **k),
        device,
    )
    assert R.categorical(w[:0], 5).shape == (0, 5)


def test_categorical_without_replacement(device: str, rng: np.random.Generator) -> None:
    weights = rng.random((3, 300))
    weights[0, 4:] = 0
    held = ruda.asarray(weights, device=device)
    out = R.categorical(held, 6, replacement=False, generator=stream(9, 4))
    with pytest.raises(ArgumentError, match="too few possible categories"):
        out.numpy()
    draw = out.numpy()
    want = R.categorical(
        ruda.asarray(weights[1:]), 6, replacement=False, generator=stream(9, 4)
    ).numpy()
    assert want.shape == (2, 6)
    assert sorted(draw[0].tolist()) == [-1, -1, 0, 1, 2, 3]
    whole = np.where(weights > 0, weights, 1e-30)
    want = R.categorical(ruda.asarray(whole), 6, replacement=False, generator=stream(9, 4)).numpy()
    np.testing.assert_array_equal(draw[1:], want[1:])


@pytest.mark.parametrize("n", [0, 1, 5, 3000])
def test_permutation(n: int, device: str) -> None:
    got = R.permutation(n, device=device, generator=stream(7, 2)).numpy()
    np.testing.assert_array_equal(got, R.permutation(n, generator=stream(7, 2)).numpy())


def test_nothing_is_launched_for_nothing(device: str, client: Any) -> None:
    before = len(client.driver.launches)
    for draw in (R.uniform, R.normal, R.exponential, R.truncated_normal, R.gamma):
        assert draw((0, 3), device=device).shape == (0, 3)
    assert R.integers(0, 5, (3, 0), device=device).shape == (3, 0)
    assert R.bernoulli(0.5, (0,), device=device).shape == (0,)
    assert len(client.driver.launches) == before
