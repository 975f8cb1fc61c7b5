"""What is promised of linear algebra: products, decompositions, solves, einsum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.linalg
from ruda.testing import gradcheck

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((2, 4, 3)), RNG.standard_normal((2, 3, 5))
SQUARE = RNG.standard_normal((2, 4, 4)) + 4 * np.eye(4)
POSITIVE = SQUARE @ SQUARE.swapaxes(-1, -2)
EPS = float(np.finfo(np.float64).eps)
# Error of a backward stable algorithm on matrices of this size and condition.
TIGHT = 200 * EPS


def near(got: Any, expected: Any, tolerance: float = TIGHT) -> None:
    values = got.detach().numpy()
    assert values.shape == expected.shape
    assert np.linalg.norm(values - expected) <= tolerance * max(np.linalg.norm(expected), 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_matmul_of_every_float_dtype(dtype: str) -> None:
    x, y = ruda.asarray(A, dtype=dtype), ruda.asarray(B, dtype=dtype)
    out = x @ y
    exact = x.numpy().astype(np.float64) @ y.numpy().astype(np.float64)
    assert out.dtype == dtype
    error = np.abs(out.numpy().astype(np.float64) - exact).max() / np.abs(exact).max()
    # One rounding of the result, and three in float32 for half types.
    assert error <= 2 * ruda.finfo(dtype).eps


SHAPES = [
    ((4, 3), (3, 5)),
    ((3,), (3, 5)),
    ((4, 3), (3,)),
    ((3,), (3,)),
    ((2, 4, 3), (3, 5)),
    ((4, 3), (2, 3, 5)),
    ((6, 1, 4, 3), (1, 2, 3, 5)),
    ((0, 3), (3, 5)),
    ((4, 0), (0, 5)),
    ((2, 4, 3), (3,)),
    ((3,), (2, 3, 5)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_is_batched_and_broadcasts(left: Any, right: Any) -> None:
    x, y = RNG.standard_normal(left), RNG.standard_normal(right)
    near(ruda.asarray(x) @ ruda.asarray(y), x @ y)
    swapped = ruda.asarray(np.swapaxes(x, 0, -1).copy())
    near(ruda.swapaxes(swapped, 0, -1) @ ruda.asarray(y), x @ y)
    if x.size and y.size:
        gradcheck(ruda.matmul, [x, y])


def test_int8_products_accumulate_in_int32_when_asked_for() -> None:
    x = np.full((3, 300), -128, np.int8)
    out = ruda.matmul(ruda.asarray(x), ruda.asarray(x.T), out_dtype="int32")
    assert out.dtype is ruda.int32 and out.tolist() == [[300 * 128 * 128] * 3] * 3


def test_out_dtype_widens_a_float_product() -> None:
    x = ruda.asarray([[300.0, 1.0]], dtype="float16")
    assert ruda.matmul(x, x.mT, out_dtype="float32").tolist() == [[90001.0]]
    assert np.isinf((x @ x.mT).item())
    with pytest.raises(ruda.DTypeError, match="out_dtype does not fit"):
        ruda.matmul(x, x.mT, out_dtype="int32")


def test_the_precision_is_ieee_unless_allowed_otherwise() -> None:
    assert "matmul: ieee" in str(ruda.explain_precision())
    with ruda.precision(matmul="tf32", conv="tf32", rnn="tf32", half_reduction=True):
        assert "tf32 is allowed" in str(ruda.explain_precision())
    assert "tf32" not in str(ruda.explain_precision())
    x = ruda.ones((2, 2))
    assert ruda.matmul(x, x, precision="ieee").tolist() == [[2, 2], [2, 2]]
    for call in (
        lambda: ruda.matmul(x, x, precision="fast"),
        lambda: ruda.precision(matmul="fast"),
        lambda: ruda.precision(conv=1),
    ):
        with pytest.raises(ruda.ArgumentError, match="precision: "):
            call()


@pytest.mark.parametrize(
    ("x", "y"), [((4, 3), (4, 3)), ((), (3,)), ((3,), ()), ((2, 4, 3), (3, 3, 5)), ((3,), (4,))]
)
def test_matmul_names_the_shapes_that_do_not_fit(x: Any, y: Any) -> None:
    with pytest.raises(ruda.ShapeError, match=r"^matmul: .*Got .*Expected "):
        ruda.zeros(x) @ ruda.zeros(y)


LINALG: dict[str, Any] = {
    "cholesky": (ruda.linalg.cholesky, np.linalg.cholesky, POSITIVE),
    "det": (ruda.linalg.det, np.linalg.det, SQUARE),
    "inv": (ruda.linalg.inv, np.linalg.inv, SQUARE),
    "pinv": (ruda.linalg.pinv, np.linalg.pinv, A),
    "eigvalsh": (ruda.linalg.eigvalsh, np.linalg.eigvalsh, POSITIVE),
    "svdvals": (ruda.linalg.svdvals, lambda a: np.linalg.svd(a, compute_uv=False), A),
    "matrix_norm": (ruda.linalg.matrix_norm, lambda a: np.linalg.norm(a, axis=(-2, -1)), A),
    "vector_norm": (ruda.linalg.vector_norm, lambda a: np.asarray(np.linalg.norm(a.ravel())), A),
    "trace": (ruda.linalg.trace, lambda a: np.trace(a, axis1=-2, axis2=-1), SQUARE),
    "diagonal": (ruda.linalg.diagonal, lambda a: np.diagonal(a, axis1=-2, axis2=-1), SQUARE),
    "matrix_power": (
        lambda x: ruda.linalg.matrix_power(x, -3),
        lambda a: np.linalg.matrix_power(a, -3),
        SQUARE,
    ),
    "solve": (
        lambda x: ruda.linalg.solve(x, ruda.asarray(SQUARE[:, :, :2])),
        lambda a: np.linalg.solve(a, SQUARE[:, :, :2]),
        SQUARE,
    ),
    "matrix_transpose": (ruda.linalg.matrix_transpose, lambda a: a.swapaxes(-1, -2), A),
    "tensordot": (
        lambda x: ruda.linalg.tensordot(x, ruda.asarray(A), axes=((0, 2), (0, 2))),
        lambda a: np.tensordot(a, A, ((0, 2), (0, 2))),
        A,
    ),
    "vecdot": (
        lambda x: ruda.linalg.vecdot(x, ruda.asarray(A)),
        lambda a: (a * A).sum(-1),
        A,
    ),
    "cross": (
        lambda x: ruda.linalg.cross(x, ruda.asarray(A)[::-1]),
        lambda a: np.cross(a, A[::-1]),
        A,
    ),
    "outer": (
        lambda x: ruda.linalg.outer(x[0, 0], x[0, :, 0]),
        lambda a: np.outer(a[0, 0], a[0, :, 0]),
        A,
    ),
    "solve_triangular": (
        lambda x: ruda.linalg.solve_triangular(x, ruda.asarray(SQUARE), upper=True),
        lambda a: np.linalg.solve(np.triu(a), SQUARE),
        SQUARE,
    ),
    "lstsq": (
        lambda x: ruda.linalg.lstsq(x, ruda.asarray(A[..., :1])).solution,
        lambda a: np.linalg.pinv(a) @ A[..., :1],
        A,
    ),
    "slogdet": (
        lambda x: ruda.linalg.slogdet(x)[1],
        lambda a: np.linalg.slogdet(a)[1],
        SQUARE,
    ),
}


@pytest.mark.parametrize("name", LINALG)
def test_linalg_agrees_with_numpy_and_is_differentiable(name: str) -> None:
    mine, theirs, matrix = LINALG[name]
    near(mine(ruda.asarray(matrix)), theirs(matrix), 20 * TIGHT)

    def of_symmetric(x: Any) -> Any:
        # These read one triangle only: perturb both alike.
        symmetric = name in ("cholesky", "eigvalsh")
        return mine((x + x.mT) / 2 if symmetric else x)

    gradcheck(of_symmetric, [matrix])


def test_decompositions_multiply_back() -> None:
    x = ruda.asarray(A)
    u, s, vh = ruda.linalg.svd(x, full_matrices=False)
    near((u * s[..., None, :]) @ vh, A)
    q, r = ruda.linalg.qr(x)
    near(q @ r, A)
    values, vectors = ruda.linalg.eigh(ruda.asarray(POSITIVE))
    near((vectors * values[..., None, :]) @ vectors.mT, POSITIVE)
    p, low, up = ruda.linalg.lu(ruda.asarray(SQUARE))
    near(p @ low @ up, SQUARE)
    assert ruda.linalg.matrix_rank(x).tolist() == [3, 3]


@pytest.mark.parametrize("name", ["inv", "solve", "cholesky", "det", "eigh"])
def test_matrices_that_do_not_fit_raise(name: str) -> None:
    call = getattr(ruda.linalg, name)
    extra = (ruda.ones((2, 2)),) if name == "solve" else ()
    for shape in ((3,), (2, 3)):
        with pytest.raises(ruda.ShapeError, match=f"^{name}: needs"):
            call(ruda.ones(shape), *extra)
    for dtype in ("int32", "float16", "bool"):
        with pytest.raises(ruda.DTypeError, match=f"^{name}: dtype not supported"):
            call(ruda.ones((2, 2), dtype=dtype), *extra)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ruda.linalg.inv(ruda.zeros((2, 2))),
        lambda: ruda.linalg.solve(ruda.zeros((2, 2)), ruda.ones(2)),
        lambda: ruda.linalg.cholesky(-ruda.eye(2)),
    ],
)
def test_singular_matrices_raise_a_typed_error(call: Any) -> None:
    with pytest.raises(ruda.LinAlgError, match=r"^\w+: .*\. Try "):
        call()


EINSUMS = {
    "implicit output": ("ij,jk", [(3, 4), (4, 5)]),
    "implicit and alphabetical": ("ba", [(2, 3)]),
    "ellipsis": ("...ij,...jk->...ik", [(6, 1, 2, 3), (2, 3, 4)]),
    "ellipsis in the middle": ("i...j->j...i", [(2, 3, 4, 5)]),
    "repeated label": ("ii->i", [(4, 4)]),
    "trace": ("ii", [(4, 4)]),
    "repeated in both": ("iij,jkk->ik", [(3, 3, 2), (2, 4, 4)]),
    "outer": ("i,j->ij", [(3,), (4,)]),
    "a chain": ("ab,bc,cd,de->ae", [(2, 9), (9, 3), (3, 8), (8, 2)]),
    "sum of all": ("ij->", [(3, 4)]),
    "scalars": (",->", [(), ()]),
    "batch": ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    "spaces": (" i j , j -> i ", [(3, 4), (4,)]),
}


@pytest.mark.parametrize("name", EINSUMS)
def test_einsum(name: str) -> None:
    terms, shapes = EINSUMS[name]
    arrays = [RNG.standard_normal(s) for s in shapes]
    near(ruda.einsum(terms, *map(ruda.asarray, arrays)), np.asarray(np.einsum(terms, *arrays)))
    gradcheck(lambda *xs: ruda.einsum(terms, *xs), arrays)


def test_einsum_searches_a_path_instead_of_one_big_loop() -> None:
    x = ruda.ones((60, 60))
    # One loop over all six labels would be 60**6 = 4.7e10 products.
    assert ruda.einsum("ab,bc,cd,de,ef->af", x, x, x, x, x)[0, 0].item() == 60.0**4


@pytest.mark.parametrize(
    "terms", ["ij,jk->iz", "ij", "i1,jk", "ij,jk->ii", "...,...,...", "iij,jk"]
)
def test_einsum_says_what_it_cannot_read(terms: str) -> None:
    with pytest.raises(ValueError, match=r"^einsum: .*Got "):
        ruda.einsum(terms, ruda.ones((2, 3)), ruda.ones((3, 2)))
