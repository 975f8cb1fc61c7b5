"""The digits of examples/digits.py for a few epochs: it learns, eager and compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from tests.examples.loading import example

SHORT = ["--images", "320", "--epochs", "5", "--width", "8", "--batch", "32", "--rate", "2e-2"]

pytest.importorskip("sklearn", reason="the digits are those of scikit-learn")


@pytest.fixture(scope="module")
def digits() -> Iterator[Any]:
    with example("digits") as module:
        yield module


@pytest.fixture(scope="module")
def run(digits: Any) -> Any:
    return digits.main(SHORT)


def test_it_learns_to_read(run: Any) -> None:
    # The seed is fixed, and so is this run; guessing would read one in ten.
    assert run.accuracy > 0.4
    assert run.losses[-1] < run.losses[0] - 0.5
    assert len(run.wrong) == round((1 - run.accuracy) * 359)
    assert all(digit != found for digit, found in run.wrong)


@pytest.mark.parametrize("more", [["--compile"], ["--workers", "2"]], ids=lambda m: m[0])
def test_it_is_the_same_run(digits: Any, run: Any, more: list[str]) -> None:
    other = digits.main([*SHORT, *more])
    assert other.losses == run.losses
    assert other.wrong == run.wrong


def test_shifts_keep_the_digit_whole(digits: Any) -> None:
    pixels = np.zeros((8, 8), np.uint8)
    pixels[3:5, 3:5] = 16
    sample = ruda.asarray(pixels), ruda.asarray(7)
    ruda.random.seed(0)
    places = set()
    for _ in range(50):
        moved, label = digits.shifted(sample)
        assert (moved.shape, moved.dtype, label) == ((1, 8, 8), np.float32, 7)
        assert (moved == 1).sum() == 4
        assert (moved == -1).sum() == 60
        places.add(tuple(np.argwhere(moved == 1)[0]))
    assert len(places) == 9
