"""Index kernels at sizes where many blocks work: against NumPy, and twice for equal bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError, IndexRangeError
from ruda.nn import functional
from ruda.ops import index
from ruda.testing import assert_close


def zipf(rng: np.random.Generator, rows: int, count: int) -> Any:
    """Row numbers of which a few are very frequent."""
    weights = 1.0 / np.arange(1, rows + 1)
    return rng.permutation(rows)[rng.choice(rows, count, p=weights / weights.sum())]


def summed(g: Any, spots: Any, rows: int) -> Any:
    """The rows of ``g`` added up by ``spots`` in float64."""
    out = np.zeros((rows, *g.shape[1:]))
    np.add.at(out, spots, g.astype("f8"))
    return out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize(
    ("rows", "count", "width"),
    [(50304, 65536, 256), (100, 300_000, 8), (1 << 20, 1 << 20, 1), (7, 70_000, 33)],
)
def test_rows_are_added_up(
    device: str, rng: np.random.Generator, dtype: str, rows: int, count: int, width: int
) -> None:
    spots = zipf(rng, rows, count)
    g = ruda.asarray(rng.standard_normal((count, width)), dtype=dtype)
    want = summed(g.numpy(), spots, rows)
    on = g.to(device), ruda.asarray(spots, device=device)
    got = index.index_adjoint(*on, (rows, width), (0,))
    longest = int(np.bincount(spots).max())
    scale = float(np.sqrt(summed(np.square(g.numpy().astype("f8")), spots, rows).sum()))
    assert_close(got.to("cpu"), want, length=longest, scale=scale)
    again = index.index_adjoint(*on, (rows, width), (0,))
    np.testing.assert_array_equal(again.numpy(), got.numpy())
    base = ruda.ones((rows, width), dtype=dtype, device=device)
    added = ruda.index_add(base, on[1], on[0])
    assert_close(added.to("cpu"), want + 1, length=longest, scale=scale)


def test_every_place_is_the_same(device: str) -> None:
    count = 3_000_000
    ones = ruda.ones((count, 2), device=device)
    spots = ruda.full((count,), 3, dtype="int32", device=device)
    got = index.index_adjoint(ones, spots, (5, 2), (0,)).numpy()
    np.testing.assert_allclose(got[3], count, rtol=1e-6)
    assert not got[[0, 1, 2, 4]].any()


def test_gradient_of_an_embedding(device: str, rng: np.random.Generator) -> None:
    tokens = zipf(rng, 32000, 1 << 15).reshape(8, -1)
    w = ruda.zeros((32000, 512), dtype="bfloat16", device=device).requires_grad_()
    g = ruda.asarray(rng.standard_normal((8, 1 << 12, 512)), dtype="bfloat16")
    functional.embedding(ruda.asarray(tokens, device=device), w, 5).backward(g.to(device))
    want = summed(g.numpy().reshape(-1, 512), tokens.reshape(-1), 32000)
    want[5] = 0
    scale = float(np.linalg.norm(g.numpy().astype("f8")))
    assert_close(w.grad.to("cpu"), want, length=1 << 12, scale=scale)


@pytest.mark.parametrize("shape", [(3000, 1024), (1 << 21,)])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_reading(
    device: str, rng: np.random.Generator, shape: tuple[int, ...], index_dtype: str
) -> None:
    x = rng.standard_normal(shape).astype("f")
    spots = rng.integers(-shape[0], shape[0], 20_000).astype(index_dtype)
    got = ruda.take(ruda.asarray(x, device=device), ruda.asarray(spots, device=device), axis=0)
    np.testing.assert_array_equal(got.numpy(), x[spots])


def test_the_last_of_equal_places_wins(device: str, rng: np.random.Generator) -> None:
    x, count = rng.standard_normal((5000, 64)).astype("f"), 100_000
    spots, values = rng.integers(0, 5000, count), rng.standard_normal((count, 64)).astype("f")
    on = [ruda.asarray(a, device=device) for a in (x, spots, values)]
    x[spots] = values
    np.testing.assert_array_equal(ruda.index_put(on[0], on[1], on[2]).numpy(), x)
    on[0][on[1]] = on[2]
    np.testing.assert_array_equal(on[0].numpy(), x)


@pytest.mark.parametrize("mode", ["set", "add", "mul", "min", "max"])
def test_elements_are_scattered(device: str, rng: np.random.Generator, mode: str) -> None:
    x = rng.standard_normal((1000, 1500)).astype("f")
    places = rng.integers(0, 1500, (1000, 900))
    values = rng.uniform(0.9, 1.1, (1000, 900)).astype("f")
    want = ruda.scatter(*(ruda.asarray(a) for a in (x, places, values)), axis=1, mode=mode)
    on = [ruda.asarray(a, device=device) for a in (x, places, values)]
    got = ruda.scatter(*on, axis=1, mode=mode)
    assert_close(got.to("cpu"), want.numpy(), length=16)
    np.testing.assert_array_equal(ruda.scatter(*on, axis=1, mode=mode).numpy(), got.numpy())


def test_many_bad_indices_are_one_error(device: str) -> None:
    x = ruda.ones((100, 64), device=device)
    bad = ruda.full((1 << 20,), 100, dtype="int64", device=device)
    out = ruda.take(x, bad, axis=0)
    with pytest.raises(IndexRangeError, match=r"take: index out of range, queued at .*Got 100 at"):
        out.numpy()
    assert float(out.sum()) == float(1 << 26)


def test_one_bad_value_among_millions(device: str) -> None:
    target = ruda.zeros(1 << 20, dtype="int64", device=device)
    target[777_777] = 8
    loss = functional.cross_entropy(ruda.ones((1 << 20, 8), device=device), target)
    with pytest.raises(IndexRangeError, match=r"cross_entropy: no such.*Got 8 at \(777777,\)"):
        loss.numpy()
    p = ruda.full((1 << 22,), 0.5, device=device)
    p[3_000_001] = 2.0
    draw = ruda.random.bernoulli(p)
    with pytest.raises(ArgumentError, match=r"bernoulli: p is no.*p=2.0 at \(3000001,\)"):
        draw.numpy()
    p[3_000_001] = -1.0
    out = ruda.random.categorical(p.reshape(4, -1), 9)
    with pytest.raises(ArgumentError, match=r"categorical: bad probabilities.*Got -1.0"):
        out.numpy()


def test_joined_padded_and_cut(device: str, rng: np.random.Generator) -> None:
    parts = [rng.standard_normal((700, n)).astype("f") for n in (512, 1, 256, 31)]
    on = [ruda.asarray(p, device=device) for p in parts]
    whole = np.concatenate(parts, axis=1)
    np.testing.assert_array_equal(ruda.concat(on, axis=1).numpy(), whole)
    np.testing.assert_array_equal(
        ruda.concat(on[:1] * 20, axis=0).numpy(), np.tile(parts[0], (20, 1))
    )
    padded = ruda.pad(on[0], [(3, 1), (8, 4)], value=2.0)
    np.testing.assert_array_equal(
        padded.numpy(), np.pad(parts[0], [(3, 1), (8, 4)], constant_values=2.0)
    )
    np.testing.assert_array_equal(ruda.tril(on[0], k=5).numpy(), np.tril(parts[0], 5))
    np.testing.assert_array_equal(ruda.triu(on[0].T).numpy(), np.triu(parts[0].T))


def test_a_bad_index_of_a_graph_says_in_which_replay(device: str) -> None:
    table = ruda.ones((100, 64), device=device)
    good, bad = (ruda.full((1 << 16,), n, dtype="int64", device=device) for n in (99, 100))
    step = ruda.compile(lambda i: table[i].sum())
    for _ in range(5):
        assert float(step(good)) == float(1 << 22)
    with pytest.raises(IndexRangeError, match=r"in replay 6\. Got 100 at"):
        step(bad).numpy()
    found = [step(good), step(bad), step(good)]
    with pytest.raises(IndexRangeError, match=r"in one of the replays 7 to 9\. Got 100 at"):
        found[0].numpy()
    assert float(step(good)) == float(1 << 22)
