"""How many blocks an elementwise kernel has: one for its packs alone where the work is light."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ruda.backends.cuda.compiler")

from ruda.backends.cuda import codegen
from ruda.backends.cuda.codegen_steps import THREADS, blocks_of, is_light
from ruda.core.dtypes import float32, float64


@pytest.mark.parametrize(
    ("expr", "light"),
    [
        ("x", True),
        ("x * y + T(1)", True),
        ("exp(x) / (T(1) + exp(x))", True),
        ("ruda_sigmoid(x) * y", True),
        ("erf(x)", False),
        ("exp(x) + tanh(y)", False),
    ],
)
def test_light_is_what_calls_nothing_long(expr: str, light: bool) -> None:
    assert is_light(expr, "float") is light
    # Even the short functions are long in doubles.
    assert is_light(expr, "double") is (light and "(" not in expr.replace("(T", ""))


@pytest.mark.parametrize(("packs", "blocks"), [(1, 1), (THREADS, 1), (THREADS + 1, 2)])
@pytest.mark.parametrize("light", [False, True])
def test_small_work_has_a_block_for_its_packs(packs: int, blocks: int, light: bool) -> None:
    assert blocks_of(packs, 132, light) == blocks


def test_blocks_go_on_to_other_packs_where_there_is_more_to_compute() -> None:
    packs = 1 << 24
    assert blocks_of(packs, 132, True) == packs // THREADS
    assert blocks_of(packs, 132, False) == 132 * 16
    # As many as a grid may have.
    assert blocks_of(1 << 62, 132, True) == 2**31 - 1


def kernel(expr: str, rank: int, count: int = 0, dtype: Any = float32) -> codegen.Map:
    operand = codegen.Operand("x", dtype, dtype, "dense" if rank == 0 else "strided")
    return codegen.Map("f", expr, (operand,), dtype, rank, count=count)


def test_kernels_that_find_each_element_are_not_light() -> None:
    assert codegen.is_light_map(kernel("-x", 0))
    assert codegen.is_light_map(kernel("-x", 2, count=4))
    assert not codegen.is_light_map(kernel("-x", 2))
    assert not codegen.is_light_map(kernel("erf(x)", 0))
    assert not codegen.is_light_map(kernel("exp(x)", 0, dtype=float64))
