"""Orders of samplers: functions of seed and epoch that cover what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruda.core.errors import ArgumentError, ShapeError
from ruda.data import (
    ArrayDataset,
    DataLoader,
    Sampler,
    SequentialSampler,
    ShardSampler,
    ShuffleSampler,
    WeightedSampler,
)


@given(st.integers(0, 30), st.integers(1, 5), st.booleans(), st.integers(0, 3))
def test_shards_cover_the_order(length: int, world: int, drop_last: bool, epoch: int) -> None:
    whole = ShuffleSampler(length)
    shards = [ShardSampler(whole, rank, world, drop_last=drop_last) for rank in range(world)]
    orders = [shard.order(5, epoch).tolist() for shard in shards]
    assert {len(order) for order in orders} == {len(shard) for shard in shards}
    together = [i for column in zip(*orders, strict=True) for i in column]
    order = whole.order(5, epoch).tolist()
    shared = min(length, len(together))
    assert together[:shared] == order[:shared]
    assert drop_last or set(together) == set(range(length))
    assert length - len(together) < world


def test_weights_are_frequencies() -> None:
    weights = np.array([0.0, 1.0, 3.0, 0.0])
    sampler = WeightedSampler(weights, samples=4000)
    counts = np.bincount(sampler.order(1, 0), minlength=4)
    assert counts[0] == counts[3] == 0
    # Three binomial deviations of 4000 draws with p = 3/4.
    assert abs(counts[2] - 3000) < 3 * np.sqrt(4000 * 0.75 * 0.25)
    assert sampler.order(1, 0).tolist() == sampler.order(1, 0).tolist()
    assert sampler.order(1, 0).tolist() != sampler.order(1, 1).tolist()


def test_without_replacement_nothing_comes_twice() -> None:
    sampler = WeightedSampler([1.0, 2.0, 0.0, 3.0], samples=3, replacement=False)
    for epoch in range(5):
        assert sorted(sampler.order(0, epoch).tolist()) == [0, 1, 3]


def test_a_loader_takes_samplers() -> None:
    sampler = ShardSampler(ShuffleSampler(7), rank=1, world=2)
    assert isinstance(sampler, Sampler)
    loader = DataLoader(ArrayDataset(np.arange(7)), 3, sampler=sampler, seed=9)
    assert len(loader) == 2
    got = [i for (batch,) in loader for i in batch.tolist()]
    assert got == sampler.order(9, 0).tolist()
    assert [i for (batch,) in loader for i in batch.tolist()] == sampler.order(9, 1).tolist()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: SequentialSampler(-1), ArgumentError, "length is too small. Got -1"),
        (lambda: WeightedSampler(np.ones((2, 2))), ShapeError, r"weights are not \[n\]"),
        (lambda: WeightedSampler([1.0, -2.0]), ArgumentError, r"negative or not finite. Got \[-2"),
        (lambda: WeightedSampler([np.nan, 1]), ArgumentError, "negative or not finite"),
        (lambda: WeightedSampler([0.0, 0.0]), ArgumentError, "too few weights are above zero"),
        (
            lambda: WeightedSampler([1.0, 0.0], 2, replacement=False),
            ArgumentError,
            "too few weights are above zero. Got 1 for 2",
        ),
        (lambda: ShardSampler(SequentialSampler(3), 2, 2), ArgumentError, "rank is too large"),
        (lambda: ShardSampler(SequentialSampler(3), 0, 0), ArgumentError, "world is too small"),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
