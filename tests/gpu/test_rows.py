"""Every row that has a kernel, on the GPU, against its reference in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.testing import assert_close
from tests.table.cases import Case, invoke, length, parametrize, reference, typed, uncancelled
from tests.table.test_forward import assert_same_bits

# Rows that take their device as an attribute, or move between devices, have tests of their own.
OTHERWISE = ("create", "random", "transfer", "dynamic")
# Rows whose vectors have signs or phases of the library's choosing, which test_linalg.py judges.
PHASES = ("eigh", "qr", "svd", "svd_full")


def functions(full: bool) -> Iterator[Any]:
    """The cases of rows that a test of one row on given operands can judge."""
    for param in typed(full):
        op = param.values[0].op
        if op.kind not in OTHERWISE and op.name not in PHASES:
            yield param


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, functions)


def test_forward(case: Case, rng: np.random.Generator, device: str) -> None:
    check_forward(case, rng, device)


def check_forward(case: Case, rng: np.random.Generator, device: str) -> None:
    """The outputs on ``device`` against the reference in float64."""
    values = case.operands(rng)
    expected = reference(case, values)
    outputs = on_device(case, values, device)
    assert len(outputs) == len(expected)
    for got, want in zip(outputs, expected, strict=True):
        assert got.device == device
        if case.op.exact:
            assert_same_bits(got.numpy(), want.astype(got.dtype.numpy))
        else:
            terms = {"length": length(values, outputs), "scale": uncancelled(case, values, got)}
            assert_close(got.to("cpu"), want, **terms, name=case.op.name)


def on_device(case: Case, values: list[Any], device: str) -> list[ruda.Tensor]:
    """The outputs of a case on the GPU: every row has a kernel, a library or a body there."""
    moved = [ruda.asarray(v, device=device) if isinstance(v, np.ndarray) else v for v in values]
    result = invoke(case.op, moved, case.sample.attrs)
    return list(result) if isinstance(result, tuple | list) else [result]
