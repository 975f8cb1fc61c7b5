"""Joining samples into a batch: stacked, padded to one length, or packed without padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.nesting import loop_in
from ruda.ops.conversion import asarray
from ruda.tensor.tensor import RudaTensor, from_array


def collate(samples: Sequence[Any]) -> Any:
    """Join samples into a batch, structure by structure.

    Numbers and arrays become one tensor with a leading axis, as do CPU tensors; tuples, lists and
    mappings are joined part by part; strings and None stay a list. Raises ``ShapeError`` for
    arrays of different shapes: ``Pad`` and ``Pack`` join those.

    >>> collate([(1, {"x": 2.0}), (3, {"x": 4.0})])[0].tolist()
    [1, 3]
    """
    return joined(samples, _stacked)


class Padded(NamedTuple):
    """Sequences of different lengths in one tensor.

    ``values [B, T, …]``; ``lengths [B]``, int64; ``mask [B, T]``, true where a value is real.
    """

    values: RudaTensor
    lengths: RudaTensor
    mask: RudaTensor


class Pad:
    """A ``collate`` that pads arrays along their first axis to the longest of the batch.

    Every array of at least one axis becomes a ``Padded``; the rest is joined as by ``collate``.
    The padded length is a multiple of ``multiple``; few different lengths mean few compiled steps.
    ``side="left"`` puts the padding in front. Raises ``ShapeError`` for arrays that differ in
    other axes.

    >>> batch = Pad(value=-1)([np.array([1, 2, 3]), np.array([4])])
    >>> batch.values.tolist(), batch.lengths.tolist()
    ([[1, 2, 3], [4, -1, -1]], [3, 1])
    """

    def __init__(self, value: float = 0, *, multiple: int = 1, side: str = "right") -> None:
        if multiple < 1:
            raise ArgumentError("Pad", "multiple is too small", multiple, "at least 1")
        if side not in ("left", "right"):
            raise ArgumentError("Pad", "unknown side", repr(side), '"left" or "right"')
        self.value = value
        self.multiple = multiple
        self.side = side

    def __repr__(self) -> str:
        return f"Pad({self.value}, multiple={self.multiple}, side={self.side!r})"

    def __call__(self, samples: Sequence[Any]) -> Any:
        return joined(samples, self._padded)

    def _padded(self, samples: Sequence[Any]) -> Any:
        arrays = _arrays(samples)
        if arrays[0].ndim == 0:
            return _stacked(arrays)
        _check_sequences("Pad", arrays)
        lengths = np.array([len(a) for a in arrays], np.int64)
        longest = -(-int(lengths.max()) // self.multiple) * self.multiple
        shape = (len(arrays), longest, *arrays[0].shape[1:])
        values = np.full(shape, self.value, arrays[0].dtype)
        mask = np.zeros(shape[:2], bool)
        for i, array in enumerate(arrays):
            start = 0 if self.side == "right" else longest - len(array)
            place = i, slice(start, start + len(array))
            values[place], mask[place] = array, True
        return Padded(*(from_array(a, "cpu") for a in (values, lengths, mask)))


class Packed(NamedTuple):
    """Sequences one after the other: ``values [N, …]``; sequence i is offsets[i] to offsets[i+1].

    ``offsets`` is int64 ``[B + 1]``.
    """

    values: RudaTensor
    offsets: RudaTensor

    def positions(self) -> RudaTensor:
        """Int64 ``[N]``: the place of each value within its sequence."""
        offsets = self.offsets.numpy()
        starts = np.repeat(offsets[:-1], np.diff(offsets))
        return from_array(np.arange(offsets[-1]) - starts, "cpu")


class PackedRows(NamedTuple):
    """Sequences in rows of one length.

    ``values [R, length, …]``; ``segments [R, length]`` counts the sequences of a row from 1, with 0
    for padding: attention is allowed where two are equal. ``positions [R, length]`` are places
    within a sequence. Both are int64.
    """

    values: RudaTensor
    segments: RudaTensor
    positions: RudaTensor


class Pack:
    """A ``collate`` that puts sequences one after the other instead of padding each.

    Every array of at least one axis becomes a ``Packed``; with ``length`` a ``PackedRows``, whose
    rows are filled by ``bins`` and padded with ``value``. Arrays of one sample that have the same
    lengths get the same places. Raises ``ShapeError`` for a sequence longer than ``length``.

    >>> rows = Pack(length=4)([np.array([1, 2, 3]), np.array([4, 5]), np.array([6])])
    >>> rows.values.tolist(), rows.segments.tolist()
    ([[1, 2, 3, 6], [4, 5, 0, 0]], [[1, 1, 1, 2], [1, 1, 0, 0]])
    """

    def __init__(self, length: int | None = None, *, value: float = 0) -> None:
        if length is not None and length < 1:
            raise ArgumentError("Pack", "length is too small", length, "at least 1")
        self.length = length
        self.value = value

    def __repr__(self) -> str:
        return f"Pack({self.length}, value={self.value})"

    def __call__(self, samples: Sequence[Any]) -> Any:
        return joined(samples, self._packed)

    def _packed(self, samples: Sequence[Any]) -> Any:
        arrays = _arrays(samples)
        if arrays[0].ndim == 0:
            return _stacked(arrays)
        _check_sequences("Pack", arrays)
        if self.length is not None:
            return self._rows(arrays, self.length)
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        return Packed(from_array(np.concatenate(arrays), "cpu"), from_array(offsets, "cpu"))

    def _rows(self, arrays: Sequence[Any], length: int) -> PackedRows:
        rows = bins([len(a) for a in arrays], length)
        shape = (len(rows), length)
        values = np.full((*shape, *arrays[0].shape[1:]), self.value, arrays[0].dtype)
        segments, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, members in enumerate(rows):
            start = 0
            for segment, member in enumerate(members, 1):
                place = row, slice(start, start + len(arrays[member]))
                values[place], segments[place] = arrays[member], segment
                positions[place] = np.arange(len(arrays[member]))
                start = place[1].stop
        return PackedRows(*(from_array(a, "cpu") for a in (values, segments, positions)))


def bins(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices of ``lengths`` in few groups, none with a sum above ``capacity``.

    First fit by decreasing length, which needs at most 11/9 of the fewest groups, plus one
    (Johnson, "Near-optimal bin packing algorithms", 1973). Raises ``ShapeError`` for a length above
    the capacity.

    >>> bins([3, 5, 2, 4], 7)
    [[1, 2], [3, 0]]
    """
    groups: list[list[int]] = []
    room: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if lengths[i] > capacity:
            got = f"sequence {i} of length {lengths[i]}"
            raise ShapeError("bins", "a sequence is too long", got, f"at most {capacity}")
        group = next((g for g, free in enumerate(room) if free >= lengths[i]), len(groups))
        if group == len(groups):
            groups.append([])
            room.append(capacity)
        groups[group].append(i)
        room[group] -= lengths[i]
    return groups


def joined(samples: Sequence[Any], leaf: Callable[[Sequence[Any]], Any]) -> Any:
    """Samples of one structure as a structure of batches; ``leaf`` joins arrays."""
    try:
        return _joined(samples, leaf)
    except RecursionError:
        place = loop_in(samples[0], "sample 0")
        if place is None:
            raise
        what = f"{place} is a container that it lies in itself"
        raise DTypeError(
            "collate", what, type(samples[0]).__name__, "each container once"
        ) from None


def _joined(samples: Sequence[Any], leaf: Callable[[Sequence[Any]], Any]) -> Any:
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: _joined([_part(s, key, first) for s in samples], leaf) for key in first}
    if isinstance(first, tuple | list):
        _check_lengths(samples)
        parts = [_joined(part, leaf) for part in zip(*samples, strict=True)]
        named = hasattr(first, "_fields")
        return type(first)(*parts) if named else type(first)(parts)
    if first is None or isinstance(first, str | bytes):
        return list(samples)
    if isinstance(first, bool | int | float | complex) and not isinstance(first, np.generic):
        return asarray(list(samples), device="cpu")
    return leaf(samples)


def _check_lengths(samples: Sequence[Any]) -> None:
    for i, sample in enumerate(samples):
        if not isinstance(sample, tuple | list):
            got = f"{type(sample).__name__} beside {type(samples[0]).__name__}"
            raise DTypeError("collate", f"sample {i} of the batch has another structure", got)
    lengths = {len(s) for s in samples}
    if len(lengths) != 1:
        raise ShapeError("collate", "samples of different lengths", sorted(lengths))


def _part(sample: Any, key: Any, first: Mapping[Any, Any]) -> Any:
    if not isinstance(sample, Mapping) or key not in sample or len(sample) != len(first):
        got = sorted(map(str, sample)) if isinstance(sample, Mapping) else type(sample).__name__
        expected = sorted(map(str, first))
        raise ArgumentError("collate", "samples with different keys", got, expected)
    return sample[key]


def _arrays(samples: Sequence[Any]) -> list[Any]:
    arrays = [s.numpy() if isinstance(s, RudaTensor) else s for s in samples]
    for a in arrays:
        if not isinstance(a, np.ndarray | np.generic):
            hint = "a collate function of your own"
            raise DTypeError("collate", "cannot join", type(a).__name__, hint=hint)
    return arrays


def _stacked(samples: Sequence[Any]) -> RudaTensor:
    arrays = _arrays(samples)
    shapes = {np.shape(a) for a in arrays}
    if len(shapes) != 1:
        hint = "collate=ruda.data.Pad()"
        raise ShapeError("collate", "samples of different shapes", sorted(shapes), hint=hint)
    return from_array(np.stack(arrays), "cpu")


def _check_sequences(op: str, arrays: Sequence[Any]) -> None:
    kinds = {(str(a.dtype), np.shape(a)[1:], np.ndim(a)) for a in arrays}
    if len(kinds) != 1:
        got = sorted({f"{a.dtype} {np.shape(a)}" for a in arrays})
        raise ShapeError(op, "sequences differ beyond their first axis", got)
