"""Linear algebra: what cuSOLVER and cuBLAS are given, on libraries of LAPACK; cross products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import linalg
from ruda.backends.cuda.blas import cublaslt
from ruda.backends.cuda.solver import rows
from ruda.backends.cuda.solver.library import Solver
from ruda.core.errors import LinAlgError
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close
from tests.cuda.libraries.cublaslt import CublasLt

pytest.importorskip("scipy")
pytest.importorskip("ruda.backends.cuda.compiler")
fakes = pytest.importorskip("tests.cuda.libraries.cusolver")

DTYPES = ("float32", "complex128")
# One matrix, and a batch for the routines that take one whole.
LEADS = ((), (2, 3))


@pytest.fixture
def solver(client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Solver]:
    """LAPACK in the place of the real libraries."""
    made = Solver(client, fakes.Solver(), fakes.Blas())
    monkeypatch.setattr(rows, "solver_of", lambda client: made)
    products = cublaslt.Library(client, CublasLt())
    monkeypatch.setattr(cublaslt, "library", lambda client: products)
    clear_plans()
    yield made
    clear_plans()
    for address in products.workspaces.values():
        client.driver.release(address)


def matrices(shape: tuple[int, ...], dtype: str, device: str, seed: int = 0) -> ruda.Tensor:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) + 2 * np.eye(*shape[-2:])
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return ruda.asarray(x, dtype=dtype, device=device)


def wide(x: Any) -> Any:
    a = x.numpy() if isinstance(x, ruda.Tensor) else x
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def close(got: Any, want: Any, name: str) -> None:
    assert_close(got.to("cpu"), want, length=64, scale=float(np.abs(want).max()) * 4, name=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", LEADS)
def test_solves(solver: Solver, device: str, lead: Any, dtype: str) -> None:
    x, y = matrices((*lead, 4, 4), dtype, device), matrices((4, 3), dtype, device, 1)
    a, b = wide(x), wide(y)
    close(linalg.inv(x), np.linalg.inv(a), "inv")
    close(linalg.solve(x, y), np.linalg.solve(a, b), "solve")
    close(
        linalg.solve(x.mT, y[:, 0]), np.linalg.solve(a.swapaxes(-1, -2), b[:, :1])[..., 0], "solve"
    )
    close(linalg.det(x), np.linalg.det(a), "det")
    sign, log = np.linalg.slogdet(a)
    got = linalg.slogdet(x)
    close(got.sign, sign, "sign")
    close(got.logabsdet, log, "logabsdet")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("upper", [False, True])
def test_triangles(solver: Solver, device: str, lead: Any, dtype: str, upper: bool) -> None:
    x, y = matrices((*lead, 4, 4), dtype, device), matrices((4, 3), dtype, device, 1)
    triangle = np.triu if upper else np.tril
    a = triangle(wide(x))
    close(linalg.solve_triangular(x, y, upper=upper), np.linalg.solve(a, wide(y)), "triangle")
    np.einsum("...ii->...i", a)[...] = 1
    got = linalg.solve_triangular(x, y, upper=upper, unit_diagonal=True)
    close(got, np.linalg.solve(a, wide(y)), "unit triangle")
    h = wide(x) @ np.conj(wide(x).swapaxes(-1, -2)) + np.eye(4)
    gram = ruda.asarray(h, dtype=dtype, device=device)
    close(linalg.cholesky(gram, upper=upper), np.linalg.cholesky(h, upper=upper), "cholesky")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5)])
def test_factors(solver: Solver, device: str, shape: Any, dtype: str) -> None:
    x = matrices(shape, dtype, device)
    a = wide(x)
    p, lower, upper = (wide(t) for t in linalg.lu(x))
    close(x, p @ lower @ upper, "lu")
    assert np.all(np.triu(lower, 1) == 0)
    assert np.all(np.tril(upper, -1) == 0)
    # Complex pivots are the largest by the sum of both parts.
    assert np.abs(lower).max() <= np.sqrt(2) + 1e-6
    for mode in ("reduced", "complete"):
        q, r = (wide(t) for t in linalg.qr(x, mode=mode))
        assert [t.shape for t in (q, r)] == [t.shape for t in np.linalg.qr(a, mode)]
        close(x, q @ r, "qr")
        assert np.all(np.tril(r, -1) == 0)
        gram = np.conj(q.swapaxes(-1, -2)) @ q
        np.testing.assert_allclose(
            gram, np.broadcast_to(np.eye(q.shape[-1]), gram.shape), atol=1e-5
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5)])
def test_singular_values(solver: Solver, device: str, shape: Any, dtype: str) -> None:
    x = matrices(shape, dtype, device)
    a, k = wide(x), min(shape[-2:])
    values = np.linalg.svd(a, compute_uv=False)
    close(linalg.svdvals(x), values, "svdvals")
    for full in (False, True):
        u, s, vh = linalg.svd(x, full_matrices=full)
        expected = np.linalg.svd(a, full_matrices=full)
        assert [t.shape for t in (u, s, vh)] == [t.shape for t in expected]
        close(s, values, "svd")
        close(x, wide(u)[..., :k] * values[..., None, :] @ wide(vh)[..., :k, :], "svd")
    close(linalg.pinv(x), np.linalg.pinv(a), "pinv")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", LEADS)
def test_eigenvalues(solver: Solver, device: str, lead: Any, dtype: str) -> None:
    x = matrices((*lead, 4, 4), dtype, device)
    h = (wide(x) + np.conj(wide(x).swapaxes(-1, -2))) / 2
    values, vectors = linalg.eigh(x)
    close(values, np.linalg.eigvalsh(h), "eigh")
    close(linalg.eigvalsh(x), np.linalg.eigvalsh(h), "eigvalsh")
    v = wide(vectors)
    rebuilt = v * wide(values)[..., None, :] @ np.conj(v.swapaxes(-1, -2))
    close(ruda.asarray(h, dtype=dtype), rebuilt, "eigh")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_adjugates(solver: Solver, device: str, n: int, dtype: str) -> None:
    """The gradient of determinants, of singular matrices too; the operand is a transposed view."""
    x = matrices((3, n, n), dtype, device).mT.copy()
    x[1, 0] = 0
    x = x.mT.requires_grad_()
    linalg.det(x).sum().backward()
    a, minors = wide(x), np.empty(x.shape, complex)
    for i in range(n):
        for j in range(n):
            rest = np.delete(np.delete(a, i, -2), j, -1)
            minors[..., i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    close(x.grad, np.conj(minors) if dtype.startswith("complex") else minors.real, "adjugate")


def test_gradients(solver: Solver, device: str) -> None:
    found = []
    for where in ("cpu", device):
        x = matrices((3, 3), "float64", where).requires_grad_()
        s = linalg.svdvals(x).sum() + linalg.slogdet(x).logabsdet + linalg.det(x)
        (s + linalg.inv(x).sum() + linalg.cholesky(x @ x.mT).sum()).backward()
        found.append(x.grad.to("cpu").numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def test_what_cannot_be_done_raises(solver: Solver, device: str) -> None:
    flat = ruda.ones((3, 3), device=device)
    with pytest.raises(LinAlgError, match="inv: singular matrix"):
        linalg.inv(flat - flat)
    with pytest.raises(LinAlgError, match="solve: singular matrix"):
        linalg.solve(flat - flat, flat)
    with pytest.raises(LinAlgError, match="solve_triangular: singular matrix"):
        linalg.solve_triangular(flat - flat, flat, upper=True)
    with pytest.raises(LinAlgError, match="cholesky: matrix is not positive definite"):
        linalg.cholesky(-flat)
    with pytest.raises(LinAlgError, match="svd did not converge"):
        linalg.svdvals(flat * float("nan"))
    assert float(linalg.det(flat - flat)) == 0.0
    assert float(linalg.slogdet(flat - flat).logabsdet) == -np.inf


@pytest.mark.parametrize("lead", LEADS)
def test_what_lies_behind_a_pivot_of_zero_does_not_matter(
    solver: Solver, device: str, lead: Any
) -> None:
    x = matrices((*lead, 4, 4), "float64", "cpu").numpy(copy=True)
    x.reshape(-1, 4, 4)[-1, :, 1] = 0
    given = ruda.asarray(x, device=device)
    sign, log = np.linalg.slogdet(x)
    got = linalg.slogdet(given)
    np.testing.assert_array_equal(got.sign.numpy(), sign)
    np.testing.assert_allclose(got.logabsdet.numpy(), log, rtol=1e-12)
    close(linalg.det(given), np.linalg.det(x), "det")
    x.reshape(-1, 4, 4)[-1, 0, 0] = np.nan
    given = ruda.asarray(x, device=device)
    for call in (linalg.svdvals, linalg.pinv, linalg.eigh):
        with pytest.raises(LinAlgError, match="did not converge"):
            call(given)


def test_matrices_without_elements(solver: Solver, device: str) -> None:
    x = ruda.zeros((2, 0, 0), device=device)
    np.testing.assert_array_equal(linalg.det(x).numpy(), np.ones(2))
    assert linalg.inv(x).shape == (2, 0, 0)
    q, r = linalg.qr(ruda.zeros((3, 0), device=device), mode="complete")
    np.testing.assert_array_equal(q.numpy(), np.eye(3))
    assert r.shape == (3, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex64"])
def test_cross(device: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (
        ruda.asarray(rng.integers(-9, 9, s), dtype=dtype, device=device)
        for s in ((90, 1, 3), (3, 3))
    )
    want = np.cross(wide(x), wide(y))
    np.testing.assert_array_equal(wide(linalg.cross(x, y)), want)
    got = linalg.cross(x[:, 0].T, ruda.flip(y[:1], axis=1).T, axis=0)
    np.testing.assert_array_equal(wide(got), np.cross(wide(x)[:, 0], wide(y)[:1, ::-1]).T)
