"""Linear algebra on a GPU: batches, sizes on both sides of every routine, gradients, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda import linalg
from ruda.core.errors import LinAlgError
from ruda.testing import assert_close

DTYPES = ("float32", "float64", "complex64", "complex128")
SHAPES = [(3, 3), (40, 40), (300, 300), (700, 4, 4), (5, 300, 300), (2, 3, 33, 33)]


def matrices(shape: Any, dtype: str, device: str, seed: int = 0) -> ruda.Tensor:
    """Well-conditioned matrices."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) / np.sqrt(shape[-1]) + 3 * np.eye(*shape[-2:])
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape) / np.sqrt(shape[-1])
    return ruda.asarray(x, dtype=dtype, device=device)


def wide(x: ruda.Tensor) -> Any:
    a = x.numpy()
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def adjoint(a: Any) -> Any:
    return np.conj(np.swapaxes(a, -1, -2))


def close(got: ruda.Tensor, want: Any, name: str, n: int) -> None:
    # A decomposition of n x n takes n sums of n terms, of the size of the largest value.
    scale = 8 * float(np.abs(want).max())
    assert_close(got.to("cpu"), want, length=n * n, scale=scale, name=name)


def near(a: Any, b: Any, dtype: str, n: int) -> None:
    eps = np.finfo(np.dtype(dtype)).eps
    assert np.linalg.norm(a - b) <= 64 * n * eps * max(np.linalg.norm(b), 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_solves(device: str, shape: Any, dtype: str) -> None:
    n = shape[-1]
    x, y = matrices(shape, dtype, device), matrices((n, 5), dtype, device, 1)
    a, b = wide(x), wide(y)
    close(linalg.inv(x), np.linalg.inv(a), "inv", n)
    close(linalg.solve(x, y), np.linalg.solve(a, b), "solve", n)
    sign, log = np.linalg.slogdet(a)
    got = linalg.slogdet(x)
    close(got.sign, sign, "sign", n)
    close(got.logabsdet, log, "logabsdet", n)
    if n < 50:
        close(linalg.det(x), np.linalg.det(a), "det", n)
    for upper in (False, True):
        triangle = (np.triu if upper else np.tril)(a)
        got = linalg.solve_triangular(x, y, upper=upper)
        close(got, np.linalg.solve(triangle, b), "solve_triangular", n)
        gram = a @ adjoint(a) / n + np.eye(n)
        factor = linalg.cholesky(ruda.asarray(gram, dtype=dtype, device=device), upper=upper)
        close(factor, np.linalg.cholesky(gram, upper=upper), "cholesky", n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (200, 120), (120, 200), (4, 30, 20)])
def test_factors(device: str, shape: Any, dtype: str) -> None:
    x = matrices(shape, dtype, device)
    a, n = wide(x), max(shape[-2:])
    p, lower, upper = (wide(t) for t in linalg.lu(x))
    near(p @ lower @ upper, a, dtype, n)
    # Complex pivots are the largest by the sum of both parts.
    assert np.abs(lower).max() <= np.sqrt(2) + 1e-6
    for mode in ("reduced", "complete"):
        q, r = (wide(t) for t in linalg.qr(x, mode=mode))
        near(q @ r, a, dtype, n)
        near(adjoint(q) @ q, np.zeros_like(adjoint(q) @ q) + np.eye(q.shape[-1]), dtype, n)
        assert np.all(np.tril(r, -1) == 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (200, 120), (120, 200), (4, 30, 20)])
def test_singular_values(device: str, shape: Any, dtype: str) -> None:
    x = matrices(shape, dtype, device)
    a, k, n = wide(x), min(shape[-2:]), max(shape[-2:])
    values = np.linalg.svd(a, compute_uv=False)
    near(wide(linalg.svdvals(x)), values, dtype, n)
    for full in (False, True):
        u, s, vh = (wide(t) for t in linalg.svd(x, full_matrices=full))
        near(s, values, dtype, n)
        near(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a, dtype, n)
        near(adjoint(u) @ u, 0 * (adjoint(u) @ u) + np.eye(u.shape[-1]), dtype, n)
        near(vh @ adjoint(vh), 0 * (vh @ adjoint(vh)) + np.eye(vh.shape[-2]), dtype, n)
    near(wide(linalg.pinv(x)), np.linalg.pinv(a), dtype, n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (200, 200), (600, 5, 5), (3, 600, 600)])
def test_eigenvalues(device: str, shape: Any, dtype: str) -> None:
    x = matrices(shape, dtype, device)
    h, n = (wide(x) + adjoint(wide(x))) / 2, shape[-1]
    values, vectors = (wide(t) for t in linalg.eigh(x))
    near(values, np.linalg.eigvalsh(h), dtype, n)
    near(wide(linalg.eigvalsh(x)), values, dtype, n)
    near(vectors * values[..., None, :] @ adjoint(vectors), h, dtype, n)
    near(adjoint(vectors) @ vectors, 0 * h + np.eye(n), dtype, n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(700, 1, 1), (700, 2, 2), (100_000, 3, 3), (4, 6, 6)])
def test_adjugates_by_the_gradient_of_determinants(device: str, shape: Any, dtype: str) -> None:
    """Of singular matrices too; the views are transposed."""
    x = matrices(shape, dtype, device).mT.copy()
    x[::2, 0] = 0 if shape[-1] > 1 else 1
    x = x.mT.requires_grad_()
    linalg.det(x).sum().backward()
    a, n = wide(x), shape[-1]
    minors = np.empty_like(a)
    for i in range(n):
        for j in range(n):
            rest = np.delete(np.delete(a, i, -2), j, -1)
            minors[..., i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    close(x.grad, np.conj(minors), "adjugate", n)


def test_gradients_equal_those_of_the_cpu(device: str) -> None:
    found = []
    for where in ("cpu", device):
        x = matrices((2, 6, 6), "float64", where).requires_grad_()
        loss = linalg.svdvals(x).sum() + linalg.slogdet(x).logabsdet.sum() + linalg.det(x).sum()
        loss = loss + linalg.inv(x).sum() + linalg.cholesky(x @ x.mT).sum()
        loss = loss + (linalg.eigh(x).eigenvectors ** 2)[..., 0].sum() + linalg.pinv(x).sum()
        q, r = linalg.qr(x)
        (loss + (q @ r * x).sum() + linalg.solve(x, x.mT).sum()).backward()
        found.append(x.grad.to("cpu").numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-8, atol=1e-8)


def test_what_cannot_be_done_raises(device: str) -> None:
    flat = ruda.zeros((3, 3), device=device)
    for call, what in (
        (lambda: linalg.inv(flat), "inv: singular matrix"),
        (lambda: linalg.solve(flat, flat), "solve: singular matrix"),
        (lambda: linalg.solve_triangular(flat, flat, upper=True), "solve_triangular: singular"),
        (lambda: linalg.cholesky(flat - 1), "cholesky: matrix is not positive definite"),
        (lambda: linalg.svdvals(flat + float("nan")), "svdvals: svd did not converge"),
        (lambda: linalg.eigh(flat + float("nan")), "eigh: eigenvalues did not converge"),
        (lambda: linalg.inv(ruda.zeros((4, 3, 3), device=device)), "inv: singular matrix"),
    ):
        with pytest.raises(LinAlgError, match=what):
            call()
    assert float(linalg.det(flat)) == 0.0
    assert float(linalg.slogdet(flat).logabsdet) == -np.inf


@pytest.mark.parametrize("n", [3, 300])
def test_one_bad_matrix_of_a_batch(device: str, n: int) -> None:
    x = np.random.default_rng(0).standard_normal((4, n, n)) / np.sqrt(n) + 3 * np.eye(n)
    # The first pivot is zero: what follows may be quotients by it.
    x[1, :, 0] = 0
    given = ruda.asarray(x, dtype="float64", device=device)
    sign, log = np.linalg.slogdet(x)
    got = linalg.slogdet(given)
    np.testing.assert_array_equal(got.sign.numpy(), sign)
    np.testing.assert_allclose(got.logabsdet.numpy(), log, rtol=1e-10)
    np.testing.assert_allclose(linalg.det(given).numpy(), np.linalg.det(x), rtol=1e-10)
    x[2, 0, 1] = x[2, 1, 0] = np.nan
    given = ruda.asarray(x, dtype="float64", device=device)
    for call in (linalg.svdvals, linalg.svd, linalg.pinv, linalg.eigh, linalg.eigvalsh):
        with pytest.raises(LinAlgError, match="did not converge"):
            call(given)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex128"])
def test_cross(device: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (
        ruda.asarray(rng.integers(-9, 9, s), dtype=dtype, device=device)
        for s in ((100_000, 1, 3), (3, 3))
    )
    np.testing.assert_array_equal(wide(linalg.cross(x, y)), np.cross(wide(x), wide(y)))
