"""Committed values of one draw. Every backend must give the exact ones bit for bit.

They change only with the definition of the stream, which checkpoints and saved seeds rely on.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from ruda.ops.reference import philox, random, sampling

SEED, DRAW = 0x0123456789ABCDEF, 0xFEDCBA9876543210

WORDS = [
    0xAEF2ADF7, 0xF69B5950, 0x3CEB44F4, 0x89B6573A,
    0xEC2AB39F, 0x4671FD85, 0x74DECAE0, 0x4B77EC76,
]  # fmt: skip
# Attempt 3 from block 2**32 - 1, so the second block carries into counter word 1.
WORDS_ACROSS = [
    0x3E58F3FD, 0x88304319, 0xA55D6BDF, 0x7C1B6B65,
    0xC9FB688E, 0x27019BD5, 0x2262326E, 0x1A2960E5,
]  # fmt: skip
UNIFORM_LOW, UNIFORM_HIGH = -1.5, 2.0
UNIFORM: dict[str, list[str]] = {
    "float16": ["0x1.c8cp-1", "0x1.dfp+0", "-0x1.558p-1", "0x1.88p-2"],
    "bfloat16": ["0x1.c8p-1", "0x1.ep+0", "-0x1.56p-1", "0x1.88p-2"],
    "float32": ["0x1.c8a2b8p-1", "0x1.df1fb8p+0", "-0x1.559124p-1", "0x1.87f8c0p-2"],
    "float64": [
        "0x1.df1fb89a64514p+0", "0x1.87f8c52f54dd8p-2",
        "-0x1.12e211568ad53p-1", "-0x1.df7111859bd10p-2",
    ],
}  # fmt: skip
DROPOUT_HALF = [1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0]
INTEGERS: dict[tuple[int, int], list[int]] = {
    (-1000, 1000): [366, 926, -525, 75, 845, -450, -87, -411],
    (0, 3 << 30): [2201354873, 1058675250, 2722428439, 1732821355, 2971666103, 886406691],
    (-(2**63), 2**62): [
        4104049181486088825, -7068352402155047401, -5416284281861306697, 1531238947336756280,
    ],
}  # fmt: skip
PERMUTATION = [7, 2, 5, 9, 3, 1, 4, 8, 6, 0]
# Rounded functions: to a few units in the last place of the dtype.
NORMAL = [0.8494835, -0.1993875, -1.646566, -0.4001074, -0.06326387, 0.3965802]
NORMAL_WIDE = [-0.265698812, -0.0645634825, -0.446233238, 1.54322988, -0.172722424, 0.787510293]
EXPONENTIAL = [1.150086, 3.305194, 0.2717626, 0.7720574]
TRUNCATED = [0.8494835, -1.646566, -0.06326387, -0.3478554]
TRUNCATED_TAIL = [3.115263, 3.434675, 3.024415, 3.23741]
GAMMA = {0.5: [0.678815, 0.09556723, 0.08583134, 0.05815711], 5.0: [6.75281, 4.531331, 4.452921]}
CATEGORICAL = [3, 2, 1, 1, 3, 1, 3, 1]
CATEGORICAL_ORDER = [2, 3, 0, 1]

DTYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}


def assert_near(got: NDArray[Any], expected: list[float]) -> None:
    # The literals carry 7 digits, and a float32 result a few roundings of 6e-8.
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=1e-6, atol=1e-6)


def test_words() -> None:
    assert philox.words(SEED, DRAW, 8).tolist() == WORDS
    assert philox.words(SEED, DRAW, 8, 3, 2**32 - 1).tolist() == WORDS_ACROSS


@pytest.mark.parametrize("name", DTYPES)
def test_uniform(name: str) -> None:
    got = random.uniform(SEED, DRAW, (4,), UNIFORM_LOW, UNIFORM_HIGH, DTYPES[name])
    assert got.astype(np.float64).tolist() == [float.fromhex(text) for text in UNIFORM[name]]


def test_masks_integers_and_permutation() -> None:
    assert sampling.dropout_mask(SEED, DRAW, (16,), 0.5).tolist() == DROPOUT_HALF
    for (low, high), expected in INTEGERS.items():
        got = sampling.integers(SEED, DRAW, (len(expected),), low, high, np.int64)
        assert got.tolist() == expected
    assert sampling.permutation(SEED, DRAW, 10).tolist() == PERMUTATION


def test_rounded_distributions() -> None:
    assert_near(random.normal(SEED, DRAW, (6,)), NORMAL)
    assert_near(random.normal(SEED, DRAW, (6,), dtype=np.float64), NORMAL_WIDE)
    assert_near(random.exponential(SEED, DRAW, (4,)), EXPONENTIAL)
    assert_near(random.truncated_normal(SEED, DRAW, (4,)), TRUNCATED)
    tail = random.truncated_normal(SEED, DRAW, (4,), low=3.0, high=9.0)
    assert_near(tail, TRUNCATED_TAIL)
    for concentration, expected in GAMMA.items():
        assert_near(random.gamma(SEED, DRAW, (len(expected),), concentration), expected)


def test_categories() -> None:
    weights = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    assert sampling.categorical(SEED, DRAW, weights, 8).tolist() == CATEGORICAL
    order = sampling.categorical(SEED, DRAW, weights, 4, replacement=False)
    assert order.tolist() == CATEGORICAL_ORDER
