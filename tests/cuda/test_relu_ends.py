"""A product that ends in a relu is one call, as exact as two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.blas import cublaslt
from tests.cuda.libraries.cublaslt import CublasLt
from tests.cuda.test_regions import normal


@pytest.fixture
def library(client: Any, monkeypatch: pytest.MonkeyPatch) -> CublasLt:
    fake = CublasLt()
    made = cublaslt.Library(client, fake)
    monkeypatch.setattr(cublaslt, "library", lambda client: made)
    return fake


def test_a_relu_behind_a_linear(device: str, library: CublasLt) -> None:
    x, w, b = normal(80, 24), normal(40, 24, seed=1), normal(40, seed=2)
    x[3, 2] = float("nan")
    step = ruda.compile(lambda x: F.relu(F.linear(x, w, b)) * 2)
    plain = F.relu(F.linear(x, w, b)) * 2
    for _ in range(2):
        np.testing.assert_array_equal(step(x).numpy(), plain.numpy())
    assert library.calls[-1].how.epilogue == 6


def test_what_is_read_before_the_relu_stays(device: str, library: CublasLt) -> None:
    x, w, b = normal(80, 24), normal(40, 24, seed=1), normal(40, seed=2)

    def plain(x: Any) -> Any:
        y = F.linear(x, w, b)
        return F.relu(y) + y

    step = ruda.compile(plain)
    want = plain(x)
    np.testing.assert_array_equal(step(x).numpy(), want.numpy())
    assert all(call.how.epilogue == 4 for call in library.calls)
