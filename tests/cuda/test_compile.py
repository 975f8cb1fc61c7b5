"""What the compiler says of a wrong kernel; `make kernels` compiles all that are right."""

from __future__ import annotations

import re

import pytest

import ruda

compiler = pytest.importorskip("ruda.backends.cuda.compiler")
codegen = pytest.importorskip("ruda.backends.cuda.codegen")

from tests.cuda.gate.programs import ARCHITECTURES, spills  # noqa: E402

__all__ = ["ARCHITECTURES", "spills"]


def test_a_kernel_that_does_not_compile_shows_its_line() -> None:
    operand = codegen.Operand("x", ruda.float32, ruda.float32, "dense")
    wrong = codegen.Map("wrong", "no_such_function(x)", (operand,), ruda.float32, 0)
    with pytest.raises(compiler.CompileError, match="no_such_function") as caught:
        compiler.compile_cubin(codegen.source(wrong), "wrong", "sm_90a")
    assert re.search(r"\d+: .*no_such_function\(x\)", str(caught.value))
