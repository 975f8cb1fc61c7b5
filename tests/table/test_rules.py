"""What a row's rules predict is what comes back: shape, dtype, strides, layout, fresh memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ruda.core.shapes import is_contiguous
from tests.table.cases import Case, parametrize, reference, run, tensors, typed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, typed)


def test_rules(case: Case, rng: np.random.Generator) -> None:
    values = case.operands(rng)
    outputs, expected = run(case, values), reference(case, values)
    for got, want in zip(outputs, expected, strict=True):
        array, spec = got.numpy(), got.spec
        assert array.shape == spec.shape == want.shape
        assert array.dtype == spec.dtype.numpy
        assert array.flags.aligned
        assert moving(array) == moving_spec(spec)
        assert spec.contiguous == is_contiguous(spec.shape, spec.strides)
        assert spec.contiguous == array.flags.c_contiguous
        assert (spec.size, spec.nbytes) == (array.size, array.nbytes)
        # The reference may compute wider than the promise, but not in another kind of number.
        assert not (want.dtype.kind == "c" and spec.dtype.kind != "complex")
        assert not (want.dtype.kind == "f" and spec.dtype.kind in ("int", "uint")), want.dtype
    if case.op.kind != "view":
        assert_fresh(case, values)


def moving(array: Any) -> list[int]:
    """Strides in elements of the axes that have a second element."""
    pairs = zip(array.shape, array.strides, strict=True)
    return [] if array.size == 0 else [s // array.itemsize for n, s in pairs if n > 1]


def moving_spec(spec: Any) -> list[int]:
    pairs = zip(spec.shape, spec.strides, strict=True)
    return [] if spec.size == 0 else [s for n, s in pairs if n > 1]


def assert_fresh(case: Case, values: list[Any]) -> None:
    """Outputs are row-major and share no memory with an operand or with each other."""
    inputs = tensors(values)
    outputs = [t.numpy() for t in run(case, inputs)]
    others = [v.numpy() for v in inputs if hasattr(v, "spec")]
    for i, array in enumerate(outputs):
        assert array.flags.c_contiguous
        assert not any(np.may_share_memory(array, o) for o in [*others, *outputs[i + 1 :]])
