"""What is promised of indexing and of the operators that move elements by places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda

A = np.arange(60.0).reshape(3, 4, 5)
KEYS = {
    "basic": (1, slice(None), slice(0, 3)),
    "negative integer": (-1, -2),
    "ellipsis": (..., 2),
    "newaxis": (None, 1, None, ..., None),
    "negative step": (slice(None, None, -1), slice(3, 0, -2)),
    "empty slice": (slice(3, 1),),
    "step beyond": (slice(None, None, 9),),
    "integers": ([2, 0, 2],),
    "two lists together": ([0, 1], [3, 2]),
    "two lists apart": ([0, 1], slice(None), [3, 2]),
    "an integer beside a list": (0, slice(None), [3, 2]),
    "a grid": (np.array([[0], [2]]), np.array([1, 3])),
    "mask": (A > 30,),
    "mask of leading axes": (A[..., 0] > 20, 1),
    "mask between": (slice(None), np.array([True, False, True, True])),
    "True": (True,),
    "False": (False,),
    "numpy integer": (np.int8(-1), np.uint8(2)),
    "nothing": (),
    "an empty list": ([],),
}


@pytest.mark.parametrize("name", KEYS)
def test_reading_is_numpys(name: str) -> None:
    key = KEYS[name]
    got = ruda.asarray(A)[key]
    assert got.shape == A[key].shape and np.array_equal(got.numpy(), A[key])


@pytest.mark.parametrize("name", KEYS)
def test_writing_is_numpys(name: str) -> None:
    key = KEYS[name]
    for value in (-1.0, np.arange(A[key].size, dtype=np.float64).reshape(A[key].shape)):
        x, expected = ruda.tensor(A), A.copy()
        x[key], expected[key] = value, value
        assert np.array_equal(x.numpy(), expected)
        x[key] += 1
        expected[key] += 1
        assert np.array_equal(x.numpy(), expected)


@pytest.mark.parametrize("name", KEYS)
def test_tensors_as_keys_mean_what_arrays_mean(name: str) -> None:
    key = KEYS[name]
    mine = tuple(ruda.asarray(k) if isinstance(k, np.ndarray) else k for k in key)
    assert np.array_equal(ruda.asarray(A)[mine].numpy(), A[key])


@pytest.mark.parametrize("name", KEYS)
def test_the_gradient_of_reading_counts_how_often_a_place_was_read(name: str) -> None:
    key = KEYS[name]
    x = ruda.tensor(A, requires_grad=True)
    x[key].sum().backward()
    expected = np.zeros_like(A)
    np.add.at(expected, key, 1.0)
    assert x.grad is None or np.array_equal(x.grad.numpy(), expected)


def test_basic_keys_give_views_and_the_others_copies() -> None:
    x = ruda.tensor(A)
    assert x[1:, ::-1, None].is_view and x[0].is_view and x[...].is_view
    assert not x[[0]].is_view and not x[x > 3].is_view


@pytest.mark.parametrize("index", [3, -4, 2**70, -(2**70)])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x[i],
        lambda x, i: x[:, :, i + (2 if i > 0 else -2)],
        lambda x, i: x.__setitem__(i, 0),
    ],
)
def test_an_integer_out_of_range_raises(call: Any, index: int) -> None:
    with pytest.raises(IndexError, match=r"item: index out of range\. Got .* Expected "):
        call(ruda.asarray(A), index)


PLACES = {
    "index": lambda x, i: x[i],
    "take": lambda x, i: ruda.take(x, i, axis=0),
    "take_along_axis": lambda x, i: ruda.take_along_axis(x, i[:, None, None], axis=0),
    "gather": lambda x, i: ruda.gather(x, i.reshape((1, 1, 1)), axis=0),
    "scatter": lambda x, i: ruda.scatter(x, i.reshape((1, 1, 1)), 1.0, axis=0),
    "index_put": lambda x, i: ruda.index_put(x, (i,), 1.0),
    "index_put, accumulating": lambda x, i: ruda.index_put(x, (i,), 1.0, accumulate=True),
    "setitem": lambda x, i: ruda.copy(x).__setitem__(i, 1.0),
}


@pytest.mark.parametrize("index", [3, -4])
@pytest.mark.parametrize("name", PLACES)
def test_a_place_out_of_range_raises_with_the_value(name: str, index: int) -> None:
    with pytest.raises(ruda.IndexRangeError, match=rf"out of range. Got {index} .*-3 to 2"):
        PLACES[name](ruda.asarray(A), ruda.asarray([index]))


OUTSIDE = {
    "getitem": lambda x, i: x[i],
    "setitem": lambda x, i: x.__setitem__(i, 0.0),
    "take": lambda x, i: ruda.take(x, i, axis=0),
    "gather": lambda x, i: ruda.gather(x, ruda.stack([i] * 4, axis=1), axis=0),
    "scatter": lambda x, i: ruda.scatter(x, ruda.stack([i] * 4, axis=1), 1.0, axis=0, mode="max"),
    "index_add": lambda x, i: ruda.index_add(x, i, x[:1]),
    "index_put": lambda x, i: ruda.index_put(x, (i,), 1.0),
    "segment_sum": lambda x, i: ruda.segment_sum(x[:1], i, 3),
    "segment_max": lambda x, i: ruda.segment_max(x[:1], i, 3),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_place_out_of_range_is_told_in_the_name_of_what_was_called(name: str) -> None:
    with pytest.raises(IndexError, match=rf"^{name}: index out of range\. Got 9"):
        OUTSIDE[name](ruda.ones((3, 4)), ruda.asarray([9]))


@pytest.mark.parametrize("name", PLACES)
def test_places_are_integers(name: str) -> None:
    for places in (ruda.asarray([0.0]), ruda.asarray([1.0], dtype="float16")):
        with pytest.raises(TypeError, match="not an index"):
            PLACES[name](ruda.asarray(A), places)


@pytest.mark.parametrize("name", ["gather", "take_along_axis"])
def test_places_have_the_rank_of_the_tensor(name: str) -> None:
    with pytest.raises(ruda.ShapeError, match=f"{name}: the ranks differ. Got .* Expected 3 axes"):
        getattr(ruda, name)(ruda.asarray(A), ruda.asarray([0]), axis=0)


def test_every_integer_dtype_is_a_place() -> None:
    x = ruda.asarray(A)
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        places = ruda.asarray([2, 0], dtype=dtype)
        assert np.array_equal(x[places].numpy(), A[[2, 0]])
        assert np.array_equal(ruda.take(x, places, axis=1).numpy(), A.take([2, 0], 1))


@pytest.mark.parametrize("mode", ["set", "add", "min", "max", "mul"])
def test_scatter_meets_what_is_there(mode: str) -> None:
    base, places = np.array([[1.0, 5.0, 2.0]]), np.array([[0, 2, 0]])
    source = np.array([[4.0, -3.0, 3.0]])
    expected = base.copy()
    meet: Any = {"add": np.add, "min": np.minimum, "max": np.maximum, "mul": np.multiply}.get(mode)
    if meet is None:
        expected[0, places[0]] = source[0]
    else:
        meet.at(expected[0], places[0], source[0])
    x = ruda.asarray(base)
    got = ruda.scatter(x, ruda.asarray(places), ruda.asarray(source), axis=1, mode=mode)
    assert np.array_equal(got.numpy(), expected) and np.array_equal(x.numpy(), base)


def test_index_put_replaces_or_accumulates() -> None:
    x, places = ruda.zeros(4), (ruda.asarray([1, 1, 3]),)
    assert ruda.index_put(x, places, ruda.asarray([1.0, 2.0, 5.0])).tolist() == [0, 2, 0, 5]
    value = ruda.asarray([1.0, 2.0, 5.0])
    assert ruda.index_put(x, places, value, accumulate=True).tolist() == [0, 3, 0, 5]


def test_index_add_adds_repeated_places_up() -> None:
    x = ruda.ones((2, 3))
    got = ruda.index_add(x, ruda.asarray([0, 0]), ruda.asarray([[10.0], [5.0]]), axis=1)
    assert got.tolist() == [[21, 1, 1], [11, 1, 1]]


def test_where_broadcasts_and_promotes() -> None:
    cond = ruda.asarray([[True], [False]])
    got = ruda.where(cond, ruda.asarray([1, 2]), 0.5)
    assert got.tolist() == [[1, 2], [0.5, 0.5]] and got.dtype is ruda.float32
    with pytest.raises(ruda.DTypeError, match="where: the condition is not bool"):
        ruda.where(ruda.asarray([1, 0]), 1.0, 2.0)


def test_masked_select_and_nonzero_are_in_row_major_order() -> None:
    x = ruda.asarray(A).mT
    mask = x > 50
    assert np.array_equal(ruda.masked_select(x, mask).numpy(), A.swapaxes(1, 2)[mask.numpy()])
    for mine, theirs in zip(ruda.nonzero(mask), np.nonzero(mask.numpy()), strict=True):
        assert np.array_equal(mine.numpy(), theirs) and mine.dtype is ruda.int64


def test_segment_reductions() -> None:
    x, ids = ruda.asarray([1.0, 2.0, 3.0, 4.0]), ruda.asarray([0, 2, 2, 0])
    assert ruda.segment_sum(x, ids, 3).tolist() == [5, 0, 5]
    assert ruda.segment_mean(x, ids, 3).tolist()[::2] == [2.5, 2.5]
    assert ruda.segment_max(x, ids, 3).tolist()[::2] == [4, 3]
    assert ruda.segment_min(x, ids, 3).tolist()[::2] == [1, 2]


MOVES = {
    "roll": (lambda x: ruda.roll(x, (1, -2), axis=(0, 2)), lambda a: np.roll(a, (1, -2), (0, 2))),
    "flip": (lambda x: ruda.flip(x, axis=(0, 1)), lambda a: np.flip(a, (0, 1))),
    "repeat": (lambda x: ruda.repeat(x, 2, axis=1), lambda a: np.repeat(a, 2, 1)),
    "tile": (lambda x: ruda.tile(x, (2, 1, 1, 2)), lambda a: np.tile(a, (2, 1, 1, 2))),
    "pad constant": (
        lambda x: ruda.pad(x, ((0, 1), (2, 0), (1, 1)), value=7.0),
        lambda a: np.pad(a, ((0, 1), (2, 0), (1, 1)), constant_values=7.0),
    ),
    "pad reflect": (
        lambda x: ruda.pad(x, ((0, 2), (1, 1), (2, 2)), mode="reflect"),
        lambda a: np.pad(a, ((0, 2), (1, 1), (2, 2)), mode="reflect"),
    ),
    "pad edge": (
        lambda x: ruda.pad(x, ((0, 9), (1, 1), (2, 2)), mode="edge"),
        lambda a: np.pad(a, ((0, 9), (1, 1), (2, 2)), mode="edge"),
    ),
    "pad circular": (
        lambda x: ruda.pad(x, ((1, 2), (1, 1), (2, 2)), mode="circular"),
        lambda a: np.pad(a, ((1, 2), (1, 1), (2, 2)), mode="wrap"),
    ),
    "tril": (lambda x: ruda.tril(x, k=1), lambda a: np.tril(a, 1)),
    "triu": (lambda x: ruda.triu(x, k=-1), lambda a: np.triu(a, -1)),
    "diag": (lambda x: ruda.diag(x[0]), lambda a: np.diag(a[0])),
    "diag of a vector": (lambda x: ruda.diag(x[0, 0]), lambda a: np.diag(a[0, 0])),
    "meshgrid": (
        lambda x: ruda.stack(ruda.meshgrid(x[0, 0], x[:, 0, 0])),
        lambda a: np.stack(np.meshgrid(a[0, 0], a[:, 0, 0])),
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_moving_elements(name: str) -> None:
    mine, theirs = MOVES[name]
    assert np.array_equal(mine(ruda.asarray(A)).numpy(), theirs(A))
    assert np.array_equal(mine(ruda.asarray(A.T).permute(2, 1, 0)).numpy(), theirs(A))


def test_one_hot() -> None:
    assert ruda.one_hot(ruda.asarray([1, 0]), 3).tolist() == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(ruda.IndexRangeError):
        ruda.one_hot(ruda.asarray([3]), 3)


def test_fold_adds_up_what_unfold_took_apart() -> None:
    x = ruda.asarray(np.arange(24.0).reshape(2, 3, 4))
    windows = ruda.unfold(x, 2, step=2, axis=1)
    assert windows.is_view and windows.shape == (2, 1, 4, 2)
    assert np.array_equal(ruda.fold(windows, 2, step=2, axis=1).numpy(), x.numpy()[:, :2])
    times = ruda.fold(ruda.unfold(ruda.ones(5), 3), 5)
    assert times.tolist() == [1, 2, 3, 2, 1]


def test_a_nonzero_of_a_fixed_size_can_be_captured() -> None:
    x = ruda.asarray([0.0, 3.0, 0.0, 4.0])
    step = ruda.compile(lambda t: ruda.nonzero(t, size=3, fill_value=-1)[0])
    assert step(x).tolist() == [1, 3, -1]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.__setitem__(..., x[::-1]),
        lambda x: x.__setitem__(slice(1, None), x[:-1]),
        lambda x: x.__setitem__(slice(None, -1), x[1:]),
        lambda x: x.__setitem__([4, 3, 2, 1, 0], x),
        lambda x: x.__setitem__(x > 1, x[:3]),
        lambda x: x.__setitem__(slice(None, None, 2), x[:3]),
        lambda x: x.copy_(x[::-1]),
    ],
)
def test_a_value_that_overlaps_the_target_is_read_first(write: Any) -> None:
    mine, apart = ruda.arange(5.0), np.arange(5.0)

    class Apart:
        """An ndarray whose reads are copies, so that overlap cannot matter."""

        def __getitem__(self, key: Any) -> Any:
            return apart[key].copy()

        def __setitem__(self, key: Any, value: Any) -> None:
            apart[key] = np.copy(apart if value is self else value)

        def __gt__(self, other: Any) -> Any:
            return apart > other

        def copy_(self, value: Any) -> None:
            apart[...] = value

    write(Apart())
    write(mine)
    assert mine.tolist() == apart.tolist()
