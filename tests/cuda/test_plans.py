"""Every row says what a GPU runs for it: a kernel, a library, or why there is neither.

The samples of the table are planned on a client whose driver takes note of kernels instead of
compiling them; nothing is launched.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.backends.cuda.client import CudaClient
from ruda.backends.cuda.kernels import KERNELS
from ruda.core import devices
from ruda.core.dtypes import as_dtype
from ruda.core.errors import StrategyError
from ruda.core.spec import absent_spec, spec_of
from ruda.ops.listing import rows
from ruda.ops.table import FALLBACK, row
from ruda.tensor.dispatch import OPS, Op, clear_plans
from ruda.tensor.operands import operand
from tests.cuda.emulator.driver import EmulatedDriver, NoMemoryLeft
from tests.sources import ROOT
from tests.table.cases import Case, dtypes_of, samples_of

ROWS = [pytest.param(op, id=op.name) for op in rows().values()]
# What ``bind`` gives where a row has nothing of its own.
_NOTHING = re.compile(r"CudaClient\.(by_body|_missing)\.")


class NotingDriver(EmulatedDriver):
    """Knows kernels by name and compiles none."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: dict[tuple[str, str], int] = {}

    def kernel(self, source: str, name: str, shared: int = 0) -> int:
        assert name in source, f"{name} is not in its source"
        return self.noted.setdefault((name, source), len(self.noted))

    def launch(self, kernel: int, *rest: int) -> None:
        """Not run: a plan may launch while it is made, to fill a table."""


@pytest.fixture(scope="module")
def noting() -> Iterator[CudaClient]:
    """A client that plans and does not run."""
    pytest.importorskip("cuda.bindings.nvrtc")
    where = devices.Device("cuda", 0)
    before = devices._clients.pop(where, None)
    client = CudaClient(where, NotingDriver(), NoMemoryLeft)
    devices._clients[where] = client
    yield client
    clear_plans()
    del devices._clients[where]
    if before is not None:
        devices._clients[where] = before


def bound(client: CudaClient, case: Case) -> Any:
    """What the plan of a case runs."""
    specs = []
    for value in case.operands(np.random.default_rng(0)):
        if isinstance(value, np.ndarray):
            specs.append(spec_of(client, value.shape, as_dtype(value.dtype)))
        else:
            found = operand(case.op.name, value, client)
            specs.append(absent_spec(client) if found is None else found[0])
    return case.op.plan(tuple(specs), case.sample.attrs, client).run


def has_own(run: Any) -> bool:
    """Whether a bound function is a kernel or a library, and not the body or an error."""
    return not _NOTHING.match(getattr(run, "__qualname__", ""))


@pytest.mark.parametrize("op", ROWS)
def test_a_row_is_bound_or_says_why_not(op: Op, noting: CudaClient) -> None:
    """Each sample in the first of its dtypes, the first sample in all of them."""
    samples = samples_of(op)
    cases = [Case(op, samples[0], dtype) for dtype in dtypes_of(op, samples[0])]
    cases += [Case(op, sample, dtypes_of(op, sample)[0]) for sample in samples[1:]]
    own = [has_own(bound(noting, case)) for case in cases]
    if op.cuda is not None:
        assert isinstance(op.cuda, FALLBACK)
        assert op.cuda.reason
        assert not any(own), "has a kernel and a reason for having none"
        assert op.name not in KERNELS, "has a kernel and a reason for having none"
    else:
        assert any(own) or op.name in KERNELS, "neither kernel, nor library, nor FALLBACK"


def test_kernels_belong_to_rows() -> None:
    assert not set(KERNELS) - set(rows())


def test_the_page_of_operators_lists_the_reasons() -> None:
    page = (ROOT / Path("docs/ops.md")).read_text("utf-8")
    silent = [op.name for op in rows().values() if op.cuda and op.cuda.reason not in page]
    assert not silent


def test_a_primitive_without_a_kernel_raises_its_reason(noting: CudaClient) -> None:
    def rule(op: Any, specs: Any) -> Any:
        return None, specs[0].dtype

    call = row(
        "planless",
        "planless",
        "x",
        shape=lambda op, specs: specs[0].shape,
        dtype=rule,
        numpy=np.positive,
        cuda=FALLBACK("it is made up"),
        grade="custom",
    )
    try:
        x = ruda.zeros(3, device="cuda:0")
        with pytest.raises(StrategyError, match="no kernel on cuda:0: it is made up"):
            call(x)
        refusal = ruda.supports("planless", "float32", "cuda:0")
        assert "it is made up" in str(refusal)
        assert not refusal
    finally:
        del OPS["planless"]


def test_silence_is_found(noting: CudaClient) -> None:
    lacking = itertools.islice((op for op in rows().values() if op.cuda is not None), 3)
    for op in lacking:
        sample = samples_of(op)[0]
        assert not has_own(bound(noting, Case(op, sample, dtypes_of(op, sample)[0])))
