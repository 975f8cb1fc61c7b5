"""Philox 4x32-10, the counter-based generator under every random operator.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.

The key is the 64-bit seed, low word first. The counter words x0 to x3 are
    x0  element block, bits 0 to 31          x2  draw number, bits 0 to 31
    x1  element block, bits 32 to 47,        x3  draw number, bits 32 to 63
        and above them the 16-bit attempt
A call of an operator is one draw, whatever its size. Block b of a draw holds words 4b to 4b + 3,
so a word depends on (seed, draw, attempt, index) alone, never on how the work was divided.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ruda.core.errors import ArgumentError

Words = NDArray[np.uint32]
Wide = NDArray[np.uint64]

ROUNDS = 10
SEED_BITS = 64
DRAW_BITS = 64
BLOCK_BITS = 48
ATTEMPT_BITS = 16

# Six uint64 buffers of this length fit a 1 MiB cache; half or twice as many is 20 % slower.
CHUNK_BLOCKS = 16384
# So many blocks are quicker in Python's integers than in a hundred calls of NumPy: one took 16 us
# instead of 360 and four 67 instead of 320 (two busy cores).
_FEW_BLOCKS = 4

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_M0, _M1 = (np.uint64(m) for m in _MULTIPLIERS)
_LOW = 0xFFFFFFFF
_MASK = np.uint64(_LOW)
_HALF = np.uint64(32)


class Opening(NamedTuple):
    """Constants of a run of blocks that share x1, x2 and x3: rounds 1 to 3 mix only x0 in.

    after1: xored into x2 by round 1; after2: into (x0, x2) by round 2; after3: likewise by round 3.
    keys: the round keys of rounds 4 to 10.
    """

    after1: np.uint64
    after2: tuple[np.uint64, np.uint64]
    after3: tuple[np.uint64, np.uint64]
    keys: list[tuple[np.uint64, np.uint64]]


def words(seed: int, draw: int, n: int, attempt: int = 0, start_block: int = 0) -> Words:
    """The first n words of a draw, counted from block start_block; uint32 [n].

    Raises ArgumentError when a part of the counter does not fit its bits.

    >>> [hex(w) for w in words(seed=0, draw=0, n=4)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    out = np.empty(n, np.uint32)
    for first, chunk in chunks(seed, draw, n, attempt, start_block):
        out[first : first + chunk.size] = chunk[: n - first]
    return out


def chunks(
    seed: int, draw: int, n: int, attempt: int = 0, start_block: int = 0
) -> Iterator[tuple[int, Words]]:
    """Yield (index of the first word, words) over a draw, in cache-sized runs of whole blocks.

    The last chunk is padded to a whole block, and each chunk overwrites the one before.
    """
    blocks = -(-n // 4)
    check_counter(seed, draw, attempt, start_block, blocks)
    if blocks <= _FEW_BLOCKS:
        if blocks:
            yield 0, _few_words(seed, draw, attempt, range(start_block, start_block + blocks))
        return
    size = min(CHUNK_BLOCKS, blocks)
    ramp = np.arange(size, dtype=np.uint64)
    scratch = np.empty((5, size), np.uint64)
    buffer = np.empty((size, 4), np.uint32)
    done = 0
    while done < blocks:
        high, low = divmod(start_block + done, 1 << 32)
        count = min(size, blocks - done, (1 << 32) - low)
        opening = _opening(seed, draw, high | attempt << BLOCK_BITS - 32)
        x0 = np.add(ramp[:count], np.uint64(low), out=scratch[0, :count])
        _encrypt(x0, opening, scratch[1:, :count], buffer[:count])
        yield 4 * done, buffer[:count].reshape(-1)
        done += count


def words_at(seed: int, draw: int, blocks: Wide, attempt: int = 0) -> Words:
    """The words of chosen blocks, uint64 [m], in any order; uint32 [m, 4]."""
    last = int(np.max(blocks)) if blocks.size else 0
    check_counter(seed, draw, attempt, last, 1)
    out = np.empty((blocks.size, 4), np.uint32)
    highs = blocks >> _HALF
    for high in np.unique(highs):
        chosen = np.flatnonzero(highs == high)
        opening = _opening(seed, draw, int(high) | attempt << BLOCK_BITS - 32)
        for piece in np.split(chosen, range(CHUNK_BLOCKS, chosen.size, CHUNK_BLOCKS)):
            scratch = np.empty((4, piece.size), np.uint64)
            target = np.empty((piece.size, 4), np.uint32)
            _encrypt(blocks[piece] & _MASK, opening, scratch, target)
            out[piece] = target
    return out


def words_of(seed: int, draw: int, elements: Wide, width: int, attempt: int) -> Words:
    """The words that chosen elements own when each takes ``width`` of them; uint32 [m, width].

    width: 1, 2 or a multiple of 4. Element e owns words e * width to (e + 1) * width - 1.
    """
    if width >= 4:
        each = width // 4
        offsets = np.arange(each, dtype=np.uint64)
        blocks = elements[:, None] * np.uint64(each) + offsets
        return words_at(seed, draw, blocks.reshape(-1), attempt).reshape(-1, width)
    share = 4 // width
    block, lane = np.divmod(elements, np.uint64(share))
    found = words_at(seed, draw, block, attempt).reshape(elements.size, share, width)
    return found[np.arange(elements.size), lane.astype(np.intp)]


def check_counter(seed: int, draw: int, attempt: int, start_block: int, blocks: int) -> None:
    """Raise ArgumentError unless each part of the key and the counter fits its bits."""
    parts = (
        ("seed", seed, SEED_BITS),
        ("draw number", draw, DRAW_BITS),
        ("attempt", attempt, ATTEMPT_BITS),
        ("first block", start_block, BLOCK_BITS),
        ("last block", start_block + max(blocks, 1) - 1, BLOCK_BITS),
    )
    for name, value, bits in parts:
        if not 0 <= value < 1 << bits:
            expected = f"an integer from 0 to 2**{bits} - 1"
            raise ArgumentError("philox", f"the {name} does not fit its field", value, expected)


def _round_keys(seed: int) -> list[tuple[int, int]]:
    key0, key1 = seed & _LOW, seed >> 32
    step0, step1 = _KEY_STEPS
    return [((key0 + r * step0) & _LOW, (key1 + r * step1) & _LOW) for r in range(ROUNDS)]


def _few_words(seed: int, draw: int, attempt: int, blocks: range) -> Words:
    """The words of some blocks, one after the other."""
    out: list[int] = []
    m0, m1 = _MULTIPLIERS
    keys = _round_keys(seed)
    for block in blocks:
        x0, x1 = block & _LOW, block >> 32 | attempt << BLOCK_BITS - 32
        x2, x3 = draw & _LOW, draw >> 32
        for k0, k1 in keys:
            p0, p1 = x0 * m0, x2 * m1
            x0, x1, x2, x3 = p1 >> 32 ^ x1 ^ k0, p1 & _LOW, p0 >> 32 ^ x3 ^ k1, p0 & _LOW
        out += (x0, x1, x2, x3)
    return np.array(out, np.uint32)


def _opening(seed: int, draw: int, x1: int) -> Opening:
    (k00, k01), (k10, k11), (k20, k21), *rest = _round_keys(seed)
    m0, m1 = _MULTIPLIERS
    x2, x3 = draw & _LOW, draw >> 32
    product1 = x2 * m1
    product2 = ((product1 >> 32) ^ x1 ^ k00) * m0
    return Opening(
        after1=np.uint64(x3 ^ k01),
        after2=(np.uint64((product1 & _LOW) ^ k10), np.uint64((product2 >> 32) ^ k11)),
        after3=(np.uint64(k20), np.uint64((product2 & _LOW) ^ k21)),
        keys=[(np.uint64(k0), np.uint64(k1)) for k0, k1 in rest],
    )


def _encrypt(x0: Wide, opening: Opening, scratch: Wide, out: Words) -> None:
    """Ten rounds on the counters (x0, x1, x2, x3), in place; x0: [m], scratch: [4, m], out: [m, 4].

    Odd words x1 and x3 are the low halves of the products p1 and p0 of the round before, so they
    are masked only when the next round needs them.
    """
    x2, odd, p0, p1 = scratch
    multiply, shift, xor, mask = np.multiply, np.right_shift, np.bitwise_xor, np.bitwise_and

    multiply(x0, _M0, out=p0)
    shift(p0, _HALF, out=x2)
    xor(x2, opening.after1, out=x2)

    multiply(x2, _M1, out=p1)
    mask(p0, _MASK, out=odd)
    xor(odd, opening.after2[1], out=x2)
    shift(p1, _HALF, out=x0)
    xor(x0, opening.after2[0], out=x0)

    mask(p1, _MASK, out=odd)
    multiply(x0, _M0, out=p0)
    multiply(x2, _M1, out=p1)
    _half_round(p1, odd, opening.after3[0], x0)
    shift(p0, _HALF, out=x2)
    xor(x2, opening.after3[1], out=x2)

    for key0, key1 in opening.keys:
        # Both odd words live in one buffer: x1 is spent before x3 is unmasked.
        mask(p1, _MASK, out=odd)
        multiply(x2, _M1, out=p1)
        multiply(x0, _M0, out=x2)
        _half_round(p1, odd, key0, x0)
        mask(p0, _MASK, out=odd)
        p0, x2 = x2, p0
        _half_round(p0, odd, key1, x2)

    out[:, 0], out[:, 1], out[:, 2], out[:, 3] = x0, p1, x2, p0


def _half_round(product: Wide, odd: Wide, key: np.uint64, even: Wide) -> None:
    """even = high half of product ^ odd ^ key."""
    np.right_shift(product, _HALF, out=even)
    np.bitwise_xor(even, odd, out=even)
    np.bitwise_xor(even, key, out=even)
