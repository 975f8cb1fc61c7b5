"""``ruda.supports`` answers what a call would do, for each row in each dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.dtypes import ALL, DType
from ruda.core.errors import ArgumentError, DTypeError
from ruda.ops.listing import rows
from ruda.ops.support import taken
from ruda.tensor.dispatch import Op
from tests.table.cases import samples_of, specs_of
from tests.table.sample import Sample, operands

FACTORIES = ("create", "random")
# What a row takes beside another dtype, and not for all operands at once.
TOGETHER = {"subtract": {ruda.bool}}
ROWS = [
    pytest.param(op, sample, id=f"{op.name}-{i}")
    for op in rows().values()
    for i, sample in enumerate(samples_of(op))
    if sample.shapes and sample.dtypes is None and op.kind not in FACTORIES
]


def takes_in_a_call(op: Op, sample: Sample, dtype: DType) -> bool:
    """Whether a sample whose random operands are of ``dtype`` gets a plan."""
    values = operands(sample.inputs, dtype, op.domain, np.random.default_rng(0))
    specs = specs_of(op, values)
    try:
        op._check(specs)
        op.dtype(op, specs, *sample.attrs)
    except DTypeError:
        return False
    return True


@pytest.mark.parametrize(("op", "sample"), ROWS)
def test_what_is_told_is_what_a_call_takes(op: Op, sample: Sample) -> None:
    pairs = zip(op.args, sample.inputs, strict=False)
    moving = [name for name, value in pairs if value.__class__ is tuple]
    told = set(ALL).intersection(*(taken(op, name) for name in moving))
    found = {dtype for dtype in ALL if takes_in_a_call(op, sample, dtype)}
    assert found <= told
    # A sample may hold float operands beside the moving ones, which then have to be of one dtype.
    fixed = any(isinstance(x, np.ndarray) and x.dtype.kind in "fc" for x in sample.inputs)
    assert fixed or found == told - TOGETHER.get(op.name, set())


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("add", ("int32", "float32")), True),
        (("add", ("int64", "uint64")), "add: "),
        (("matmul", "bool"), "matmul: x does not take bool. Expected numeric."),
        # Written out, as the text of a function differs from one worker process to the next.
        pytest.param((ruda.matmul, ["float16", "bfloat16"]), True, id="a function"),
        (("linear", ["float32", "float32"]), True),
        (("attention", "int32"), "attention: q does not take int32. Expected real floating."),
        (("attention", ["float32"] * 4), "attention: mask does not take float32."),
        (("cross_entropy", ["float32", "float32"]), "cross_entropy: target does not take"),
        (("mse_loss", "float8_e4m3"), "mse_loss: no arithmetic is done in"),
        (("mse_loss", "float32"), True),
        (("nonzero", (), "null"), True),
        (("true_places", "bool", "null"), "true_places: the null device has no values"),
    ],
    ids=str,
)
def test_the_answer_is_true_or_the_reason(call: Any, expected: Any) -> None:
    answer = ruda.supports(*call)
    if expected is True:
        assert answer is True
    else:
        assert not answer
        assert answer.startswith(expected)


def test_a_device_that_is_absent_is_a_reason() -> None:
    with pytest.raises(ruda.DeviceError) as caught:
        ruda.zeros(1, device="cuda:99")
    assert ruda.supports("add", "float32", "cuda:99") == str(caught.value)


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"Got 'matmull'. Try one of matmul"):
        ruda.supports("matmull")
    with pytest.raises(ArgumentError, match=r"exp has fewer operands. Got 2 dtypes"):
        ruda.supports("exp", ["float32", "float32"])
    with pytest.raises(DTypeError, match=r"^supports: "):
        ruda.supports("exp", "float33")
