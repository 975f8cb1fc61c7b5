"""Where the values of a step lie: blocks of memory with the stages that need them, and views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.numpy.memory import address
from ruda.core.spec import Spec

LINE = 64


class Block:
    """A stretch of memory: ``slot`` numbers a base address of the call, 0 that of the arena.

    ``made`` is the stage that writes it, -1 for what is there before; ``last`` the last that
    reads or writes it.
    """

    __slots__ = ("last", "made", "offset", "size", "slot")

    def __init__(self, size: int, slot: int = 0, made: int = -1) -> None:
        self.size = -(-size // LINE) * LINE
        self.slot = slot
        self.offset = 0
        self.made = made
        self.last = made


class Place(NamedTuple):
    """A value: its block, the bytes from the block's start to the first element, its spec."""

    block: Block
    offset: int
    spec: Spec

    def seen(self, plan: Any, values: Sequence[Any]) -> Place:
        """What a row without work, such as a permutation, shows of this value."""
        shape, item = self.spec.shape, self.spec.dtype.numpy.itemsize
        strides = [s * item for s in self.spec.strides]
        # Nothing is read or written through it, only its address is looked at.
        one = np.empty(1, self.spec.dtype.numpy)
        stand_in = np.lib.stride_tricks.as_strided(one, shape, strides)
        shown = plan.op.numpy(stand_in, *values, *plan.attrs)
        return Place(self.block, self.offset + address(shown) - address(one), plan.out)


def lay_out(blocks: Sequence[Block]) -> int:
    """Give each block of the arena its offset, the first place that is free; the bytes in all."""
    placed: list[Block] = []
    size = 0
    for block in sorted(blocks, key=lambda b: (b.made, -b.size)):
        placed = [b for b in placed if b.last >= block.made]
        block.offset = _gap(placed, block.size)
        placed.append(block)
        size = max(size, block.offset + block.size)
    return size


def _gap(placed: Sequence[Block], size: int) -> int:
    """The lowest offset at which ``size`` bytes meet none of the blocks that are in use."""
    offset = 0
    for block in sorted(placed, key=lambda b: b.offset):
        if block.offset - offset >= size:
            break
        offset = max(offset, block.offset + block.size)
    return offset
