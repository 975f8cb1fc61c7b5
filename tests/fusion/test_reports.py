"""What a compiled step says of itself: kernels, times, what keeps it slow; lengths in buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.core.errors import ArgumentError, CaptureError
from tests.fusion.dry import dry
from tests.fusion.test_memory import batch, network


def test_explain_names_kernels_by_line_and_shows_their_source() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    with dry():
        step, args = network("cuda", depth=1), batch("cuda", 64)
        assert "launches:" not in step.explain()
        step(*args)
        text = step.explain()
        part = text[text.index("launches:") :]
        assert "layer_norm" in part and "training.py" in part and "adamw_step, in place" in part
        assert "__global__" not in text and "__global__" in step.explain(sources=True)
        assert " us" not in part
        before = [t.handle.version for t in args]
        step.measure()
        assert " us (" in step.explain() and before == [t.handle.version for t in args]


def test_lint_names_what_is_slow() -> None:
    scale = ruda.asarray(np.ones(300, "f8"))

    @ruda.compile
    def step(x: Any) -> Any:
        wide = x * 2.0
        x.sum()
        return ruda.astype(wide, "float64") * scale

    step(ruda.ones((1000, 300)))
    found = "\n".join(map(str, step.lint()))
    assert "is not used" in found and "float64" in found
    for rows in (1, 2, 3):
        step(ruda.ones((rows, 300)))
    assert "traced again 3 times, because argument 0 changes" in "\n".join(map(str, step.lint()))


def test_lint_names_layout_copies_and_values_read_on_the_host() -> None:
    turned = ruda.compile(lambda x: x.mT.reshape((-1,)) + 1.0)
    turned(ruda.ones((1024, 512)))
    assert "copies 2.0 MiB for their layout" in "\n".join(map(str, turned.lint()))
    reads = ruda.compile(lambda x: x * x.sum().item())
    with pytest.raises(CaptureError):
        reads(ruda.ones(3))
    assert "a value is read while tracing" in "\n".join(map(str, reads.lint()))


def in_buckets(where: str) -> Any:
    """A step that has seen 200 lengths, padded, each as it is without padding."""
    embed, head = nn.Embedding(20, 8).to(where), nn.Linear(8, 20).to(where)

    @ruda.compile
    def compiled(x: Any, length: Any) -> Any:
        logits = head(embed(x))[:, :-1]
        seen = ruda.arange(logits.shape[1], device=where) < length - 1
        losses = F.cross_entropy(logits, x[:, 1:], reduction="none")
        return ruda.where(seen, losses, 0.0).sum() / (x.shape[0] * (length - 1))

    rng = np.random.default_rng(0)
    for length in rng.integers(2, 513, 200).tolist():
        x = ruda.asarray(rng.integers(0, 20, (2, length)), device=where)
        padded, count = ruda.bucket(x, 512)
        assert padded.shape[1] <= max(length * 1.5 + 8, 32)
        wanted = F.cross_entropy(head(embed(x))[:, :-1], x[:, 1:])
        np.testing.assert_allclose(compiled(padded, count).item(), wanted.item(), rtol=1e-4)
    return compiled


def kernels(program: Any) -> set[str]:
    """The names of the kernels of a captured program."""
    return {one.name for found in program.captured.notes.found.values() for one in found}


def test_two_hundred_lengths_are_eight_signatures_at_most() -> None:
    assert len(in_buckets("cpu")._all()) <= 8


def test_lengths_share_kernels() -> None:
    with dry():
        step = network("cuda", depth=1)
        for rows in (32, 48, 64, 96, 128, 192, 256, 384):
            step(*batch("cuda", rows))
        found = [kernels(program) for program in step._all()]
        assert len(found) == 8
        assert len(set().union(*found)) < sum(map(len, found)) / 2


def test_lengths_beyond_the_longest_are_refused() -> None:
    assert [ruda.bucket_size(n, 100, multiple=1) for n in (0, 6, 7, 100)] == [6, 6, 12, 100]
    with pytest.raises(ArgumentError, match="no such length"):
        ruda.bucket(ruda.ones((2, 65)), 64)
