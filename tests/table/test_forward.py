"""Each row in each dtype against its reference in float64 and complex128.

The error is a ratio of norms below ``ruda.testing.tolerance``: four roundings of the dtype, and one
of the accumulator for each term of a sum. Integers and rows that move values must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ruda.testing import assert_close
from tests.table.cases import Case, length, parametrize, reference, run, typed, uncancelled


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, typed)


def test_forward(case: Case, rng: np.random.Generator) -> None:
    values = case.operands(rng)
    before = [v.copy() if isinstance(v, np.ndarray) else v for v in values]
    outputs, expected = run(case, values), reference(case, values)
    assert len(outputs) == len(expected)
    for got, want in zip(outputs, expected, strict=True):
        if case.op.exact:
            assert_same_bits(got.numpy(), want.astype(got.dtype.numpy))
        else:
            terms = {"length": length(values, outputs), "scale": uncancelled(case, values, got)}
            assert_close(got, want, **terms, name=case.op.name)
    for value, kept in zip(values, before, strict=True):
        if isinstance(value, np.ndarray):
            assert_same_bits(value, kept)


def assert_same_bits(got: Any, want: Any) -> None:
    """Equal in shape, dtype and every bit, signs of zeros and NaN payloads included."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert got.tobytes() == want.tobytes(), f"Got {got}. Expected {want}."
