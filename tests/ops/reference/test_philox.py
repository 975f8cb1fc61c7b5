"""Philox 4x32-10 against its published vectors and a slow second implementation."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ruda.ops.reference import philox

LOW = 0xFFFFFFFF


def slow_block(counter: list[int], key: list[int]) -> list[int]:
    """One block, word by word, as the paper writes it."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = x0 * 0xD2511F53, x2 * 0xCD9E8D57
        x0, x1, x2, x3 = (p1 >> 32) ^ x1 ^ k0, p1 & LOW, (p0 >> 32) ^ x3 ^ k1, p0 & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return [x0, x1, x2, x3]


def slow_words(seed: int, draw: int, block: int, attempt: int) -> list[int]:
    counter = [block & LOW, block >> 32 | attempt << 16, draw & LOW, draw >> 32]
    return slow_block(counter, [seed & LOW, seed >> 32])


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([LOW] * 4, [LOW] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_published_vectors(counter: list[int], key: list[int], expected: str) -> None:
    block = counter[0] | (counter[1] & 0xFFFF) << 32
    got = philox.words(
        seed=key[0] | key[1] << 32,
        draw=counter[2] | counter[3] << 32,
        n=4,
        attempt=counter[1] >> 16,
        start_block=block,
    )
    assert " ".join(f"{word:08x}" for word in got) == expected
    assert slow_block(counter, key) == got.tolist()


def test_random_counters_agree_with_slow_implementation() -> None:
    source = random.Random(7)
    for _ in range(60):
        seed, draw = source.getrandbits(64), source.getrandbits(64)
        block, attempt = source.getrandbits(48), source.getrandbits(16)
        got = philox.words(seed, draw, 4, attempt, block)
        assert got.tolist() == slow_words(seed, draw, block, attempt)
        chosen = philox.words_at(seed, draw, np.array([block], np.uint64), attempt)
        assert chosen[0].tolist() == got.tolist()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 7, 4099])
def test_any_length_is_a_prefix(n: int) -> None:
    got = philox.words(3, 5, n)
    assert got.dtype == np.uint32 and got.shape == (n,)
    np.testing.assert_array_equal(got, philox.words(3, 5, 5000)[:n])


@pytest.mark.parametrize("size", [1, 3, 64, 1 << 20])
def test_chunk_size_does_not_show(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = np.arange(500, dtype=np.uint64)[::-1]
    expected, chosen = philox.words(11, 13, 2001), philox.words_at(11, 13, blocks)
    monkeypatch.setattr(philox, "CHUNK_BLOCKS", size)
    np.testing.assert_array_equal(philox.words(11, 13, 2001), expected)
    np.testing.assert_array_equal(philox.words_at(11, 13, blocks), chosen)
    np.testing.assert_array_equal(chosen[::-1].reshape(-1), expected[:2000])


def test_more_than_one_chunk_joins_without_a_seam() -> None:
    n = 4 * philox.CHUNK_BLOCKS + 6
    tail = philox.words(1, 2, 14, start_block=philox.CHUNK_BLOCKS - 2)
    np.testing.assert_array_equal(philox.words(1, 2, n)[-14:], tail)


@pytest.mark.parametrize("start", [(1 << 32) - 3, (1 << 33) - 1, (1 << 48) - 6])
def test_block_counter_beyond_32_bits(start: int) -> None:
    expected = [word for b in range(6) for word in slow_words(9, 4, start + b, 2)]
    assert philox.words(9, 4, 24, 2, start).tolist() == expected
    order = np.array([5, 0, 3, 1, 4, 2], np.uint64)
    chosen = philox.words_at(9, 4, order + np.uint64(start), 2)
    np.testing.assert_array_equal(chosen, np.reshape(expected, (6, 4))[order.astype(int)])


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_words_of_elements_equal_the_dense_ones(width: int) -> None:
    dense = philox.words(1, 2, 1000 * width, attempt=3).reshape(1000, width)
    elements = np.array([999, 0, 1, 2, 3, 500, 500, 17], np.uint64)
    chosen = philox.words_of(1, 2, elements, width, attempt=3)
    np.testing.assert_array_equal(chosen, dense[elements.astype(int)])
    assert philox.words_of(1, 2, elements[:0], width, attempt=3).shape == (0, width)


@pytest.mark.parametrize(
    ("seed", "draw", "n", "attempt", "start_block", "field"),
    [
        (-1, 0, 4, 0, 0, "seed"),
        (1 << 64, 0, 4, 0, 0, "seed"),
        (0, 1 << 64, 4, 0, 0, "draw number"),
        (0, 0, 4, 1 << 16, 0, "attempt"),
        (0, 0, 0, 0, 1 << 48, "first block"),
        (0, 0, 5, 0, (1 << 48) - 1, "last block"),
    ],
)
def test_counter_fields_are_checked(
    seed: int, draw: int, n: int, attempt: int, start_block: int, field: str
) -> None:
    with pytest.raises(ValueError, match=f"philox: the {field} does not fit"):
        philox.words(seed, draw, n, attempt, start_block)


def test_one_changed_bit_changes_half_of_the_words() -> None:
    base = philox.words(0, 0, 4096)
    variants = [philox.words(1 << bit, 0, 4096) for bit in range(64)]
    variants += [philox.words(0, 1 << bit, 4096) for bit in range(64)]
    variants += [philox.words(0, 0, 4096, 1 << bit) for bit in range(16)]
    variants += [philox.words(0, 0, 4096, start_block=1 << bit) for bit in range(10, 48)]
    bits = 4096 * 32
    for variant in variants:
        flipped = int(np.bitwise_count(base ^ variant).sum())
        # Binomial(bits, 1/2): 5 standard deviations.
        assert abs(flipped - bits / 2) < 5 * (bits / 4) ** 0.5


def test_every_bit_is_balanced() -> None:
    n = 1 << 18
    got = philox.words(2024, 1, n)
    for bit in range(32):
        ones = int((got >> np.uint32(bit) & np.uint32(1)).sum())
        assert abs(ones - n / 2) < 5 * (n / 4) ** 0.5


def test_few_blocks_are_those_of_many() -> None:
    """Few go through Python's integers, many through NumPy."""
    seed, draw, attempt, start = 2**64 - 3, 2**40 + 7, 5, 2**32 - 2
    many = philox.words(seed, draw, 64, attempt, start)
    for n in range(33):
        few = philox.words(seed, draw, n, attempt, start)
        assert few.dtype == np.uint32 and few.tolist() == many[:n].tolist()
