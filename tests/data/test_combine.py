"""Datasets of datasets are what lists of their samples would be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruda import data
from ruda.core.errors import ArgumentError, IndexRangeError

NUMBERS = st.lists(st.integers(0, 99), max_size=12)


@given(NUMBERS, NUMBERS)
def test_map_filter_and_concat_are_those_of_lists(a: list[int], b: list[int]) -> None:
    both = data.concat(a, b)
    assert list(both) == a + b
    assert list(data.map(both, str)) == [str(n) for n in a + b]
    assert list(data.filter(both, lambda n: n % 3)) == [n for n in a + b if n % 3]
    for i in range(-len(both), len(both)):
        assert both[i] == (a + b)[i]


@given(NUMBERS, st.integers(1, 5), st.integers(1, 5))
def test_windows(numbers: list[int], size: int, stride: int) -> None:
    expected = [numbers[i : i + size] for i in range(0, len(numbers) - size + 1, stride)]
    assert [w.tolist() for w in data.window(numbers, size, stride)] == expected
    if numbers:
        whole = data.window(data.ArrayDataset(np.array(numbers)), size, stride)
        assert [w.tolist() for (w,) in whole] == expected


@given(st.integers(0, 20), st.integers(0, 3))
def test_shuffle_sample_and_split_take_each_once(length: int, seed: int) -> None:
    everything = list(range(length))
    assert sorted(data.shuffle(everything, seed)) == everything
    assert list(data.shuffle(everything, seed)) == list(data.shuffle(everything, seed))
    drawn = list(data.sample(everything, length // 2, seed))
    assert len(set(drawn)) == length // 2 and set(drawn) <= set(everything)
    parts = data.split(everything, 0.6, 0.3, 0.1, seed=seed)
    assert sorted(n for part in parts for n in part) == everything
    assert all(abs(len(p) - length * f) < 1.5 for p, f in zip(parts, (0.6, 0.3, 0.1), strict=True))


def test_sampling_with_replacement_may_repeat() -> None:
    drawn = list(data.sample(range(3), 50, replacement=True))
    assert len(drawn) == 50 and set(drawn) == {0, 1, 2}
    assert list(data.sample([], 0, replacement=True)) == []


def test_subsets_keep_whole_batches() -> None:
    rows = data.ArrayDataset(np.arange(10))
    part = data.shuffle(rows, seed=2)
    assert part.batch(np.array([1, 3]))[0].tolist() == part.indices[[1, 3]].tolist()
    loader = data.DataLoader(part, 4)
    assert [n for (batch,) in loader for n in batch.tolist()] == part.indices.tolist()
    assert not hasattr(data.shuffle(range(3)), "batch")


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: data.concat(), ArgumentError, "there are no datasets"),
        (lambda: data.concat("ab")[2], IndexRangeError, "leaves the dataset. Got 2. Expected -2"),
        (lambda: data.map("ab", str)[-3], IndexRangeError, "map: the index leaves"),
        (lambda: data.window("ab", 0), ArgumentError, "size or stride is too small"),
        (lambda: data.sample("ab", 3), ArgumentError, "cannot draw so many. Got 3"),
        (lambda: data.sample("", 1, replacement=True), ArgumentError, "cannot draw so many"),
        (lambda: data.split("ab", 2, 1), ArgumentError, "the parts are too long"),
        (lambda: data.split("ab", 0.5, 0.4), ArgumentError, "do not sum to 1"),
        (lambda: data.split("ab", 1.5, -0.5), ArgumentError, "a part is negative"),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
