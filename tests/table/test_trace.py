"""A compiled call equals the eager one: each row, its gradient, and each composed function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import CaptureError
from ruda.testing import assert_close, pull
from tests.table.cases import Case, invoke, length, parametrize, tensors, widest
from tests.table.sample import Composed, operands
from tests.table.samples import COMPOSED

pytestmark = pytest.mark.skipif(not hasattr(ruda, "compile"), reason="ruda.compile is not there")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, widest)


def listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def assert_traced(function: Callable[..., Any], values: list[Any]) -> None:
    """Capture, then replay with other values of the same shapes."""
    compiled = ruda.compile(function)
    arrays = [i for i, v in enumerate(values) if isinstance(v, np.ndarray)]
    moved = [np.flip(v).copy() if i in arrays else v for i, v in enumerate(values)]
    for inputs in (values, moved, values):
        expected = listed(function(*tensors(inputs)))
        outputs = listed(compiled(*tensors(inputs)))
        for got, want in zip(outputs, expected, strict=True):
            assert got.spec is want.spec
            assert_close(got, want, length=length(inputs, outputs))


def test_trace(case: Case, rng: np.random.Generator) -> None:
    values = case.operands(rng)

    def call(*inputs: Any) -> Any:
        return invoke(case.op, list(inputs), case.sample.attrs)

    if case.op.kind == "dynamic":
        with pytest.raises(CaptureError, match=case.op.name):
            ruda.compile(call)(*tensors(values))
    elif not any(isinstance(v, tuple) for v in values):
        assert_traced(call, values)


def test_trace_of_gradient(case: Case, rng: np.random.Generator) -> None:
    if not (case.op.differentiable and case.sample.grad and case.dtype.is_inexact):
        pytest.skip("no gradient")
    values = case.operands(rng)

    def gradient(*inputs: Any) -> Any:
        leaves = [
            x.detach().requires_grad_() if hasattr(x, "spec") and x.dtype.is_inexact else x
            for x in inputs
        ]
        outputs = [t for t in listed(invoke(case.op, leaves, case.sample.attrs)) if t.requires_grad]
        found = pull(outputs, [ruda.ones_like(t) for t in outputs], leaves, create_graph=False)
        return tuple(g for g in found if g is not None)

    if not any(isinstance(v, tuple) for v in values) and gradient(*tensors(values)):
        assert_traced(gradient, values)


@pytest.mark.parametrize("composed", COMPOSED, ids=lambda c: c.name)
def test_trace_of_composite(composed: Composed, rng: np.random.Generator) -> None:
    values = operands(composed.inputs, ruda.float64, composed.domain, rng)
    if composed.captured:
        assert_traced(composed.call, values)
    else:
        with pytest.raises(CaptureError):
            ruda.compile(composed.call)(*tensors(values))
