"""The examples on the GPU: a captured step, which is one graph there, gives the eager losses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ruda
from tests.examples.loading import example

RUNS = {
    "gpt": "--steps 12 --width 16 --context 16 --layers 1 --batch 8 --rate 1e-2 --reports 1",
    "lstm": "--steps 12 --batch 8 --length 16 --width 16 --layers 1 --rate 1e-2 --sample 4",
    "digits": "--images 128 --epochs 2 --width 8 --batch 32 --rate 1e-2",
    "denoise": "--steps 12 --width 32 --depth 1 --levels 4 --rows 1 --batch 32 --rate 1e-2",
}
WITH_TEXT, WITH_OUT = ("gpt", "lstm"), ("gpt", "denoise")


@pytest.fixture
def as_default(device: str) -> Iterator[None]:
    ruda.set_default_device(device)
    yield
    ruda.set_default_device(None)


@pytest.mark.usefixtures("as_default")
@pytest.mark.parametrize("name", RUNS)
def test_compiled_steps_have_the_eager_losses(name: str, tmp_path: Path) -> None:
    if name not in WITH_TEXT:
        pytest.importorskip("sklearn", reason="the digits are those of scikit-learn")
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
    # Sums in another order differ by a few units of 2^-24, which twelve steps of Adam enlarge.
    np.testing.assert_allclose(compiled, eager, rtol=1e-3)
