"""Where the logits of a chunk of rows lie, before the gradients in them wait in blocks of classes.

A block has room for the gradients of all rows. What rows to come will need of it holds the logits
of the chunk, at its end: those of a third of the rows that are left. So the first chunks are large.
Blocks that come first lie in the front instead, as many as it has room for, and in the last chunks
all do. Of classes that are not kept the logits are gone through before, at the end of the largest
room, a range at a time: their statistics alone are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ruda.backends.cuda.prim.linear_parts import cut
from ruda.backends.cuda.prim.linear_places import Places, Sizes

Room = Literal["extra", "hidden", "weight"]
# Bytes that places are multiples of.
_STEP = 256


class Part(NamedTuple):
    """Classes whose logits lie together at byte ``at`` of a room, and the kept blocks in it."""

    low: int
    end: int
    first: int
    last: int
    room: Room
    at: int


class Chunk(NamedTuple):
    """Rows from, to, and the parts of all classes, in order of time."""

    start: int
    stop: int
    parts: list[Part]


def home(sizes: Sizes, found: Places, block: int) -> tuple[Room, int]:
    """Where gradients in the logits of a block wait: the room, and the byte of it."""
    if found.beside <= block < found.kept:
        return "hidden", 0
    if block >= found.inside:
        return "extra", 0
    elements = found.start + sizes.rows * found.blocks[block][0]
    return "weight", elements * sizes.width


class _Layout:
    """A plan's rooms, which fill with the gradients of rows from the first one on."""

    def __init__(self, sizes: Sizes, found: Places) -> None:
        self.sizes, self.found = sizes, found
        self.kept = found.blocks[found.kept - 1][1] if found.kept else 0
        own = found.beside - found.inside
        low, end = found.blocks[found.inside] if own else (0, 0)
        # Bytes of a row of what waits in extra memory.
        self.own = (end - low) * sizes.width

    def tail(self, block: int, start: int, count: int) -> tuple[Room, int] | None:
        """The place for logits at the end of the room of a block; None where there is none."""
        rows, _, _, width, wide, _ = self.sizes
        low, end = self.found.blocks[block]
        room, at = home(self.sizes, self.found, block)
        row = (end - low) * width
        last = at + rows * row - count * (end - low) * wide
        last -= last % (_STEP if row >= _STEP else wide)
        return (room, last) if last >= at + (start + count) * row else None

    def front(self, stop: int) -> tuple[int, int]:
        """The first and the last byte of extra memory behind what waits there of rows."""
        first = -(-stop * self.own // _STEP) * _STEP
        return first, self.found.extra + self.found.front

    def apart(self, start: int) -> int:
        """The most rows whose logits have places at the ends of the rooms of all blocks."""
        found = self.found
        count = _floor((self.sizes.rows - start) // 3) if found.kept else 0
        while count > 0 and any(self.tail(b, start, count) is None for b in range(found.kept)):
            count -= 1
        return count

    def together(self, start: int) -> int:
        """The most rows whose logits in all that is kept fit into the front."""
        classes, wide = self.kept or self.sizes.classes, self.sizes.wide
        first, end = self.front(start)
        count = max(1, (end - first - _STEP) // (classes * wide + self.own))
        return min(self.sizes.rows - start, _floor(count))


def _floor(count: int) -> int:
    """Whole tiles of a product."""
    step = 256 if count >= 512 else 128 if count >= 128 else 1
    return count - count % step


def chunks(sizes: Sizes, found: Places) -> Iterator[Chunk]:
    """The chunks of all rows."""
    layout, start = _Layout(sizes, found), 0
    while start < sizes.rows:
        apart, together = layout.apart(start), layout.together(start)
        stop = start + max(apart, together)
        front, end = layout.front(stop)
        room = end - found.extra if apart > together else end - front
        kept = _kept(layout, start, stop, apart > together)
        yield Chunk(start, stop, [*_passed(layout, start, stop, room), *kept])
        start = stop


def _kept(layout: _Layout, start: int, stop: int, apart: bool) -> list[Part]:
    """The parts of the classes that are kept."""
    found, count, wide = layout.found, stop - start, layout.sizes.wide
    if not layout.kept:
        return []
    blocks, (front, _) = found.blocks, layout.front(stop)
    if not apart:
        return [Part(0, layout.kept, 0, found.kept, "extra", front)]
    within = 0
    while within < found.inside and blocks[within][1] * count * wide <= found.front:
        within += 1
    parts = [Part(0, blocks[within - 1][1], 0, within, "extra", found.extra)] if within else []
    for b in range(within, found.kept):
        place = layout.tail(b, start, count)
        assert place is not None
        parts.append(Part(*blocks[b], b, b + 1, *place))
    return parts


def _passed(layout: _Layout, start: int, stop: int, room: int) -> list[Part]:
    """The parts of the classes that are not kept: in the front, or where more of them fit."""
    sizes, found, count = layout.sizes, layout.found, stop - start
    left = sizes.classes - layout.kept
    if not left:
        return []
    best: tuple[int, tuple[Room, int]] = (
        room // (count * sizes.wide),
        ("extra", found.extra + found.front - room),
    )
    for b in range(found.kept):
        place, (low, end) = layout.tail(b, start, count), found.blocks[b]
        if place is not None and end - low > best[0]:
            best = end - low, place
    most, place = best
    size = -(-left // -(-left // most))
    size = min(most, -(-size // 64) * 64)
    return [Part(i, j, 0, 0, *place) for i, j in cut(layout.kept, sizes.classes, size)]
