"""Ranges for profilers: named by operators and by the lines that called them, and only if asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from tests.fusion.dry import dry

HERE = "test_ranges.py"


@pytest.fixture
def driver() -> Iterator[Any]:
    with dry() as client:
        yield client.driver
        ruda.cuda.nvtx(False)


def on(*shape: int) -> Any:
    return ruda.asarray(np.ones(shape, "float32"), device="cuda")


def line_of(name: str) -> int:
    """The number at the end of a range's name."""
    assert HERE in name
    return int(name.rpartition(":")[2])


def test_eager_operators_are_named_while_the_switch_is_on(driver: Any) -> None:
    x = on(4, 8)
    F.layer_norm(x)
    assert not driver.ranges
    ruda.cuda.nvtx()
    F.layer_norm(x)
    F.softmax(x)
    first, second = driver.ranges
    assert first.startswith("layer_norm ") and second.startswith("softmax ")
    assert line_of(second) == line_of(first) + 1
    ruda.cuda.nvtx(False)
    F.softmax(x)
    assert len(driver.ranges) == 2 and driver.depth == 0


def test_an_operator_that_fails_closes_its_range(driver: Any) -> None:
    ruda.cuda.nvtx()
    driver.launch = None
    with pytest.raises(TypeError):
        on(4, 8) * 2
    assert driver.depth == 0


def test_operators_of_a_step_are_named_by_the_lines_that_were_traced(driver: Any) -> None:
    def plain(x: Any) -> Any:
        y = F.softmax(x)
        return y @ y.T

    step, x = ruda.compile(plain), on(8, 8)
    step(x)
    step(x)
    driver.ranges.clear()
    ruda.cuda.nvtx()
    step(x)
    # A replay is one launch.
    assert not driver.ranges
    step.measure()
    names = dict.fromkeys(driver.ranges)
    traced = plain.__code__.co_firstlineno
    assert {name.partition(" ")[0]: line_of(name) - traced for name in names} == {
        "softmax": 1,
        "matmul": 2,
        "permute": 2,
    }
    assert driver.depth == 0
