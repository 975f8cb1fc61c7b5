"""Where gradients in the logits of blocks of classes wait until the weight's gradient is due.

They fill the memory of the weight's gradient from its end, in the order of the classes, so that
what a block gives overwrites only what blocks before it have needed. A block may so be as large as
the first one and all before it together. Those of the next block are in extra memory, and those of
one more in the gradient of the hidden states; of all others the logits are computed again.

Behind the extra memory there is room for the sum that becomes the gradient of the hidden states,
where the last rows' logits are before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ruda.backends.cuda.prim.linear_parts import cut

# Bytes for all that is needed beside operands and gradients.
_ALL = 496 << 20
# Classes of the first block in the weight's gradient, and the fewest that are computed again.
_FIRST, _FEWEST = 4096, 1024
# Rows of a chunk of logits that there is room for always and, where all is kept, if it can be.
_CHUNK, _LARGE = 256, 1024
# Bytes of logits that are computed again at a time, or more.
_AGAIN = 64 << 20
# Bytes that places are multiples of.
_STEP = 256


class Places(NamedTuple):
    """A layout: blocks of classes, and where they wait.

    Those before ``inside`` are in the gradient of the weight from element ``start`` on, those
    before ``beside`` in extra memory, those before ``kept`` in the gradient of the hidden states,
    which is written last. There are ``extra`` bytes of it and ``front`` behind it. ``again`` rows
    of a block are computed again at a time.
    """

    blocks: list[tuple[int, int]]
    inside: int
    start: int
    beside: int
    kept: int
    extra: int
    front: int
    again: int


class Sizes(NamedTuple):
    """Of hidden states [rows, high] and classes: bytes of an operand and of what is computed.

    ``total`` are the bytes of the sum for the hidden states, 0 where it is not wanted.
    """

    rows: int
    high: int
    classes: int
    width: int
    wide: int
    total: int


def _even(start: int, stop: int, most: int) -> Iterator[tuple[int, int]]:
    """Parts of up to ``most`` that are alike."""
    size = -(-(stop - start) // -(-(stop - start) // most))
    return cut(start, stop, min(most, -(-size // 8) * 8))


def _floor(n: int, step: int) -> int:
    """A multiple of ``step`` if ``n`` has one."""
    return n - n % step if n > step else n


def _inside(sizes: Sizes, first: int) -> tuple[list[tuple[int, int]], int]:
    """The blocks that the gradient of the weight has room for, and from which element on."""
    rows, high, classes = sizes[:3]
    top = _floor(min((classes - first) * high // rows, classes - first), 64)
    blocks: list[tuple[int, int]] = []
    start = _floor(classes * high - rows * top, 64)
    low = 0
    while low < top:
        # What a block gives ends where its own gradients begin, or before.
        end = min(top, low + _floor((start + rows * low) // high - low, 64))
        if end <= low or (blocks and end - low < min(first, _FIRST) // 2):
            break
        blocks.append((low, end))
        low = end
    return blocks, _floor(classes * high - rows * low, 64)


def places(sizes: Sizes) -> Places:
    """The layout for a plan."""
    rows, high, classes, width, wide, total = sizes
    logits = classes * wide
    front = max(total, min(rows, _CHUNK) * logits)
    room = max(0, _ALL - front)
    fitting = room // (rows * width)
    # Where all can be kept, blocks may be large from the first one on.
    first = max(_FIRST, min(fitting, classes // 4)) if rows <= high else _FIRST
    blocks, start = _inside(sizes, first)
    inside, top = len(blocks), blocks[-1][1] if blocks else 0
    own = min(classes - top, _floor(fitting, 64))
    blocks += [(top, top + own)] if own else []
    beside, low = len(blocks), top + own
    # As many classes as hidden states have elements fill the memory of their gradient.
    blocks += [(low, min(classes, low + high))] if total and low < classes else []
    kept, extra, again, low = len(blocks), rows * own * width, 0, blocks[-1][1] if blocks else 0
    if low == classes:
        front = max(front, min(_ALL - extra, min(rows, _LARGE) * logits))
    else:
        # What is computed again begins at a multiple of _STEP behind the gradients.
        extra = max(room, min(_FEWEST, classes) * rows * width + _AGAIN + _STEP)
        most = _floor((extra - _AGAIN - _STEP) // (rows * width), 8)
        blocks += _even(low, classes, most)
        low, end = blocks[kept]
        left = extra - rows * (end - low) * width - _STEP
        again = min(rows, _floor(left // ((end - low) * wide), 128))
    extra = -(-extra // _STEP) * _STEP
    return Places(blocks, inside, start, beside, kept, extra, front, again)
