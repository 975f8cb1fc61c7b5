"""Order, batches, resuming, joining and errors of the loader."""

from __future__ import annotations

import io
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from ruda.data import (
    ArrayDataset,
    DataLoader,
    Dataset,
    SampleError,
    SequentialSampler,
    TensorDataset,
    collate,
    progress,
)


def numbers(count: int) -> ArrayDataset:
    return ArrayDataset(np.arange(count))


def epoch(loader: DataLoader) -> list[list[int]]:
    return [batch.tolist() for (batch,) in loader]


def test_batches_cover_the_data_in_order() -> None:
    loader = DataLoader(numbers(7), batch_size=3)
    assert epoch(loader) == [[0, 1, 2], [3, 4, 5], [6]]
    assert len(loader) == 3
    whole = DataLoader(numbers(7), batch_size=3, drop_last=True)
    assert epoch(whole) == epoch(whole) == [[0, 1, 2], [3, 4, 5]]
    assert len(whole) == 2
    assert epoch(DataLoader(numbers(2), batch_size=3, drop_last=True)) == []


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    one, two = (DataLoader(numbers(50), 8, shuffle=True, seed=5) for _ in range(2))
    first = epoch(one)
    ruda.random.normal((100,))
    assert epoch(two) == first
    second = epoch(one)
    assert second == epoch(two)
    assert second != first
    for order in (first, second):
        assert sorted(i for batch in order for i in batch) == list(range(50))
    assert epoch(DataLoader(numbers(50), 8, shuffle=True, seed=6)) != first


@pytest.mark.parametrize("taken", [0, 1, 4, 7, 9])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_state_goes_on_with_the_next_batch(taken: int, drop_last: bool) -> None:
    def stream(loader: DataLoader) -> Any:
        while True:
            yield from loader

    settings: dict[str, Any] = {"batch_size": 4, "shuffle": True, "drop_last": drop_last}
    loader = DataLoader(numbers(18), seed=1, **settings)
    batches = stream(loader)
    for _ in range(taken):
        next(batches)
    other = DataLoader(numbers(18), **settings)
    other.load_state_dict(loader.state_dict())
    rest = stream(other)
    for _ in range(12):
        assert next(rest)[0].tolist() == next(batches)[0].tolist()


def test_an_epoch_that_was_left_is_not_gone_on_with() -> None:
    loader = DataLoader(numbers(6), 2, shuffle=True)
    orders = [epoch(DataLoader(numbers(6), 2, shuffle=True, seed=0))]
    fresh = DataLoader(numbers(6), 2, shuffle=True)
    epoch(fresh)
    orders.append(epoch(fresh))
    next(iter(loader))
    assert epoch(loader) == orders[1]


def test_two_iterators_do_not_disturb_each_other() -> None:
    loader = DataLoader(numbers(4), 2)
    pairs = [(a.tolist(), b.tolist()) for (a,), (b,) in zip(loader, loader, strict=True)]
    assert pairs == [([0, 1], [0, 1]), ([2, 3], [2, 3])]


def test_whole_batches_and_samples_are_the_same(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((5, 3)).astype(np.float32), ruda.arange(5)
    data = TensorDataset(x, y)
    assert isinstance(data, Dataset)
    for fast, slow in zip(DataLoader(data, 2), DataLoader(data, 2, collate=collate), strict=True):
        for a, b in zip(fast, slow, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    images, labels = next(iter(DataLoader(data, 4)))
    assert (images.dtype, labels.dtype) == (ruda.float32, ruda.int32)


def test_a_batch_is_apart_from_the_data() -> None:
    values = np.zeros((4, 2), np.float32)
    data = ArrayDataset(values)
    (batch,), (sample,) = next(iter(DataLoader(data, 4))), data[0]
    batch += 1
    sample += 1
    assert not values.any()


def test_samples_are_joined_by_structure() -> None:
    Point = namedtuple("Point", "x y")
    samples = [
        {
            "point": Point(i, float(i)),
            "pair": [np.ones(2) * i, ruda.ones(2) * i],
            "name": f"sample {i}",
            "flag": i > 0,
            "scalar": np.float64(i),
            "none": None,
        }
        for i in range(3)
    ]
    batch = collate(samples)
    assert isinstance(batch["point"], Point)
    assert batch["point"].x.dtype is ruda.int32
    assert batch["point"].y.tolist() == [0.0, 1.0, 2.0]
    assert batch["pair"][0].dtype is ruda.float64
    assert batch["pair"][1].shape == (3, 2)
    assert batch["name"] == ["sample 0", "sample 1", "sample 2"]
    assert batch["flag"].dtype is ruda.bool
    assert batch["scalar"].dtype is ruda.float64
    assert batch["none"] == [None] * 3


def test_a_progress_bar_begins_where_a_resumed_epoch_does() -> None:
    pytest.importorskip("tqdm")
    loader = DataLoader(numbers(6), 2)
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    bar = progress(loader, disable=False, file=io.StringIO())
    assert (bar.n, bar.total) == (1, 3)
    assert [batch.tolist() for (batch,) in bar] == [[2, 3], [4, 5]]
    assert bar.n == 3


class Broken:
    """A dataset whose sample 3 cannot be read."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        return 10 // (index - 3)


def test_an_error_names_the_sample() -> None:
    loader = DataLoader(Broken(), 2)
    batches = iter(loader)
    next(batches)
    match = r"dataset\[3\] raised ZeroDivisionError: integer"
    with pytest.raises(SampleError, match=match) as found:
        next(batches)
    assert isinstance(found.value.__cause__, ZeroDivisionError)
    assert loader.state_dict()["position"] == 2


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: DataLoader(numbers(3), 0), ArgumentError, r"batch_size is too small. Got 0"),
        (lambda: DataLoader(numbers(3), num_workers=-1), ArgumentError, "num_workers is too small"),
        (lambda: DataLoader(numbers(3), prefetch=0), ArgumentError, "prefetch is too small. Got 0"),
        (lambda: DataLoader(numbers(3), processes=True), ArgumentError, "there are no workers"),
        (lambda: DataLoader(numbers(3), sampler=[1]), ArgumentError, "not a sampler. Got list"),
        (
            lambda: DataLoader(numbers(3), shuffle=True, sampler=SequentialSampler(3)),
            ArgumentError,
            "a sampler has an order of its own",
        ),
        (
            lambda: next(iter(DataLoader(numbers(3), sampler=SequentialSampler(4)))),
            IndexRangeError,
            "leave the dataset. Got 0 to 3. Expected 0 to 2",
        ),
        (lambda: DataLoader(numbers(3)).load_state_dict({}), ArgumentError, "not a loader's state"),
        (
            lambda: DataLoader(numbers(3)).load_state_dict(DataLoader(numbers(4)).state_dict()),
            ArgumentError,
            r"of another length. Got 4. Expected 3",
        ),
        (lambda: ArrayDataset(), ArgumentError, "ArrayDataset: there are no arrays"),
        (lambda: ArrayDataset(np.ones(2), np.ones(3)), ShapeError, r"differ. Got \[2, 3\]"),
        (lambda: ArrayDataset(np.ones(())), ShapeError, "a 0-d array has no rows"),
        (lambda: ArrayDataset([1, 2]), DTypeError, r"not an array or tensor. Got list"),
        (lambda: collate([np.ones(2), np.ones(3)]), ShapeError, "samples of different shapes"),
        (lambda: collate([(1, 2), (1,)]), ShapeError, "samples of different lengths"),
        (lambda: collate([{"a": 1}, {"b": 1}]), ArgumentError, "samples with different keys"),
        (lambda: collate([object()]), DTypeError, r"collate: cannot join. Got object"),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
