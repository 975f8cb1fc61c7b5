"""Sequences of different lengths in one tensor, step by step without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import index
from ruda.ops.conversion import asarray
from ruda.ops.create import arange
from ruda.ops.gather import take
from ruda.ops.join import stack
from ruda.ops.movement import expand_dims, reshape, swapaxes
from ruda.ops.select import where
from ruda.ops.tiling import pad
from ruda.tensor.tensor import RudaTensor


class PackedSequence(NamedTuple):
    """All steps of a batch of sequences, by time and then by falling length.

    ``data [sum(batch_sizes), *]``; ``batch_sizes[t]`` sequences have a step ``t``. ``order`` lists
    the sequences by falling length, None where they came so.
    """

    data: RudaTensor
    batch_sizes: tuple[int, ...]
    order: tuple[int, ...] | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """The length of each sequence, in the order of the batch."""
        batch = self.batch_sizes[0]
        found = [0] * batch
        for place, sequence in enumerate(self.order or range(batch)):
            found[sequence] = sum(size > place for size in self.batch_sizes)
        return tuple(found)


def _counts(name: str, lengths: Any, batch: int, steps: int) -> list[int]:
    values = lengths.tolist() if isinstance(lengths, RudaTensor) else lengths
    counts = [index(n, name, "lengths") for n in values]
    if len(counts) != batch:
        raise ShapeError(name, "lengths do not fit", f"{len(counts)} lengths", f"{batch}")
    if any(not 1 <= n <= steps for n in counts):
        raise ArgumentError(name, "a length does not fit", counts, f"1 to {steps}")
    return counts


def pack_padded_sequence(
    input: RudaTensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """``input [T, N, *]`` (``[N, T, *]`` with ``batch_first``) without what is behind ``lengths``.

    ``lengths [N]`` are read by the host; they must fall unless ``enforce_sorted`` is false. Raises
    ``ShapeError``, ``ArgumentError``.

    >>> packed = pack_padded_sequence(ruda.asarray([[1, 2], [3, 0]]), [2, 1])
    >>> packed.data.tolist(), packed.batch_sizes
    ([1, 2, 3], (2, 1))
    """
    name = "pack_padded_sequence"
    if input.ndim < 2:
        raise ShapeError(name, "no batch of sequences", input.shape, "[T, N, *] or [N, T, *]")
    x = swapaxes(input, 0, 1) if batch_first else input
    steps, batch = x.shape[:2]
    counts = _counts(name, lengths, batch, steps)
    order = sorted(range(batch), key=lambda n: -counts[n])
    ordered = order == list(range(batch))
    if enforce_sorted and not ordered:
        raise ArgumentError(name, "lengths do not fall", counts, hint="enforce_sorted=False")
    sizes = tuple(sum(n > t for n in counts) for t in range(max(counts, default=0)))
    places = [t * batch + n for t, size in enumerate(sizes) for n in order[:size]]
    rows = reshape(x, (steps * batch, *x.shape[2:]))
    data = take(rows, asarray(places, dtype="int64", device=x.device), axis=0)
    return PackedSequence(data, sizes, None if ordered else tuple(order))


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[RudaTensor, RudaTensor]:
    """What was packed as ``[T, N, *]``, filled with ``padding_value``, and its lengths, int64.

    ``T`` is ``total_length`` or the longest length. Raises ``ArgumentError`` if it is too short.
    """
    sizes, data = sequence.batch_sizes, sequence.data
    steps, batch = len(sizes), sizes[0]
    total = steps if total_length is None else index(total_length, "pad_packed_sequence")
    if total < steps:
        expected = f"at least {steps}"
        raise ArgumentError("pad_packed_sequence", "total_length is too short", total, expected)
    ranks = {n: place for place, n in enumerate(sequence.order or range(batch))}
    starts = [sum(sizes[:t]) for t in range(steps)]
    # Where nothing was packed any place will do.
    places = [
        starts[t] + ranks[n] if t < steps and ranks[n] < sizes[t] else 0
        for t in range(total)
        for n in range(batch)
    ]
    lengths = asarray(sequence.lengths, dtype="int64", device=data.device)
    rows = take(data, asarray(places, dtype="int64", device=data.device), axis=0)
    out = reshape(rows, (total, batch, *data.shape[1:]))
    inside = expand_dims(arange(total, device=data.device), 1) < lengths
    out = where(reshape(inside, (total, batch, *(1,) * (data.ndim - 1))), out, padding_value)
    return (swapaxes(out, 0, 1) if batch_first else out), lengths


def pad_sequence(
    sequences: Sequence[RudaTensor], batch_first: bool = False, padding_value: float = 0.0
) -> RudaTensor:
    """Tensors ``[T_i, *]`` as one ``[T, N, *]``, the shorter ones filled with ``padding_value``.

    >>> pad_sequence([ruda.asarray([1, 2]), ruda.asarray([3])], batch_first=True).tolist()
    [[1, 2], [3, 0]]
    """
    if not sequences:
        raise ArgumentError("pad_sequence", "no sequences", "an empty list", "at least one")
    longest = max(x.shape[0] for x in sequences)
    value = int(padding_value) if sequences[0].dtype.is_integer else padding_value
    rest = ((0, 0),) * (sequences[0].ndim - 1)
    filled = [pad(x, ((0, longest - x.shape[0]), *rest), value=value) for x in sequences]
    return stack(filled, axis=0 if batch_first else 1)


def pack_sequence(sequences: Sequence[RudaTensor], enforce_sorted: bool = True) -> PackedSequence:
    """``pack_padded_sequence`` of tensors ``[T_i, *]`` of different lengths.

    >>> packed = pack_sequence([ruda.ones((3, 2)), ruda.ones((1, 2))])
    >>> packed.data.shape
    (4, 2)
    """
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, False, enforce_sorted)


def unpack_sequence(sequence: PackedSequence) -> list[RudaTensor]:
    """The sequences that were packed, each in its own length."""
    padded, _ = pad_packed_sequence(sequence)
    return [padded[:n, i] for i, n in enumerate(sequence.lengths)]
