"""The cases of the derived tests: rows times samples times dtypes, with readable ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import ruda
from ruda.core.devices import client
from ruda.core.dtypes import ARITHMETIC, DType, as_dtype
from ruda.core.errors import DTypeError
from ruda.core.spec import Spec, absent_spec
from ruda.ops.listing import load, rows
from ruda.tensor.dispatch import Op
from ruda.tensor.launch import slow
from ruda.tensor.operands import operand
from ruda.tensor.tensor import RudaTensor
from tests.table.sample import Sample, operands
from tests.table.samples import SAMPLES

load()
ELEMENTWISE = ("unary", "binary", "ternary")
BY_ARITY = {
    1: (Sample(((3, 5),)),),
    2: (Sample(((3, 5), (3, 5))), Sample(((3, 5), (5,))), Sample(((3, 1), (1, 5)))),
    3: (Sample(((3, 5), (3, 5), (3, 5))), Sample(((3, 1), (5,), ()))),
}


class Case(NamedTuple):
    """One row with one sample in one dtype."""

    op: Op
    sample: Sample
    dtype: DType

    def operands(self, rng: Any) -> list[Any]:
        """ndarrays, tuples of integers and scalars for this case."""
        return operands(self.sample.inputs, self.dtype, self.op.domain, rng)  # type: ignore[no-any-return]


def samples_of(op: Op) -> tuple[Sample, ...]:
    """The samples of a row, or those that its arity gives a row of elements."""
    found = SAMPLES.get(op.name)
    if found:
        return tuple(found)
    return BY_ARITY[len(op.args)] if op.kind in ELEMENTWISE and not op.attrs else ()


def dtypes_of(op: Op, sample: Sample) -> tuple[DType, ...]:
    """The dtypes to test a sample in: those that the row accepts and its dtype rule takes.

    Only float32 where the dtype changes nothing.
    """
    if not sample.shapes and not any(_is_array(x) and x.dtype.kind in "fc" for x in sample.inputs):
        return (ruda.float32,)
    accepted = op.accepts or ARITHMETIC
    wanted = (d for d in accepted if sample.dtypes is None or d in sample.dtypes)
    return tuple(d for d in wanted if not refuses(op, sample, d))


def refuses(op: Op, sample: Sample, dtype: DType) -> bool:
    """Whether the dtype rule says no to this dtype in this place, with an error of the row's."""
    values = operands(sample.inputs, dtype, op.domain, np.random.default_rng(0))
    try:
        op.dtype(op, specs_of(op, values), *sample.attrs)  # type: ignore[misc]
    except DTypeError as error:
        return error.op == op.name
    return False


def specs_of(op: Op, values: list[Any]) -> tuple[Spec, ...]:
    """The specs that a call with ``values`` looks up."""
    found = [operand(op.name, v, client()) for v in values]
    return tuple(absent_spec(client()) if f is None else f[0] for f in found)


def typed(full: bool) -> Iterator[Any]:
    """Every row in every dtype it accepts.

    Unless ``full``, a dtype meets one sample of the row, in turn, and float32 meets all.
    """
    for op in rows().values():
        samples = samples_of(op)
        for i, sample in enumerate(samples):
            for j, dtype in enumerate(dtypes_of(op, sample)):
                narrow = sample.dtypes is not None
                if full or narrow or dtype is ruda.float32 or j % len(samples) == i:
                    yield _param(Case(op, sample, dtype), i)


def widest(full: bool) -> Iterator[Any]:
    """Every row and sample in the first inexact dtype of 64 bits a part, or else in one it takes.

    With ``full`` in each such dtype.
    """
    for op in rows().values():
        for i, sample in enumerate(samples_of(op)):
            wide = [d for d in dtypes_of(op, sample) if d in (ruda.float64, ruda.complex128)]
            chosen = wide or dtypes_of(op, sample)[-1:]
            for dtype in chosen if full else chosen[:1]:
                yield _param(Case(op, sample, dtype), i)


def one_each(full: bool) -> Iterator[Any]:
    """The first sample of every row, with ``full`` all of them, as in ``widest``."""
    for param in widest(full):
        case = param.values[0]
        if full or case.sample is samples_of(case.op)[0]:
            yield param


def smooth(full: bool) -> Iterator[Any]:
    """Every differentiable row and sample, in float64 and complex128."""
    for op in rows().values():
        for i, sample in enumerate(samples_of(op)):
            if op.differentiable and sample.grad:
                wide = (ruda.float64, ruda.complex128)
                for dtype in (d for d in wide if d in dtypes_of(op, sample)):
                    yield _param(Case(op, sample, dtype), i)


def _param(case: Case, i: int) -> Any:
    return pytest.param(case, id=f"{case.op.name}-{i}-{case.dtype}")


def parametrize(metafunc: pytest.Metafunc, cases: Callable[[bool], Iterator[Any]]) -> None:
    """Give ``cases`` to a test that has a parameter ``case``."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list(cases(metafunc.config.getoption("full"))))


def invoke(op: Op, values: list[Any], attrs: tuple[Any, ...]) -> Any:
    """Call a row, with as many operands as there are when it takes any number."""
    if len(values) == len(op.args):
        return op.call(*values, *attrs)
    return slow(op, values, attrs)


def tensors(values: list[Any]) -> list[Any]:
    """The ndarrays among ``values`` as tensors."""
    return [ruda.asarray(v) if _is_array(v) else v for v in values]


def run(case: Case, values: list[Any]) -> list[RudaTensor]:
    """The outputs of a case on the operands ``values``."""
    result = invoke(case.op, tensors(values), case.sample.attrs)
    return list(result) if isinstance(result, tuple | list) else [result]


def wide(dtype: DType | None) -> Any:
    """The NumPy dtype to compute ``dtype`` in without visible error; None for integers."""
    if dtype is None or not dtype.is_inexact:
        return None
    return np.complex128 if dtype.kind == "complex" else np.float64


def reference(case: Case, values: list[Any]) -> list[Any]:
    """The row's meaning in float64 and complex128, as ndarrays.

    Exact rows move bits or depend on the dtype: their reference sees the values as they are.
    """
    with np.errstate(all="ignore"):
        return _reference(case.op, values, case.sample.attrs)


def _reference(op: Op, values: list[Any], attrs: tuple[Any, ...]) -> list[Any]:
    if op.numpy is None:
        raised = [ruda.asarray(_seen(op, v, None)) if _is_array(v) else v for v in values]
        result = op.body(*raised, *attrs)  # type: ignore[misc]
        return [t.numpy() for t in (result if op.outs else [result])]
    cast, _ = op.dtype(op, specs_of(op, values), *attrs)  # type: ignore[misc]
    each = cast if isinstance(cast, tuple) else (cast,) * len(values)
    result = op.numpy(*[_seen(op, v, d) for v, d in zip(values, each, strict=True)], *attrs)
    return [np.asarray(r) for r in (result if op.outs else [result])]


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _seen(op: Op, value: Any, dtype: DType | None) -> Any:
    """An operand as the reference gets it: cast as the row says, and then to 64 bits a part."""
    if value is None:
        return None
    if not _is_array(value):
        return value if dtype is None else np.asarray(value, wide(dtype) or dtype.numpy)
    target = None if op.exact else wide(dtype or as_dtype(value.dtype))
    if target is None and dtype is not None:
        target = dtype.numpy
    return value if target is None else value.astype(target)


def length(values: list[Any], outputs: list[Any]) -> int:
    """How many terms a sum behind one output can have: elements in, for each element out."""
    size = max((v.size for v in values if _is_array(v)), default=1)
    return max(1, size // max(1, min(t.size for t in outputs)))


def uncancelled(case: Case, values: list[Any], output: Any) -> float:
    """The norm of an output of a sum whose terms have the size of the operands; else 0."""
    if case.op.kind not in ("reduction", "scan") or not case.dtype.is_inexact:
        return 0.0
    sizes = [
        float(np.mean(np.abs(_seen(case.op, v, None)))) for v in values if _is_array(v) and v.size
    ]
    return max(sizes, default=0.0) * float(np.sqrt(output.size))
