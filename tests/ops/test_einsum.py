"""Einstein sums against NumPy: values, gradients, orders of contraction, and errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.ops.contraction import contraction_path
from ruda.testing import assert_close, gradcheck

CASES = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk->ki", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ji,kj", (3, 2), (4, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iii->i", (3, 3, 3)),
    ("ijij->ji", (2, 3, 2, 3)),
    ("iij,jk->ik", (3, 3, 2), (2, 4)),
    ("iji,j", (2, 3, 2), (3,)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("i,i->", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    (",ij->ij", (), (2, 3)),
    ("...", (2, 3)),
    ("i...->...", (2, 3, 4)),
    ("...i,...i", (2, 3), (4, 1, 3)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("...ij,jk->...ik", (6, 5, 2, 3), (3, 4)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bhqk,bhkd->bqhd", (2, 3, 4, 6), (2, 3, 6, 5)),
    ("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 2, 3)),
    ("ij,ij->ij", (2, 3), (1, 3)),
    ("ij,j->i", (2, 3), (1,)),
    ("ab,bc->ac", (2, 1), (3, 4)),
    ("ij,jk->ik", (0, 3), (3, 4)),
    ("ij,jk->ik", (2, 0), (0, 4)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)),
    ("ab,ab,ab->a", (2, 3), (2, 3), (2, 3)),
    ("ai,bi,ci->abc", (2, 5), (3, 5), (4, 5)),
    ("abc,cde,ebf->adf", (2, 3, 4), (4, 5, 6), (6, 3, 2)),
    ("zy,yx,xw,wv,vu->zu", (2, 9), (9, 3), (3, 8), (8, 2), (2, 4)),
    ("ab,bc,cd,de,ef,fg,ga->", *((2, 2),) * 7),
]


def drawn(rng: Any, shapes: Any) -> list[Any]:
    return [np.asarray(rng.standard_normal(s)) for s in shapes]


@pytest.mark.parametrize("order", ["auto", "optimal", "greedy", "left"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}")
def test_values(case: Any, order: str, rng: np.random.Generator) -> None:
    pattern, *shapes = case
    values = drawn(rng, shapes)
    out = ruda.einsum(pattern, *map(ruda.asarray, values), optimize=order)
    expected = np.einsum(pattern, *values)
    assert out.shape == expected.shape
    # Sums of products cancel: the error is relative to the sum of their absolute values.
    size = np.einsum(pattern, *map(np.abs, values))
    terms = max(int(np.prod([v.size for v in values])) // max(out.size, 1), 1)
    assert np.all(np.abs(out.numpy() - expected) <= (terms + 4) * 2.3e-16 * size)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}")
def test_gradients(case: Any, rng: np.random.Generator) -> None:
    pattern, *shapes = case
    gradcheck(lambda *xs: ruda.einsum(pattern, *xs), drawn(rng, shapes))


def test_interleaved(rng: np.random.Generator) -> None:
    x, y = drawn(rng, ((2, 3), (3, 4)))
    a, b = ruda.asarray(x), ruda.asarray(y)
    assert_close(ruda.einsum(a, [0, 7], b, [7, 2], [2, 0]), (x @ y).T, length=3)
    assert_close(ruda.einsum(a, [..., 1], b, [1, 2]), x @ y, length=3)


def test_diagonal_is_a_view() -> None:
    x = ruda.zeros((3, 3))
    assert ruda.einsum("ii->i", x).is_view
    assert ruda.einsum("ij->ji", x).is_view


def test_result_of_a_product_needs_no_transposition() -> None:
    x = ruda.ones((2, 3, 4))
    assert ruda.einsum("bij,bkj->bki", x, ruda.ones((2, 5, 4))).is_contiguous()
    assert ruda.einsum("ij,jk->ki", x[0], ruda.ones((4, 5))).is_contiguous()


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "bfloat16", "complex64"])
def test_dtype_stays(dtype: str) -> None:
    x = ruda.ones((2, 2), dtype=dtype)
    for pattern, count in (("ij->i", 1), ("ij,jk->ik", 2), ("ij,ij->ij", 2)):
        assert ruda.einsum(pattern, *[x] * count).dtype == dtype


def test_optimal_order_is_cheaper_than_as_written() -> None:
    sizes = {"a": 100, "b": 1, "c": 100, "d": 1}
    terms = [("a", "b"), ("b", "c"), ("c", "d")]
    assert contraction_path(terms, ("a", "d"), sizes, "left") == ((0, 1), (0, 1))
    assert contraction_path(terms, ("a", "d"), sizes, "optimal") == ((1, 2), (0, 1))


def test_orders_of_many_operands_end_in_one() -> None:
    names = "abcdefghij"
    terms = list(itertools.pairwise(names))
    for order in ("auto", "greedy", "optimal", "left"):
        path = contraction_path(terms, ("a", "j"), dict.fromkeys(names, 2), order)
        left = len(terms)
        for i, j in path:
            assert 0 <= i < j < left
            left -= 1
        assert left == 1


X, Y = ruda.ones((2, 3)), ruda.ones((3, 4))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("i1,jk->ik", X, Y), ArgumentError, "cannot read '1'"),
        (("ij,jk->ikk", X, Y), ArgumentError, "a label is twice in the result"),
        (("ij,jk->iz", X, Y), ArgumentError, "the result has a label that no operand has"),
        (("ij,kj->i", X, Y), ShapeError, "the lengths of 'j' differ. Got 3 and 4"),
        (("ij->i", X, Y), ArgumentError, "operands and terms do not pair up"),
        (("ijk->i", X), ShapeError, "'ijk' does not fit an operand"),
        (("...ijk->i...", X), ShapeError, "3 axes or more"),
        (("...i->i", X), ArgumentError, "the ellipsis is missing"),
        (("i....->i", X), ArgumentError, "cannot read '.'"),
        (("...i...->i", X), ArgumentError, "cannot read '.'"),
        (("ij->i->j", X), ArgumentError, "cannot read '-'"),
        ((X, "ij"), ArgumentError, "not a sequence of labels"),
        ((X, [0, -1]), ArgumentError, "not a label. Got -1"),
        ((X, [..., ...]), ArgumentError, "two ellipses"),
        (("ij", np.ones((2, 3))), DTypeError, "an operand is not a tensor"),
    ],
    ids=lambda a: a if isinstance(a, str) else None,
)
def test_errors(arguments: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=f"einsum: .*{match}"):
        ruda.einsum(*arguments)


def test_unknown_order() -> None:
    with pytest.raises(ArgumentError, match="einsum: unknown optimize"):
        ruda.einsum("ij->i", X, optimize="best")
