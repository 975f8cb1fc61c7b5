"""Tensors as planes: leading axes as a batch and a channel axis, up to three axes of positions."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of

THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 16


class Planes(NamedTuple):
    """Strides in elements along three positions (0 for axes that are not there), batch, channel."""

    strides: Shape
    batch: int
    channel: int
    batches: int
    channels: int

    def packed(self) -> bytes:
        """Five strides and two counts, as the kernels take them."""
        counts = (self.batches, self.channels)
        return struct.pack("<5q2I", *self.strides, self.batch, self.channel, *counts)


def planes_of(spec: Spec, rank: int) -> Planes | None:
    """The planes of the last ``rank`` axes; None where the others need more than two strides."""
    first = spec.ndim - rank
    axes: list[list[int]] = []
    for size, stride in zip(spec.shape[:first], spec.strides[:first], strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = [axes[-1][0] * size, stride]
        else:
            axes.append([size, stride])
    if len(axes) > 2:
        return None
    (batches, batch), (channels, channel) = ([[1, 0]] * 2 + axes)[-2:]
    positions = (0,) * (3 - rank) + spec.strides[first:]
    return Planes(positions, batch, channel, batches, channels)


class Source(NamedTuple):
    """The planes of an operand, and the function that makes its handle one they describe."""

    planes: Planes
    settle: Any


def source_of(client: Any, spec: Spec, rank: int) -> Source:
    """The operand as it lies, or a dense copy where its leading axes fit no two strides."""
    found = planes_of(spec, rank)
    if found is not None:
        return Source(found, lambda h: h)
    dense = spec_of(client, spec.shape, spec.dtype)
    planes, settle = planes_of(dense, rank), dense_copy(client, spec)
    assert planes is not None
    return Source(planes, settle)


def dense_copy(client: Any, spec: Spec) -> Any:
    """A function from a handle of ``spec`` to a row-major one; itself if it is so already."""
    if spec.contiguous:
        return lambda h: h
    return client.copier(spec_of(client, spec.shape, spec.dtype), spec)


def axes_bytes(*columns: Shape) -> bytes:
    """Three ``struct Axis`` from columns of sizes, counts, kernels, steps, lows, highs and gaps."""
    padded = [(fill,) * (3 - len(c)) + tuple(c) for c, fill in zip(columns, _FILL, strict=True)]
    return struct.pack("<21i", *(n for axis in zip(*padded, strict=True) for n in axis))


# An axis that is not there: one element, one window over it.
_FILL = (1, 1, 1, 1, 0, 0, 1)


def shape_of_launch(client: Any, plane: int, planes: int) -> tuple[tuple[int, int], Shape]:
    """Grid and block: positions along x, planes along y."""
    across = min(THREADS, max(32, 1 << (plane - 1).bit_length()))
    down = THREADS // across
    blocks = -(-plane // across)
    most = max(1, client.driver.multiprocessors * BLOCKS_PER_MULTIPROCESSOR // blocks)
    return (blocks, min(-(-planes // down), most, 65535)), (across, down)
