"""Seeded damage to files, and how many of each format a test run makes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

FEW = 500
MANY = 10_000

COUNTS = [FEW, pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]


def mutated(whole: bytes, count: int) -> Iterator[bytes]:
    """Copies of a file, each damaged in one to three places."""
    for seed in range(count):
        rng = random.Random(seed)
        raw = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            raw = _damaged(raw, rng)
        yield bytes(raw)


def _damaged(raw: bytearray, rng: random.Random) -> bytearray:
    start, stop = sorted(rng.randint(0, len(raw)) for _ in range(2))
    stop = min(stop, start + rng.choice((1, 2, 8, 64, len(raw))))
    kind = rng.randrange(7)
    if kind == 0:
        return raw[:start]
    if kind == 1:
        return raw[:start] + raw[stop:]
    if kind == 2:
        return raw[:start] + rng.randbytes(stop - start) + raw[stop:]
    if kind == 3:
        return raw[:stop] + raw[start:]
    if kind == 4:
        return raw[:start] + bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF))] * 4) + raw[start + 4 :]
    if not raw:
        return raw
    place = rng.randrange(len(raw))
    raw[place] ^= 1 << rng.randrange(8)
    return raw
