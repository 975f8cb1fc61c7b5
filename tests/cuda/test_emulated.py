"""The rows of the table on an emulated GPU: the kernels that a real one would run, on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import ruda
from tests.gpu.test_rows import check_forward
from tests.table.cases import Case, parametrize, typed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        parametrize(metafunc, typed)


def test_forward(case: Case, rng: np.random.Generator, device: str) -> None:
    check_forward(case, rng, device)


def test_a_small_program(device: str) -> None:
    x = ruda.asarray(np.arange(12.0).reshape(3, 4), dtype="float32", device=device)
    y = ruda.exp(x.T * 0.1).sum(axis=0)
    np.testing.assert_allclose(y.numpy(), np.exp(x.numpy().T * 0.1).sum(axis=0), rtol=1e-6)
