"""Linear algebra against NumPy, SciPy and PyTorch: factors, solutions, norms, gradients, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import linalg
from ruda.core.errors import GradientError, LinAlgError
from ruda.testing import assert_close, gradcheck

DTYPES = ("float32", "float64", "complex64", "complex128")
SHAPES = [(3, 3), (2, 5, 3), (2, 3, 5), (40, 40), (0, 3), (3, 0), (0, 3, 3), (2, 0, 0)]
SQUARES = [s for s in SHAPES if s[-1] == s[-2]]


def drawn(rng: Any, shape: Any, dtype: str = "float64") -> Any:
    """Random matrices whose singular values lie between 1 and 3."""
    noise = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        noise = noise + 1j * rng.standard_normal(shape)
    if 0 in shape:
        return noise.astype(dtype)
    u, s, vh = np.linalg.svd(noise, full_matrices=False)
    return (u * np.linspace(3, 1, s.shape[-1]) @ vh).astype(dtype)


def definite(rng: Any, shape: Any, dtype: str = "float64") -> Any:
    x = drawn(rng, shape, dtype)
    return (x @ adjoint(x) + np.eye(shape[-1])).astype(dtype)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def near(got: Any, want: Any, sides: int = 1) -> None:
    """Within the backward error of LAPACK: the condition, at most 10 here, and the side, in eps."""
    got = got.numpy() if hasattr(got, "spec") else got
    eps = np.finfo(got.dtype).eps
    assert_close(got, want, rtol=40 * (10 + sides) * eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors_multiply_to_the_matrix(shape: Any, dtype: str, rng: np.random.Generator) -> None:
    x = drawn(rng, shape, dtype)
    (q, r), (p, lower, upper) = linalg.qr(ruda.asarray(x)), linalg.lu(ruda.asarray(x))
    u, s, vh = linalg.svd(ruda.asarray(x), full_matrices=False)
    k = min(shape[-2:])
    for product in (q @ r, p @ lower @ upper, (u * ruda.expand_dims(s, -2)) @ vh):
        assert product.dtype == dtype
        near(product, x, max(shape))
    near(adjoint(q.numpy()) @ q.numpy(), np.broadcast_to(np.eye(k), (*shape[:-2], k, k)), k)
    for part in (r.numpy(), upper.numpy()):
        np.testing.assert_array_equal(part, np.triu(part))
    np.testing.assert_array_equal(lower.numpy(), np.tril(lower.numpy()))
    assert s.dtype == np.finfo(dtype).dtype
    near(linalg.svdvals(ruda.asarray(x)), np.linalg.svd(x, compute_uv=False), max(shape))


@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 5), (3, 3), (0, 3)], ids=str)
def test_whole_bases(shape: Any, rng: np.random.Generator) -> None:
    x = ruda.asarray(drawn(rng, shape))
    m, n = shape[-2:]
    u, s, vh = linalg.svd(x)
    q, r = linalg.qr(x, mode="complete")
    assert (u.shape[-2:], s.shape[-1], vh.shape[-2:]) == ((m, m), min(m, n), (n, n))
    assert (q.shape[-2:], r.shape[-2:]) == ((m, m), (m, n))
    near(q @ r, x.numpy(), m)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARES, ids=str)
def test_hermitian(shape: Any, dtype: str, rng: np.random.Generator) -> None:
    x = definite(rng, shape, dtype)
    lower, upper = linalg.cholesky(ruda.asarray(x)), linalg.cholesky(ruda.asarray(x), upper=True)
    near(lower @ ruda.asarray(adjoint(lower.numpy())), x, shape[-1])
    near(upper, adjoint(lower.numpy()), shape[-1])
    values, vectors = linalg.eigh(ruda.asarray(x))
    near((vectors.numpy() * values.numpy()[..., None, :]) @ adjoint(vectors.numpy()), x, shape[-1])
    near(linalg.eigvalsh(ruda.asarray(x)), values.numpy(), shape[-1])
    assert values.dtype == np.finfo(dtype).dtype


def test_hermitian_part_is_looked_at(rng: np.random.Generator) -> None:
    x, noise = definite(rng, (3, 3)), np.triu(rng.random((3, 3)), 1)
    for f in (linalg.cholesky, linalg.eigvalsh):
        near(f(ruda.asarray(x + noise - noise.T)), f(ruda.asarray(x)).numpy(), 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARES, ids=str)
def test_systems(shape: Any, dtype: str, rng: np.random.Generator) -> None:
    x, y = drawn(rng, shape, dtype), drawn(rng, (*shape[:-1], 2), dtype)
    a, b = ruda.asarray(x), ruda.asarray(y)
    near(linalg.solve(a, b), np.linalg.solve(x, y), shape[-1])
    near(linalg.inv(a), np.linalg.inv(x), shape[-1])
    near(linalg.det(a), np.linalg.det(x), shape[-1] ** 2)
    sign, logarithm = linalg.slogdet(a)
    near(sign, np.linalg.slogdet(x).sign, shape[-1])
    near(logarithm, np.linalg.slogdet(x).logabsdet, shape[-1] ** 2)


@pytest.mark.parametrize("n", [1, 3, 32, 70])
@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangles(n: int, upper: bool, unit: bool, rng: np.random.Generator) -> None:
    linalg_of_scipy = pytest.importorskip("scipy.linalg")
    # Small beside the diagonal: the growth of substitution stays moderate.
    x = rng.standard_normal((n, n)) / n + 2 * np.eye(n)
    for y in (rng.standard_normal(n), rng.standard_normal((n, 3))):
        got = linalg.solve_triangular(
            ruda.asarray(x), ruda.asarray(y), upper=upper, unit_diagonal=unit
        )
        want = linalg_of_scipy.solve_triangular(x, y, lower=not upper, unit_diagonal=unit)
        near(got, want, n)


def test_batches_broadcast(rng: np.random.Generator) -> None:
    x, y = drawn(rng, (4, 1, 3, 3)), rng.random((2, 3, 2))
    near(linalg.solve(ruda.asarray(x), ruda.asarray(y)), np.linalg.solve(x, y), 3)
    got = linalg.solve_triangular(ruda.asarray(x), ruda.asarray(y), upper=True)
    near(got, np.linalg.solve(np.triu(x), y), 3)


@pytest.mark.parametrize("shape", [(40, 40), (5, 70, 3), (3, 70), (1, 1)], ids=str)
def test_lu_pivots_like_lapack(shape: Any, rng: np.random.Generator) -> None:
    linalg_of_scipy = pytest.importorskip("scipy.linalg")
    x = rng.standard_normal(shape)
    for got, want in zip(linalg.lu(ruda.asarray(x)), linalg_of_scipy.lu(x), strict=True):
        near(got, want, 70)


def test_lu_of_a_singular_matrix() -> None:
    p, lower, upper = linalg.lu(ruda.asarray([[0.0, 1.0], [0.0, 2.0]]))
    assert (p @ lower @ upper).tolist() == [[0.0, 1.0], [0.0, 2.0]]


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 3, 5), (3, 3), (0, 3), (3, 0)], ids=str)
def test_pseudoinverse_and_rank(shape: Any, rng: np.random.Generator) -> None:
    x = drawn(rng, shape)
    near(linalg.pinv(ruda.asarray(x)), np.linalg.pinv(x), 5)
    rank = linalg.matrix_rank(ruda.asarray(x))
    assert rank.dtype == "int64"
    np.testing.assert_array_equal(rank.numpy(), np.linalg.matrix_rank(x))


def test_rtol(rng: np.random.Generator) -> None:
    x = np.stack([np.diag([1.0, 1e-3]), np.diag([1.0, 1e-3])])
    for rtol in (1e-2, ruda.asarray([1e-2, 1e-5], dtype="float64")):
        bound = rtol if isinstance(rtol, float) else rtol.numpy()
        got = linalg.matrix_rank(ruda.asarray(x), rtol=rtol).numpy()
        np.testing.assert_array_equal(got, np.linalg.matrix_rank(x, rtol=bound))
        near(linalg.pinv(ruda.asarray(x), rtol=rtol), np.linalg.pinv(x, rtol=bound))


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)], ids=str)
@pytest.mark.parametrize("rank", [2, 3])
def test_least_squares(shape: Any, rank: int, rng: np.random.Generator) -> None:
    x, y = drawn(rng, (shape[0], rank)) @ drawn(rng, (rank, shape[1])), rng.random((shape[0], 2))
    for b in (y, y[:, 0]):
        got = linalg.lstsq(ruda.asarray(x), ruda.asarray(b))
        solution, _, found, values = np.linalg.lstsq(x, b, rcond=None)
        assert got.rank.item() == found == rank
        near(got.solution, solution, 6)
        # Both are of the size of eps in relation to b where the fit is exact.
        want = np.sum((x @ solution - b) ** 2, axis=0)
        assert np.allclose(got.residuals.numpy(), want, rtol=1e-12, atol=1e-26)
        assert np.allclose(got.singular_values.numpy(), values, rtol=0, atol=1e-14 * values[0])


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
@pytest.mark.parametrize("keepdims", [True, False])
def test_matrix_norm(order: Any, keepdims: bool, rng: np.random.Generator) -> None:
    x = drawn(rng, (2, 3, 4), "complex128")
    got = linalg.matrix_norm(ruda.asarray(x), ord=order, keepdims=keepdims)
    near(got, np.linalg.norm(x, order, axis=(-2, -1), keepdims=keepdims), 4)


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 7])
def test_matrix_power(n: int, rng: np.random.Generator) -> None:
    x = drawn(rng, (2, 3, 3)) / 2
    near(linalg.matrix_power(ruda.asarray(x), n), np.linalg.matrix_power(x, n), 3 * abs(n))


@pytest.mark.parametrize("offset", [-2, 0, 1, 9])
def test_diagonal_and_trace(offset: int) -> None:
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    got = linalg.diagonal(ruda.asarray(x), offset=offset)
    np.testing.assert_array_equal(got.numpy(), np.linalg.diagonal(x, offset=offset))
    trace = linalg.trace(ruda.asarray(x), offset=offset)
    assert trace.dtype == "int64"
    np.testing.assert_array_equal(trace.numpy(), np.linalg.trace(x, offset=offset))


@pytest.mark.parametrize("axis", [-1, -2])
def test_cross(axis: int, rng: np.random.Generator) -> None:
    x, y = rng.random((4, 3, 3)), rng.random((3, 3))
    got = linalg.cross(ruda.asarray(x), ruda.asarray(y), axis=axis)
    near(got, np.cross(x, y, axis=axis))


@pytest.mark.parametrize("name", ["det", "inv", "pinv", "slogdet", "cholesky", "eigvalsh"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradient_is_that_of_torch(name: str, dtype: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x = definite(rng, (2, 3, 3), dtype)
    ours, theirs = ruda.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    got, want = getattr(linalg, name)(ours), getattr(torch.linalg, name)(theirs)
    if isinstance(got, tuple):
        got, want = got[1], want[1]
    seed = rng.standard_normal(got.shape).astype(got.dtype.numpy)
    got.backward(ruda.asarray(seed))
    want.backward(torch.tensor(seed))
    expected = theirs.grad.numpy()
    if name == "cholesky":
        # Only the Hermitian part means anything, and torch leaves some of the other.
        expected = (expected + adjoint(expected)) / 2
    near(ours.grad, expected, 100)


def test_determinant_of_a_singular_matrix_has_a_gradient() -> None:
    """The adjugate of a matrix of rank n - 1 is not zero."""
    x = ruda.tensor([[1.0, 2.0], [2.0, 4.0]], dtype="float64", requires_grad=True)
    linalg.det(x).backward()
    near(x.grad, np.array([[4.0, -2.0], [-2.0, 1.0]]))


def test_equal_eigenvalues_give_a_finite_gradient() -> None:
    """A function of the eigenspaces alone: the square root of the identity, plus a direction."""
    eye = np.eye(3)

    def root(x: Any) -> Any:
        values, vectors = linalg.eigh(x)
        return (vectors * ruda.expand_dims(ruda.sqrt(values), -2)) @ ruda.matrix_transpose(vectors)

    x = ruda.tensor(eye, requires_grad=True)
    ruda.sum(linalg.diagonal(root(x))).backward()
    near(x.grad, eye / 2)


def test_vectors_that_complete_a_basis_have_no_gradient() -> None:
    x = ruda.tensor(np.eye(4, 2), requires_grad=True)
    u, s, _ = linalg.svd(x)
    s.sum().backward(retain_graph=True)
    with pytest.raises(GradientError, match="svd: the vectors that complete U"):
        u.sum().backward()
    with pytest.raises(GradientError, match="qr: the columns that complete Q"):
        linalg.qr(x, mode="complete").R.sum().backward()


def test_second_order_through_whole_bases(rng: np.random.Generator) -> None:
    gradcheck(lambda x: linalg.svd(x).S, [drawn(rng, (3, 5))])
    gradcheck(lambda x: ruda.abs(linalg.svd(x).U), [drawn(rng, (3, 5))])


def test_error_is_also_a_value_error() -> None:
    with pytest.raises(LinAlgError, match=r"inv: singular matrix\. Try pinv or lstsq\."):
        linalg.inv(ruda.zeros((2, 2)))
    assert issubclass(LinAlgError, ValueError)
    assert linalg.LinAlgError is ruda.LinAlgError


def test_all_names_are_there() -> None:
    assert all(callable(getattr(linalg, name)) for name in linalg.__all__)
