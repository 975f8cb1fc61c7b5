"""A table that is looked up and multiplied by: the lookup's gradient is added to the product's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.blas import lt
from ruda.fusion.passes import tables
from tests.cuda.libraries.cublaslt import CublasLt
from tests.cuda.test_regions import normal

ROWS, WIDTH, PLACES = 200, 64, 80


@pytest.fixture(autouse=True)
def library(client: Any, monkeypatch: pytest.MonkeyPatch) -> CublasLt:
    fake = CublasLt()
    made = lt.Library(client, fake)
    monkeypatch.setattr(lt, "library", lambda client: made)
    monkeypatch.setattr(tables, "_LEAST", 1)
    return fake


def indices() -> Any:
    rng = np.random.default_rng(0)
    return ruda.asarray(rng.integers(0, ROWS, PLACES).astype("int32"), device="cuda")


def gradient(table: Any, places: Any, cast: bool, padding: int | None = None) -> Any:
    w = table.detach()
    w.requires_grad = True
    with ruda.autocast("bfloat16", enabled=cast):
        loss = (F.linear(F.tanh(F.embedding(places, w, padding)), w) ** 2).sum()
    loss.backward()
    return w.grad


def operators(step: Any) -> str:
    return str(step.explain())


def test_the_lookup_is_added_to_the_product(device: str) -> None:
    table, places = normal(ROWS, WIDTH), indices()
    wanted = gradient(table, places, True).numpy()
    step = ruda.compile(lambda table, places: gradient(table, places, True))
    # The first call runs operator by operator; a graph does not hold what stands in for a library.
    found = step(table, places).numpy()
    assert "index_add(" in operators(step) and "embedding_backward(" not in operators(step)
    # The product was rounded to 8 bits on the other side.
    assert "matmul_as(" in operators(step)
    assert np.linalg.norm(found - wanted) <= 2**-8 * np.linalg.norm(wanted)


def test_in_float32_nothing_changes_and_padding_is_left_apart(device: str) -> None:
    table, places = normal(ROWS, WIDTH), indices()
    for padding in (None, 3):
        wanted = gradient(table, places, False, padding)
        step = ruda.compile(lambda t, p, padding=padding: gradient(t, p, False, padding))
        assert (step(table, places).numpy() == wanted.numpy()).all()
        assert ("index_add(" in operators(step)) is (padding is None)
