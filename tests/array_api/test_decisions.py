"""The list of expected failures of array-api-tests: short, reasoned, and true of ruda as it is."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import ruda

XFAILS = Path(__file__).with_name("xfails.txt")
MOST = 10


def groups(text: str) -> list[tuple[str, list[str]]]:
    """The blocks of the file: a reason in comments, then the ids of tests."""
    blocks = [block.splitlines() for block in text.strip().split("\n\n")[1:]]
    return [
        (
            " ".join(line.removeprefix("# ") for line in block if line.startswith("#")),
            [line for line in block if not line.startswith("#")],
        )
        for block in blocks
    ]


def test_each_group_has_a_reason_and_ids() -> None:
    found = groups(XFAILS.read_text("utf-8"))
    assert found
    for reason, ids in found:
        assert "docs/adr/" in reason
        assert ids
        assert all(i.startswith("array_api_tests/test_") and "::test_" in i for i in ids)


def test_few_functions_are_listed() -> None:
    ids = [i for _, ids in groups(XFAILS.read_text("utf-8")) for i in ids]
    assert len({i.partition("[")[0] for i in ids}) <= MOST
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum", "cumulative_prod"])
def test_narrow_integers_accumulate_in_64_bits(name: str) -> None:
    for dtype, wide in ((ruda.int8, ruda.int64), (ruda.int32, ruda.int64), (ruda.uint16, "uint64")):
        result = getattr(ruda, name)(ruda.asarray([1, 2, 3], dtype=dtype))
        assert str(result.dtype) == str(wide)


def test_floor_division_at_infinities_is_that_of_numpy_and_python() -> None:
    infinities, numbers = np.array([np.inf, -np.inf]), np.array([[1.5], [-1.5]])
    for x, y in ((infinities, numbers), (numbers, infinities)):
        with np.errstate(all="ignore"):
            expected = np.floor_divide(x, y)
        np.testing.assert_array_equal(ruda.floor_divide(x, y).numpy(), expected)
    assert math.isnan(ruda.asarray([math.inf]).__floordiv__(1.0).tolist()[0])
    assert (ruda.asarray([1.0]) // -math.inf).tolist() == [1.0 // -math.inf] == [-1.0]
