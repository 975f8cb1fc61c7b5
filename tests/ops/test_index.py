"""``x[key]`` and functions that read or write at places: NumPy, loops and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import CaptureError, IndexRangeError, ShapeError
from ruda.ops import folding
from ruda.tensor.dispatch import OPS
from ruda.testing import assert_close, gradcheck
from tests.ops.keys import random_case

SEEDS = range(400)


def as_tensors(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(ruda.asarray(e) if isinstance(e, np.ndarray) else e for e in key)


@pytest.mark.parametrize("block", range(8))
def test_getitem_is_numpys(block: int) -> None:
    accepted = 0
    for seed in SEEDS[block::8]:
        array, key, _ = random_case(seed)
        x = ruda.asarray(array)
        for own in (key, as_tensors(key)):
            try:
                expected = array[key]
            except IndexError:
                with pytest.raises((IndexRangeError, ShapeError)):
                    x[own]
                continue
            got = x[own]
            assert got.shape == np.shape(expected), (seed, key)
            assert np.array_equal(got.numpy(), expected), (seed, key)
            accepted += 1
    assert accepted > 30


@pytest.mark.parametrize("seed", range(0, 400, 7))
def test_getitem_gradient(seed: int) -> None:
    array, key, _ = random_case(seed)
    try:
        array[key]
    except IndexError:
        pytest.skip("not a key of this array")
    gradcheck(lambda x: (x * x)[as_tensors(key)], [array])


def test_basic_keys_are_views_and_advanced_ones_are_copies() -> None:
    x = ruda.zeros((4, 3))
    assert all(x[key].is_view for key in (0, slice(1, 3), (..., -1), None, (), (0, 1)))
    assert not any(x[key].is_view for key in ([0], ruda.asarray(0), x[:, 0] == 0))


def test_one_plan_serves_every_offset() -> None:
    x = ruda.zeros((300, 8))
    before = len(OPS["slice"].hot)
    for i in range(290):
        x[i], x[-i], x[i : i + 7], x[i, i % 8]
    assert len(OPS["slice"].hot) - before <= 3


def test_views_of_views_do_not_pile_up() -> None:
    x = ruda.zeros((100, 8))
    kept = [x[i] for i in range(50)]
    for i in range(5000):
        x[i % 100][1:]
    assert len(x.handle.views) <= 4 * len(kept)


def test_indexing_a_traced_mask_raises() -> None:
    with pytest.raises(CaptureError, match="true_places"):
        ruda.compile(lambda x: x[x > 0])(ruda.ones(3))


def test_repeated_places_add_up() -> None:
    x = ruda.tensor(np.arange(3.0), requires_grad=True)
    x[[0, 2, 0, 0]].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 0, 1]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.uint32, np.uint64])
def test_every_integer_dtype_indexes(dtype: Any) -> None:
    places = np.array([2, 0, 1], dtype)
    x = ruda.asarray(np.arange(6.0).reshape(3, 2))
    assert np.array_equal(x[ruda.asarray(places)].numpy(), x.numpy()[places.astype(int)])
    assert ruda.index_add(x, ruda.asarray(places), 1.0).tolist() == (x + 1).tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take(axis: int, rng: np.random.Generator) -> None:
    x, places = rng.standard_normal((3, 4, 2)), np.array([[1, -1], [0, 0]])
    got = ruda.take(ruda.asarray(x), ruda.asarray(places), axis=axis)
    assert np.array_equal(got.numpy(), np.take(x, places, axis=axis))


@pytest.mark.parametrize(
    ("shape", "places", "axis"),
    [
        ((3, 4), (3, 2), 1),
        ((3, 4), (1, 4), 0),
        (
            (3, 1),
            (
                3,
                2,
            ),
            0,
        ),
    ],
)
def test_take_along_axis(shape: Any, places: Any, axis: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal(shape)
    index = rng.integers(-shape[axis], shape[axis], places)
    expected = np.take_along_axis(x, index, axis)
    got = ruda.take_along_axis(ruda.asarray(x), ruda.asarray(index), axis=axis)
    assert np.array_equal(got.numpy(), expected)
    gradcheck(lambda x: ruda.take_along_axis(x * x, ruda.asarray(index), axis=axis), [x])


def looped_scatter(x: Any, index: Any, src: Any, axis: int, combine: Any) -> Any:
    out = x.copy()
    for place in np.ndindex(index.shape):
        target = (*place[:axis], index[place], *place[axis + 1 :])
        out[target] = combine(out[target], src[place])
    return out


COMBINE = {
    "set": lambda a, b: b,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("mode", COMBINE)
@pytest.mark.parametrize("axis", [0, 1])
def test_scatter(mode: str, axis: int, rng: np.random.Generator) -> None:
    x, src = rng.standard_normal((4, 5)), rng.standard_normal((3, 4))
    index = rng.integers(-4, 4, (3, 4))
    expected = looped_scatter(x, index, src, axis, COMBINE[mode])

    def call(x: Any, src: Any) -> Any:
        return ruda.scatter(x, ruda.asarray(index), src, axis=axis, mode=mode)

    assert_close(call(ruda.asarray(x), ruda.asarray(src)), expected, length=12, name=mode)
    gradcheck(call, [x, src])


@pytest.mark.parametrize("mode", COMBINE)
def test_gather_undoes_scatter_where_places_differ(mode: str) -> None:
    index = ruda.asarray([[2, 0], [1, 3]])
    src = ruda.asarray([[1.0, 2.0], [3.0, 4.0]])
    base = {"mul": ruda.ones((2, 4)), "min": ruda.full((2, 4), 9.0)}.get(mode, ruda.zeros((2, 4)))
    out = ruda.scatter(base, index, src, axis=1, mode=mode)
    assert ruda.gather(out, index, axis=1).tolist() == src.tolist()


def test_multiplying_zeros_into_a_place() -> None:
    x = ruda.tensor([2.0, 3.0], requires_grad=True)
    src = ruda.tensor([0.0, 5.0, 7.0], requires_grad=True)
    ruda.scatter(x, ruda.asarray([0, 0, 1]), src, axis=0, mode="mul").sum().backward()
    assert x.grad is not None
    assert src.grad is not None
    assert x.grad.tolist() == [0, 7]
    assert src.grad.tolist() == [10, 0, 3]


def test_equal_extremes_share_the_gradient() -> None:
    x = ruda.tensor([1.0, 0.0], requires_grad=True)
    src = ruda.tensor([1.0, 1.0, 4.0], requires_grad=True)
    ruda.scatter(x, ruda.asarray([0, 0, 1]), src, axis=0, mode="max")[0].backward()
    assert x.grad is not None
    assert src.grad is not None
    assert np.allclose(x.grad.numpy(), [1 / 3, 0], rtol=1e-6)
    assert np.allclose(src.grad.numpy(), [1 / 3, 1 / 3, 0], rtol=1e-6)


@pytest.mark.parametrize("width", [1, 3, 40])
def test_index_add_of_many_rows(width: int, rng: np.random.Generator) -> None:
    x, src = rng.standard_normal((50, width)), rng.standard_normal((700, width))
    places = np.minimum(rng.geometric(0.1, 700), 50) - rng.integers(1, 51, 700) // 50
    places = np.clip(places, -50, 49)
    expected = x.copy()
    np.add.at(expected, places, src)
    got = ruda.index_add(ruda.asarray(x), ruda.asarray(places), ruda.asarray(src))
    assert_close(got, expected, length=700, name="index_add")


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate: bool, rng: np.random.Generator) -> None:
    x, values = rng.standard_normal((3, 4, 2)), rng.standard_normal((5, 2))
    rows, columns = np.array([0, 2, 0, -1, 0]), np.array([1, 3, 1, 0, 0])
    expected = x.copy()
    if accumulate:
        np.add.at(expected, (rows, columns), values)
    else:
        expected[rows, columns] = values

    def call(x: Any, values: Any) -> Any:
        key = (ruda.asarray(rows), ruda.asarray(columns))
        return ruda.index_put(x, key, values, accumulate=accumulate)

    assert_close(call(ruda.asarray(x), ruda.asarray(values)), expected, length=4, name="index_put")
    gradcheck(call, [x, values])


def test_index_put_by_mask() -> None:
    x = ruda.zeros((2, 3))
    out = ruda.index_put(x, ruda.asarray([[True, False, True], [False, False, True]]), 2.0)
    assert out.tolist() == [[2, 0, 2], [0, 0, 2]]


def test_masked_select(rng: np.random.Generator) -> None:
    x, mask = rng.standard_normal((3, 4)), np.array([True, False, True, True])
    got = ruda.masked_select(ruda.asarray(x), ruda.asarray(mask))
    assert np.array_equal(got.numpy(), x[np.broadcast_to(mask, x.shape)])
    gradcheck(lambda x: ruda.masked_select(x * x, ruda.asarray(mask)), [x])


def test_one_hot() -> None:
    got = ruda.one_hot(ruda.asarray([[0, 2], [1, 1]]), 4, dtype=ruda.int8)
    assert np.array_equal(got.numpy(), np.eye(4, dtype=np.int8)[[[0, 2], [1, 1]]])
    assert ruda.one_hot(ruda.asarray([1, 0])).shape == (2, 2)


@pytest.mark.parametrize("name", ["sum", "mean", "min", "max"])
@pytest.mark.parametrize("width", [(), (2,), (3, 4)])
def test_segments(name: str, width: tuple[int, ...], rng: np.random.Generator) -> None:
    x, ids = rng.standard_normal((9, *width)), np.array([3, 0, 1, 3, 3, 0, 1, 4, 3])
    empty = {"sum": 0.0, "mean": 0.0, "min": np.inf, "max": -np.inf}[name]
    expected = np.full((5, *width), empty)
    for i in set(ids.tolist()):
        expected[i] = getattr(np, name)(x[ids == i], axis=0)
    segment = getattr(ruda, f"segment_{name}")
    got = segment(ruda.asarray(x), ruda.asarray(ids))
    assert_close(got, expected, length=4, name=name)
    gradcheck(lambda x: segment(x, ruda.asarray(ids))[ruda.asarray([0, 1, 3, 4])], [x])


@pytest.mark.parametrize("step", [1, 2, 3])
def test_fold_is_the_adjoint_of_unfold(step: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((8, 3))
    windows = ruda.unfold(ruda.asarray(x), 4, step=step, axis=0)
    expected = np.lib.stride_tricks.sliding_window_view(x, 4, axis=0)[::step]
    assert np.array_equal(windows.numpy(), expected)
    weights = ruda.asarray(rng.standard_normal(windows.shape))
    left = float((windows * weights).sum())
    right = float((ruda.fold(weights, 8, step=step, axis=0) * ruda.asarray(x)).sum())
    assert left == pytest.approx(right, rel=1e-12)


def test_half_precision_sums_in_single() -> None:
    ones = ruda.ones((5000,), dtype="float16")
    assert ruda.segment_sum(ones, ruda.zeros(5000, dtype="int32"), 1).tolist() == [5000]
    windows = ruda.ones((3000, 3000), dtype="bfloat16")
    assert float(folding.fold(windows, 5999).max()) == pytest.approx(3000, rel=2**-8)


def test_against_torch(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x, src = rng.standard_normal((5, 4)), rng.standard_normal((3, 4))
    index = rng.integers(0, 5, (3, 4))
    ours, theirs = ruda.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    a = ruda.gather(ours[1:, [0, 3, 3]] * ours[0, 0], ruda.asarray(index[:, :3] % 4), axis=0)
    b = (theirs[1:, [0, 3, 3]] * theirs[0, 0]).gather(0, torch.tensor(index[:, :3] % 4))
    (a * a).sum().backward()
    (b * b).sum().backward()
    assert ours.grad is not None
    assert_close(ours.grad, theirs.grad.numpy(), length=60, name="gather")
    added = ruda.scatter(ours, ruda.asarray(index), ruda.asarray(src), axis=0, mode="add")
    expected = theirs.scatter_add(0, torch.tensor(index), torch.tensor(src))
    assert_close(added, expected.detach().numpy(), length=3, name="scatter")
