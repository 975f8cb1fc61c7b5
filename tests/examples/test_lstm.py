"""The character network of examples/lstm.py on a small text: it learns, goes on, and writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.loading import example

SHORT = [
    *("--steps", "40"),
    *("--batch", "8"),
    *("--length", "16"),
    *("--width", "16"),
    *("--layers", "1"),
    *("--rate", "2e-2"),
    *("--sample", "20"),
]


@pytest.fixture(scope="module")
def lstm() -> Iterator[Any]:
    with example("lstm") as module:
        yield module


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random words: letters that follow from each other, so there is much to learn."""
    words = np.array(["river", "stone", "light", "under", "green", "seven"])
    path: Path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text(" ".join(np.random.default_rng(0).choice(words, 2000)))
    return path


@pytest.fixture(scope="module")
def run(lstm: Any, book: Path) -> Any:
    return lstm.main([*SHORT, "--text", str(book)])


def test_the_loss_falls(run: Any) -> None:
    assert len(run.losses) == 40
    assert run.losses[0] == pytest.approx(np.log(len(run.text.alphabet)), rel=0.1)
    assert np.mean(run.losses[-5:]) < run.losses[0] - 0.5


def test_it_writes_what_the_alphabet_has(run: Any) -> None:
    assert len(run.sample) == len("\ndef ") + 20
    assert set(run.sample) <= set(run.text.alphabet)


def test_compiled_steps_are_the_eager_ones(lstm: Any, book: Path, run: Any) -> None:
    other = lstm.main([*SHORT, "--text", str(book), "--compile"])
    assert other.losses == run.losses
    assert other.sample == run.sample


def test_streams_go_on_where_they_stopped(lstm: Any) -> None:
    text = lstm.Text("abcdefghij" * 10)
    streams = text.streams(2, 8)
    first, x, y = next(streams)
    again, after, _ = next(streams)
    assert (first, again) == (True, False)
    assert [text.decode(row) for row in x.tolist()] == ["abcdefgh"] * 2
    assert [text.decode(row) for row in y.tolist()] == ["bcdefghi"] * 2
    assert [text.decode(row) for row in after.tolist()] == ["ijabcdef"] * 2


def test_too_little_text_is_said(lstm: Any, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("a few words")
    with pytest.raises(SystemExit, match=r"^lstm: too little text.*Got .*Expected .*Try"):
        lstm.main([*SHORT, "--text", str(short)])
