"""Each row on operands in every memory layout: strides, offsets, repeats, nothing, 0-d."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ruda.core.errors import RudaError, ShapeError
from ruda.testing import assert_close, layouts
from tests.table.cases import (
    ELEMENTWISE,
    Case,
    length,
    parametrize,
    reference,
    run,
    tensors,
    uncancelled,
    widest,
)

BY_SIZE = (*ELEMENTWISE, "reduction", "scan")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, widest)


def assert_equal(case: Case, values: list[Any], expected: list[Any], title: str) -> None:
    if case.sample.dense:
        with pytest.raises(ShapeError, match=f"{case.op.name}: .*row-major"):
            run(case, values)
        return
    outputs = run(case, values)
    assert len(outputs) == len(expected), title
    for got, want in zip(outputs, expected, strict=True):
        name = f"{case.op.name}, {title}"
        terms = {"length": length(values, outputs), "scale": uncancelled(case, values, got)}
        assert_close(got, want, **terms, name=name)


def test_strided(case: Case, rng: np.random.Generator) -> None:
    values = case.operands(rng)
    dense = [t.numpy(copy=True) for t in run(case, values)]
    for i, value in enumerate(values):
        for layout, array in layouts(value) if isinstance(value, np.ndarray) else ():
            shown = [*values[:i], array, *values[i + 1 :]]
            assert tensors(shown)[i].numpy().strides == array.strides
            assert_equal(case, shown, dense, f"operand {i} {layout}")


def test_expanded(case: Case, rng: np.random.Generator) -> None:
    """An operand of stride 0 is what a dense one with the same values is."""
    values = case.operands(rng)
    for i, value in enumerate(values):
        if not isinstance(value, np.ndarray) or value.ndim == 0 or value.size == 0:
            continue
        repeated = np.broadcast_to(value[:1], value.shape)
        dense = run(case, [*values[:i], repeated.copy(), *values[i + 1 :]])
        expected = [t.numpy() for t in dense]
        assert_equal(case, [*values[:i], repeated, *values[i + 1 :]], expected, f"operand {i}")


def emptied(case: Case) -> Iterator[Case]:
    """The case with each axis length in turn replaced by 0 wherever it stands."""
    sizes = {n for shape in case.sample.shapes for n in shape if n > 1}
    for size in sorted(sizes):
        inputs = tuple(
            tuple(0 if n == size else n for n in x) if x.__class__ is tuple else x
            for x in case.sample.inputs
        )
        sample = case.sample.__class__(inputs, case.sample.attrs)
        yield case._replace(sample=sample)


def test_zero_size(case: Case, rng: np.random.Generator) -> None:
    """Nothing in gives what the reference gives for it, or a typed error."""
    if case.op.kind not in BY_SIZE:
        pytest.skip("attributes hold sizes: samples of the row have zeros themselves")
    for empty in emptied(case):
        values = empty.operands(rng)
        try:
            outputs = run(empty, values)
        except RudaError as error:
            assert str(error).startswith(f"{case.op.name}: ")  # noqa: PT017
            continue
        for got, want in zip(outputs, reference(empty, values), strict=True):
            assert_close(got, want, name=case.op.name)


def test_0d(case: Case, rng: np.random.Generator) -> None:
    if case.op.kind not in ELEMENTWISE:
        pytest.skip("samples of the row have 0-d operands where it takes them")
    inputs = tuple(() if x.__class__ is tuple else x for x in case.sample.inputs)
    scalar = case._replace(sample=case.sample.__class__(inputs, case.sample.attrs))
    if any(isinstance(x, np.ndarray) for x in inputs):
        pytest.skip("an operand of this sample has its own shape")
    values = scalar.operands(rng)
    assert_equal(scalar, values, reference(scalar, values), "0-d")
