"""Calls that must raise a typed error which names the operator and what was wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.dtypes import ALL, ARITHMETIC, STORAGE, DType
from ruda.core.errors import DeviceError, DTypeError, RudaError
from ruda.ops.listing import rows
from ruda.tensor.dispatch import Op
from tests.table.cases import dtypes_of, invoke, samples_of, tensors
from tests.table.sample import Bad, Sample, operands
from tests.table.samples import BAD

ROWS = [pytest.param(op, id=op.name) for op in rows().values() if samples_of(op)]


@pytest.mark.parametrize("bad", BAD, ids=lambda b: re.sub(r"[^\w]+", "-", b.match).strip("-"))
def test_bad(bad: Bad) -> None:
    with pytest.raises(bad.error, match=bad.match) as caught:
        bad.call()
    assert isinstance(caught.value, RudaError)
    assert str(caught.value).startswith(f"{caught.value.op}: ")


def drawn(op: Op, sample: Sample, dtype: DType) -> list[Any]:
    return operands(sample.inputs, dtype, op.domain, np.random.default_rng(0))  # type: ignore[no-any-return]


def fails(op: Op, values: list[Any], sample: Sample, error: type[RudaError], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)) as caught:
        invoke(op, values, sample.attrs)
    assert caught.value.op == op.name


@pytest.mark.parametrize("op", ROWS)
def test_mixed_devices(op: Op) -> None:
    """Operands on two devices raise, and nothing is moved; each operand in turn is the foreign."""
    mixed = [s for s in samples_of(op) if len(s.shapes) > 1]
    if not mixed:
        pytest.skip("has one operand")
    values = tensors(drawn(op, mixed[0], dtypes_of(op, mixed[0])[-1]))
    for i, value in enumerate(values):
        if isinstance(value, ruda.Tensor):
            foreign = ruda.empty(value.shape, dtype=value.dtype, device="null")
            changed = [*values[:i], foreign, *values[i + 1 :]]
            fails(op, changed, mixed[0], DeviceError, "null")


@pytest.mark.parametrize("op", ROWS)
def test_unsupported_dtypes(op: Op) -> None:
    """A dtype outside of ``accepts`` raises and is named; so does one that only stores codes."""
    if not op.accepts or set(ALL) <= set(op.accepts):
        pytest.skip("takes every dtype")
    found = [s for s in samples_of(op) if s.shapes]
    if not found:
        pytest.skip("takes no tensor")
    refused = [d for d in (*ARITHMETIC, *STORAGE) if d not in op.accepts]
    assert refused
    for dtype in refused:
        values = tensors(drawn(op, found[0], dtype))
        fails(op, values, found[0], DTypeError, str(dtype))


@pytest.mark.parametrize("op", ROWS)
def test_not_an_operand(op: Op) -> None:
    """Something that is no tensor, array or scalar raises and its type is named."""
    sample = samples_of(op)[0]
    values = tensors(drawn(op, sample, dtypes_of(op, sample)[-1]))
    fails(op, [*values[:-1], "text"], sample, DTypeError, "'text' of type str")
