"""Cards are well-formed HTML that needs nothing from outside and says what is true."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.display import histogram
from ruda.display.html import EXACT
from ruda.display.palette import scale_for
from ruda.display.style import STYLE, chip, span
from ruda.display.summary import summarize
from tests.display.kinds import KINDS, noise
from tests.display.markup import read


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_a_well_formed_card(name: str) -> None:
    x = KINDS[name]()
    source = x._repr_html_()
    page = read(source)
    assert str(x.dtype) in page.text
    assert len(page.pictures) == (x.size > 1)
    assert len(source) < 150_000
    assert "layout and memory" in page.text


def test_a_card_follows_light_and_dark_themes() -> None:
    for name in ("prefers-color-scheme: dark", "--jp-layout-color0", "--vscode-editor-background"):
        assert name in STYLE


def test_special_values_are_announced() -> None:
    text = read(KINDS["specials"]()._repr_html_()).text
    assert "1 NaN" in text and "1 inf" in text and "1 −inf" in text


def test_statistics_are_shown() -> None:
    text = read(ruda.asarray([[-1.0, 0.0], [0.0, 4.0]])._repr_html_()).text
    for words in ("min -1", "max 4", "mean 0.75", "std 1.92", "median 0", "zero 50 %"):
        assert words in text


def test_the_share_of_true_is_shown() -> None:
    assert "25 % True" in read((ruda.arange(8) < 2)._repr_html_()).text


def test_layout_and_memory_are_told() -> None:
    text = read(KINDS["expanded"]()._repr_html_()).text
    assert "expanded from 1,000 elements" in text and "3.9 KiB stored" in text
    base = ruda.asarray(noise(10, 10))
    part = read(base[2:, 3:]._repr_html_()).text
    assert "view of 400 B, from element 23" in part and "strides (10, 1)" in part


def test_the_tape_is_told() -> None:
    assert "made by multiply" in read(KINDS["recorded"]()._repr_html_()).text
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    ruda.sum(x).backward()
    assert "a leaf, has a gradient" in read(x._repr_html_()).text


def test_displaying_leaves_the_tensor_alone() -> None:
    x = ruda.asarray(noise(30, 30))
    before, shared = x.numpy(copy=True), x.share_count
    x._repr_html_(), repr(x)
    assert (x.numpy() == before).all() and x.share_count == shared


def test_everything_is_escaped() -> None:
    for made in (chip("<b>&'\""), span("soft", "<b>&'\"")):
        assert "&lt;b&gt;&amp;&#x27;&quot;" in made


def test_a_strict_numpy_is_no_trouble() -> None:
    with np.errstate(all="raise"):
        for name in ("specials", "all NaN", "extremes", "complex", "float8"):
            KINDS[name]()._repr_html_()


@pytest.mark.parametrize("name", ["matrix", "integers", "few integers", "extremes", "outlier"])
def test_a_histogram_counts_every_value(name: str) -> None:
    x = KINDS[name]()
    summary = summarize(x, EXACT)
    scale = scale_for(x.dtype, summary, x.numpy())
    counts = histogram.bars(summary, scale, x.dtype.is_integer)
    assert counts.sum() == summary.sample.size
    if name == "few integers":
        assert counts.tolist() == np.bincount(x.numpy().reshape(-1)).tolist()
    if name == "matrix":
        expected, _ = np.histogram(summary.sample, histogram.BINS)
        # A value on an edge may round into the neighbour.
        assert np.abs(counts - expected).sum() <= 4


@pytest.mark.parametrize("name", ["expanded", "large"])
def test_a_huge_tensor_takes_little_time(name: str) -> None:
    x: Any = (
        KINDS["expanded"]() if name == "expanded" else ruda.zeros((12_000, 10_000), dtype="uint8")
    )
    x._repr_html_()
    start = time.perf_counter()
    x._repr_html_()
    # About 10 ms on an idle machine.
    assert time.perf_counter() - start < 0.5
