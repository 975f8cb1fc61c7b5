"""A compiled call equals the eager one: each row with its gradient, each composed function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import CaptureError
from ruda.testing import assert_close, pull
from tests.table.cases import Case, invoke, length, one_each, parametrize, tensors
from tests.table.sample import Composed, operands
from tests.table.samples import COMPOSED

pytestmark = pytest.mark.skipif(not hasattr(ruda, "compile"), reason="ruda.compile is not there")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, one_each)


def listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def assert_traced(function: Callable[..., Any], values: list[Any]) -> None:
    """Capture, then replay with other values of the same shapes."""
    compiled = ruda.compile(function)
    moved = [np.flip(v).copy() if isinstance(v, np.ndarray) and v.ndim else v for v in values]
    for inputs in (values, moved):
        expected = listed(function(*tensors(inputs)))
        outputs = listed(compiled(*tensors(inputs)))
        for got, want in zip(outputs, expected, strict=True):
            # Strides may differ: an output lies row-major in its own place, also one of a view.
            assert (got.shape, got.dtype, got.device) == (want.shape, want.dtype, want.device)
            assert_close(got, want, length=length(inputs, outputs))


def with_gradients(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of ``function``, and the gradient of their sum by each tensor of floats."""
    leaves = [
        x.detach().requires_grad_() if type(x) is ruda.Tensor and x.dtype.is_inexact else x
        for x in inputs
    ]
    outputs = listed(function(*leaves))
    roots = [t for t in outputs if t.requires_grad]
    gradients = pull(roots, [ruda.ones_like(t) for t in roots], leaves, create_graph=False)
    return *(t.detach() for t in outputs), *(g for g in gradients if g is not None)


def test_trace(case: Case, rng: np.random.Generator) -> None:
    values = case.operands(rng)
    # What goes by value is no argument of a compiled function: it is closed over.
    fixed = {i: v for i, v in enumerate(values) if isinstance(v, tuple) or v is None}

    def call(*inputs: Any) -> Any:
        rest = iter(inputs)
        given = [fixed[i] if i in fixed else next(rest) for i in range(len(values))]
        return invoke(case.op, given, case.sample.attrs)

    def both(*inputs: Any) -> Any:
        return with_gradients(call, inputs) if case.sample.grad else call(*inputs)

    arguments = [v for i, v in enumerate(values) if i not in fixed]
    if case.op.kind == "dynamic":
        with pytest.raises(CaptureError, match=case.op.name):
            ruda.compile(call)(*tensors(arguments))
    else:
        assert_traced(both if case.op.differentiable else call, arguments)


@pytest.mark.parametrize("composed", COMPOSED, ids=lambda c: c.name)
def test_trace_of_composite(composed: Composed, rng: np.random.Generator) -> None:
    values = operands(composed.inputs, ruda.float64, composed.domain, rng)
    if composed.captured:
        assert_traced(composed.call, values)
    else:
        with pytest.raises(CaptureError):
            ruda.compile(composed.call)(*tensors(values))
