"""Padding and packing keep every value, and say where it went."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ruda
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.data import Pack, Packed, PackedRows, Pad, Padded, bins, collate

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def sequences(lengths: list[int]) -> list[Any]:
    ends = np.cumsum(lengths)
    return [np.arange(end - n, end) + 1 for n, end in zip(lengths, ends, strict=True)]


@given(LENGTHS, st.integers(1, 4), st.sampled_from(["left", "right"]))
def test_padding(lengths: list[int], multiple: int, side: str) -> None:
    batch = Pad(-1, multiple=multiple, side=side)(sequences(lengths))
    assert isinstance(batch, Padded)
    assert batch.lengths.tolist() == lengths
    width = batch.values.shape[1]
    assert width % multiple == 0 and 0 <= width - max(lengths) < multiple
    for row, sequence in zip(batch.values.tolist(), sequences(lengths), strict=True):
        padding = [-1] * (width - len(sequence))
        expected = [*padding, *sequence] if side == "left" else [*sequence, *padding]
        assert row == expected


@given(LENGTHS)
def test_the_mask_says_what_is_real(lengths: list[int]) -> None:
    batch = Pad(0)(sequences(lengths))
    np.testing.assert_array_equal(batch.mask.numpy(), batch.values.numpy() > 0)


def test_padding_on_the_left_has_its_mask_there() -> None:
    batch = Pad(0, side="left")(sequences([3, 1]))
    np.testing.assert_array_equal(batch.mask.numpy(), batch.values.numpy() > 0)


@given(LENGTHS)
def test_packing(lengths: list[int]) -> None:
    batch = Pack()(sequences(lengths))
    assert isinstance(batch, Packed)
    offsets = batch.offsets.tolist()
    for i, sequence in enumerate(sequences(lengths)):
        assert batch.values.tolist()[offsets[i] : offsets[i + 1]] == sequence.tolist()
    assert batch.positions().tolist() == [p for n in lengths for p in range(n)]


@given(LENGTHS, st.integers(9, 20))
def test_packed_rows_hold_every_sequence_whole(lengths: list[int], length: int) -> None:
    batch = Pack(length, value=-1)(sequences(lengths))
    assert isinstance(batch, PackedRows)
    found = []
    for values, segments, positions in zip(*(part.numpy() for part in batch), strict=True):
        assert (values[segments == 0] == -1).all()
        for segment in range(1, segments.max(initial=0) + 1):
            found.append(values[segments == segment].tolist())
            assert positions[segments == segment].tolist() == list(range(len(found[-1])))
    wanted = [s.tolist() for s in sequences(lengths) if len(s)]
    assert sorted(s for s in found if s) == sorted(wanted)


@given(st.lists(st.integers(0, 10), max_size=40))
def test_bins_are_few_and_not_too_full(lengths: list[int]) -> None:
    groups = bins(lengths, 10)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    sums = [sum(lengths[i] for i in group) for group in groups]
    assert max(sums, default=0) <= 10
    # No two bins could be one.
    assert all(a + b > 10 for i, a in enumerate(sums) for b in sums[:i])


def test_structures_are_padded_part_by_part() -> None:
    samples = [{"x": ruda.ones((n, 2)), "y": n, "name": "a" * n} for n in (1, 3)]
    batch = Pad()(samples)
    assert batch["x"].values.shape == (2, 3, 2)
    assert batch["x"].values.dtype is ruda.float32
    assert batch["y"].tolist() == [1, 3]
    assert batch["name"] == ["a", "aaa"]
    assert Pack()(samples)["x"].values.shape == (4, 2)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: Pad(multiple=0), ArgumentError, "multiple is too small"),
        (lambda: Pad(side="up"), ArgumentError, "unknown side. Got 'up'"),
        (lambda: Pack(0), ArgumentError, "length is too small"),
        (lambda: Pack(2)(sequences([1, 3])), ShapeError, "sequence 1 of length 3. Expected at mos"),
        (lambda: Pad()([np.ones((2, 3)), np.ones((2, 4))]), ShapeError, "beyond their first axis"),
        (lambda: Pad()([np.ones(2), np.ones(2, int)]), ShapeError, "beyond their first axis"),
        (lambda: Pack()([np.ones(2), object()]), DTypeError, "cannot join. Got object"),
        (lambda: collate([(1,), 2]), DTypeError, "sample 1 of the batch has another structure"),
        (lambda: collate([{"a": 1}, 2]), ArgumentError, "different keys. Got int"),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
