"""Nothing is silent: each row says all it must, each public name is documented and in the stubs."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import stubs
from ruda.ops.listing import definitions, rows
from ruda.ops.table import COMPOSITES, TABLE
from ruda.tensor.dispatch import Op
from tests.table import standard
from tests.table.cases import ELEMENTWISE, dtypes_of, samples_of, specs_of
from tests.table.sample import operands
from tests.table.samples import COMPOSED, NO_GRADIENT, SAMPLES

ROWS = [pytest.param(op, id=op.name) for op in rows().values()]


def gives_floats(op: Op) -> bool:
    """Whether the row has an output that could carry a gradient, for floats in."""
    for sample in samples_of(op):
        for dtype in dtypes_of(op, sample):
            values = operands(sample.inputs, dtype, op.domain, np.random.default_rng(0))
            _, out = op.dtype(op, specs_of(op, values), *sample.attrs)  # type: ignore[misc]
            if any(d.is_inexact for d in (out if isinstance(out, tuple) else (out,))):
                return True
    return False


@pytest.mark.parametrize("op", ROWS)
def test_row_is_complete(op: Op) -> None:
    assert op.doc.strip(), "no doc"
    assert op.numpy is not None or op.body is not None, "neither reference nor body"
    assert op.shape is not None or op.body is not None, "no shape rule"
    assert samples_of(op), "no samples, and the row's domain is not enough"
    assert all(dtypes_of(op, sample) for sample in samples_of(op)), "a sample without any dtype"
    assert op.domain[0] < op.domain[1]
    assert op.cast in (None, "low", "high")
    if op.kind in ELEMENTWISE:
        assert op.expr, "no expression for generated kernels"


@pytest.mark.parametrize("op", ROWS)
def test_gradient_or_reason(op: Op) -> None:
    if not op.differentiable:
        assert op.name in NO_GRADIENT or not gives_floats(op), "no vjp, and no reason why"
    else:
        assert op.name not in NO_GRADIENT, "has a vjp and a reason for having none"
        smooth = [s for s in samples_of(op) if s.grad]
        assert smooth, "no sample to differentiate at"
        wide = {d for s in smooth for d in dtypes_of(op, s)} & {ruda.float64, ruda.complex128}
        assert wide, "no sample in a dtype that gradients can be checked in"


def test_samples_belong_to_rows() -> None:
    strangers = {*SAMPLES, *NO_GRADIENT} - set(TABLE)
    assert not strangers


def test_a_name_is_a_row_or_a_composite() -> None:
    assert not set(rows()) & set(COMPOSITES)


def test_rows_are_bound_to_names_of_their_modules() -> None:
    assert not {*rows(), *COMPOSITES} - set(definitions())


@pytest.mark.parametrize("name", COMPOSITES)
def test_composite_is_complete(name: str) -> None:
    composite = COMPOSITES[name]
    assert composite.doc.strip(), "no doc"
    assert name in {c.name.partition("-")[0] for c in COMPOSED}, "no Composed sample"


def public(owner: Any) -> list[tuple[str, Any]]:
    names = [name for name in dir(owner) if not name.startswith("_")]
    return [(name, getattr(owner, name)) for name in names]


def undocumented(owner: Any) -> list[str]:
    described = [(n, v) for n, v in public(owner) if callable(v) or isinstance(v, property)]
    return [name for name, value in described if not (inspect.getdoc(value) or "").strip()]


def test_public_names_are_documented() -> None:
    assert not undocumented(ruda)
    # Slots show as descriptors without a doc; they are the storage that the design names.
    assert not set(undocumented(ruda.Tensor)) - {"spec", "handle", "qparams", "node"}


def test_undocumented_names_are_found() -> None:
    class Owner:
        def silent(self) -> None:
            pass

    assert undocumented(Owner) == ["silent"]


@pytest.mark.parametrize("path", stubs.STUBS, ids=lambda p: p.name)
def test_stubs_are_fresh(path: Any) -> None:
    text = path.read_text("utf-8")
    assert text == stubs.STUBS[path](), "stale: python -m ruda.stubs --write"


def test_methods_are_in_the_stub() -> None:
    text = stubs.method_stub()
    assert all(f"def {name}(" in text for name in stubs.attached())


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        ("ruda", standard.MAIN),
        ("ruda.linalg", standard.LINALG),
        ("ruda.fft", standard.FFT),
        ("ruda.Tensor", standard.ARRAY),
    ],
    ids=["main", "linalg", "fft", "array"],
)
def test_standard_names_are_there(owner: str, names: str) -> None:
    found = ruda
    for part in owner.split(".")[1:]:
        found = getattr(found, part)
    missing = [name for name in names.split() if not hasattr(found, name)]
    assert not missing, f"{owner} lacks {missing}"
