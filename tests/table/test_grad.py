"""Each vjp against finite differences, to order 2, in float64 and complex128.

One random direction for each operand, complex ones moved in both parts; order 2 differentiates the
gradient by operands and cotangent, which covers the vjp as a function of ``g`` too.
"""

from __future__ import annotations

import numpy as np
import pytest

import ruda
from ruda.testing import gradcheck
from tests.table.cases import Case, invoke, parametrize, smooth
from tests.table.sample import Composed, operands
from tests.table.samples import COMPOSED


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, smooth)


def test_grad(case: Case, rng: np.random.Generator) -> None:
    values = case.operands(rng)

    def call(*inputs: object) -> object:
        return invoke(case.op, list(inputs), case.sample.attrs)

    call.__name__ = case.op.name
    gradcheck(call, values)


@pytest.mark.parametrize("composed", COMPOSED, ids=lambda c: c.name)
def test_grad_of_composite(composed: Composed, rng: np.random.Generator) -> None:
    values = operands(composed.inputs, ruda.float64, composed.domain, rng)
    gradcheck(composed.call, values)
