"""Each vjp against finite differences, to order 2, in float64 and complex128.

One random direction for each operand, complex ones moved in both parts; order 2 differentiates the
gradient by operands and cotangent, which covers the vjp as a function of ``g`` too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.testing import gradcheck
from tests.table.cases import Case, invoke, parametrize, smooth, tensors
from tests.table.sample import Composed, operands
from tests.table.samples import COMPOSED


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, smooth)


def test_grad(case: Case, rng: np.random.Generator) -> None:
    values = case.operands(rng)
    moving = [i for i in range(len(values)) if not is_constant(case, i)]

    def call(*inputs: Any) -> Any:
        given = tensors(values)
        for i, x in zip(moving, inputs, strict=True):
            given[i] = x
        return invoke(case.op, given, case.sample.attrs)

    call.__name__ = case.op.name
    gradcheck(call, [values[i] for i in moving])


def is_constant(case: Case, i: int) -> bool:
    """Whether the row gives operand ``i`` no gradient, by its vjps or as the sample says."""
    if case.op.args[min(i, len(case.op.args) - 1)] in case.sample.constants:
        return True
    return isinstance(case.op.vjp, tuple) and case.op.vjp[i] is None


@pytest.mark.parametrize("composed", COMPOSED, ids=lambda c: c.name)
def test_grad_of_composite(composed: Composed, rng: np.random.Generator) -> None:
    values = operands(composed.inputs, ruda.float64, composed.domain, rng)
    gradcheck(composed.call, values)
