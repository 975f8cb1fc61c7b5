"""A fused row's reference and its body mean the same: outputs, in every dtype the row takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ruda.testing import assert_close
from tests.table.cases import Case, length, parametrize, run, tensors, typed


def two_meanings(full: bool) -> Iterator[Any]:
    """The cases of rows that have a reference and a body."""
    for param in typed(full):
        op = param.values[0].op
        if op.body is not None and op.numpy is not None:
            yield param


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, two_meanings)


def test_body(case: Case, rng: np.random.Generator) -> None:
    op = case.op
    values = case.operands(rng)
    outputs = run(case, values)
    result = op.body(*tensors(values), *case.sample.attrs)
    bodies = list(result) if op.outs else [result]
    assert [(b.shape, b.dtype) for b in bodies] == [(o.shape, o.dtype) for o in outputs]
    for got, want in zip(bodies, outputs, strict=True):
        assert_close(got, want, length=length(values, outputs), name=op.name)
