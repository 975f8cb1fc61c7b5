"""The examples on the GPU: a captured step, which is one graph there, gives the eager losses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

import ruda
from ruda import data
from ruda.testing import assert_close
from tests.examples.loading import example

RUNS = {
    "gpt": "--steps 8 --width 16 --context 16 --layers 1 --batch 8 --rate 1e-2 --reports 1",
    "lstm": "--steps 8 --batch 8 --length 16 --width 16 --layers 1 --rate 1e-2 --sample 4",
    "digits": "--images 128 --epochs 2 --width 8 --batch 32 --rate 1e-2",
    "denoise": "--steps 8 --width 32 --depth 1 --levels 4 --rows 1 --batch 32 --rate 1e-2",
    "resnet": "--steps 8 --images 160 --epochs 2 --batch 40 --width 4 --every 100 --rate 0.1",
}
WITH_TEXT, WITH_OUT = ("gpt", "lstm"), ("gpt", "denoise", "resnet")


class Silent:
    """A progress bar that shows nothing."""

    def __init__(self, items: Any = (), **_: Any) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, *_: object) -> None:
        """Takes what would be shown."""

    update = set_postfix_str = set_description = write


def pictures(side: int, most: int) -> data.ArrayDataset:
    """Class n is n bars, in noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 400)
    images = rng.integers(0, 1 + most // 4, (400, side, side)).astype(np.uint8)
    for bar in range(9):
        images[labels > bar, side * bar // 9] = most
    return data.ArrayDataset(images, labels)


@pytest.fixture
def at_home(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tensors on the GPU, and no package or data set that has to be installed."""
    plots = MagicMock()
    plots.pyplot.subplots.return_value = MagicMock(), MagicMock()
    shown = {"tqdm": MagicMock(tqdm=Silent), "matplotlib": plots, "PIL": MagicMock()}
    for name, module in shown.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(data.known, "digits", lambda: pictures(8, 16))
    monkeypatch.setattr(data.known, "fashion_mnist", lambda folder: (pictures(28, 255),) * 2)
    ruda.set_default_device(device)
    yield
    ruda.set_default_device(None)


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize("name", RUNS)
def test_compiled_steps_have_the_eager_losses(name: str, tmp_path: Path) -> None:
    words = np.array(["river", "stone", "light", "under", "green", "seven"])
    text = tmp_path / "book.txt"
    text.write_text(" ".join(np.random.default_rng(0).choice(words, 20_000)))
    given = RUNS[name].split()
    given += ["--text", str(text)] * (name in WITH_TEXT)
    given += ["--out", str(tmp_path / "out")] * (name in WITH_OUT)

    def losses(*more: str) -> Any:
        with example(name) as module:
            return np.array(module.main([*given, *more]).losses)

    eager, compiled = losses(), losses("--compile")
    assert len(eager) > 1
    # Sums in another order differ by a few units of 2^-24, which eight steps of Adam enlarge.
    np.testing.assert_allclose(compiled, eager, rtol=1e-3)


@pytest.mark.usefixtures("at_home")
def test_a_compiled_encoder_has_the_eager_vectors(tmp_path: Path) -> None:
    with example("encoder") as encoder:
        given = ["--random", "--out", str(tmp_path), "a b c", "c b a d e f", "d"]
        found = encoder.main([*given, "--compile"])
        assert_close(found, encoder.main(given), length=encoder.Shape.hidden_size)
