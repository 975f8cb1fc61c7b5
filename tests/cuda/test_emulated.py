"""The rows of the table on an emulated GPU: the kernels that a real one would run, on the CPU."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest

import ruda
from ruda.core.errors import StrategyError
from tests.gpu.test_rows import check_forward, functions
from tests.table.cases import Case, samples_of

# Rows of one expression share their kernels' frame: these stand for all.
_MAPS = ("add", "exp", "where", "floor_divide", "less", "astype")
_SLOW = pytest.mark.slow


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each row with a kernel of its own once in float32; all else takes an hour of compiling."""
    if "case" not in metafunc.fixturenames:
        return
    if importlib.util.find_spec("cuda") is None:
        metafunc.parametrize("case", [])
        return
    own = importlib.import_module("ruda.backends.cuda.kernels").KERNELS
    chosen = []
    for param in functions(metafunc.config.getoption("full")):
        (case,) = param.values
        first = case.sample is samples_of(case.op)[0] and case.dtype in (ruda.float32, ruda.bool)
        named = case.op.name in own or case.op.name in _MAPS
        chosen.append(param if first and named else pytest.param(case, id=param.id, marks=_SLOW))
    metafunc.parametrize("case", chosen)


def test_forward(case: Case, rng: np.random.Generator, device: str) -> None:
    try:
        check_forward(case, rng, device)
    except StrategyError as error:
        if "needs cu" not in str(error):
            raise
        pytest.skip(f"no kernel of ours, and the library is not emulated: {error}")


def test_a_small_program(device: str) -> None:
    x = ruda.asarray(np.arange(12.0).reshape(3, 4), dtype="float32", device=device)
    y = ruda.exp(x.T * 0.1).sum(axis=0)
    np.testing.assert_allclose(y.numpy(), np.exp(x.numpy().T * 0.1).sum(axis=0), rtol=1e-6)
