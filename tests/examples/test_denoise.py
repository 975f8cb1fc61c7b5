"""The denoiser of examples/denoise.py for a few steps: it learns, compiles, writes a picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.loading import example

SHORT = [
    *("--steps", "300"),
    *("--width", "64"),
    *("--depth", "1"),
    *("--levels", "16"),
    *("--rows", "2"),
    *("--batch", "64"),
    *("--rate", "1e-2"),
]

pytest.importorskip("sklearn", reason="the digits are those of scikit-learn")
pillow = pytest.importorskip("PIL.Image", reason="pictures are written through pillow")


@pytest.fixture(scope="module")
def denoise() -> Iterator[Any]:
    with example("denoise") as module:
        yield module


@pytest.fixture(scope="module")
def run(denoise: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return denoise.main([*SHORT, "--out", str(tmp_path_factory.mktemp("whole"))])


def test_it_finds_the_noise(run: Any) -> None:
    # Saying nothing costs 1.
    assert np.mean(run.losses[-20:]) < 0.6


def test_the_picture_shows_what_was_made(denoise: Any, run: Any) -> None:
    image = np.asarray(pillow.open(run.path))
    assert image.shape == (2 * 10 * 4, 10 * 10 * 4)
    np.testing.assert_array_equal(image, denoise.tiled(run.pictures, 10))
    assert run.pictures.shape == (20, 8, 8)
    assert np.abs(run.pictures).max() <= 1
    # Ink in the middle, paper at the left edge, as digits have it.
    assert run.pictures[:, :, 0].mean() < run.pictures[:, 2:6, 3:5].mean() - 0.4


def test_tiles_stand_row_by_row(denoise: Any) -> None:
    pictures = np.full((4, 8, 8), -1.0)
    pictures[1] = 1.0
    page = denoise.tiled(pictures, 2, zoom=1)
    assert page.shape == (20, 20)
    assert np.argwhere(page == 0).min(axis=0).tolist() == [1, 11]
    assert np.argwhere(page == 0).max(axis=0).tolist() == [8, 18]


def test_compiled_steps_are_the_eager_ones(denoise: Any, run: Any, tmp_path: Path) -> None:
    other = denoise.main([*SHORT, "--out", str(tmp_path), "--compile"])
    assert other.losses == run.losses
    np.testing.assert_array_equal(other.pictures, run.pictures)
