"""What the decompositions mean, in NumPy: LAPACK where NumPy binds it, else plain algorithms.

Matrices that a decomposition cannot handle raise ``LinAlgError`` with the operator's name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.core.errors import LinAlgError

# Columns that are factored, or rows that are solved for, before matrix products take over.
PANEL = 32


_HINTS = {
    "singular matrix": "pinv or lstsq",
    "matrix is not positive definite": "adding a multiple of the identity",
}


def checked(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` with NumPy's error turned into ruda's, under the name of ``f``."""

    @functools.wraps(f)
    def call(*args: Any) -> Any:
        try:
            return f(*args)
        except np.linalg.LinAlgError as error:
            what = str(error).strip().rstrip(".").lower()
            hint = _HINTS.get(what, "finite values")
            raise LinAlgError(f.__name__, what, hint=hint) from None

    return call


def hermitian(x: Any) -> Any:
    """The Hermitian part of ``x``, bit for bit ``x`` itself when that is Hermitian."""
    return 0.5 * x + 0.5 * np.conj(np.swapaxes(x, -1, -2))


@checked
def cholesky(x: Any, upper: bool) -> Any:
    """The factor of the Hermitian part."""
    return np.linalg.cholesky(hermitian(x), upper=upper)


@checked
def eigh(x: Any) -> Any:
    """Eigenvalues, ascending, and eigenvectors of the Hermitian part."""
    return tuple(np.linalg.eigh(hermitian(x)))


@checked
def eigvalsh(x: Any) -> Any:
    """Eigenvalues of the Hermitian part, ascending."""
    return np.linalg.eigvalsh(hermitian(x))


@checked
def qr(x: Any, mode: Any) -> Any:
    """Householder QR."""
    return tuple(np.linalg.qr(x, mode))


@checked
def svd(x: Any) -> Any:
    """Singular value decomposition, values descending, as many vectors as values."""
    return tuple(np.linalg.svd(x, full_matrices=False))


@checked
def svd_full(x: Any) -> Any:
    """Singular value decomposition, values descending, with square matrices of vectors."""
    return tuple(np.linalg.svd(x))


@checked
def svdvals(x: Any) -> Any:
    """Singular values, descending."""
    return np.linalg.svdvals(x)


@checked
def inv(x: Any) -> Any:
    """Inverse by LU."""
    return np.linalg.inv(x)


@checked
def solve(x: Any, y: Any) -> Any:
    """Solution by LU; ``y`` holds columns."""
    return np.linalg.solve(x, y)


def det(x: Any) -> Any:
    """Determinant by LU."""
    return np.linalg.det(x)


def slogdet(x: Any) -> Any:
    """Sign and logarithm of the modulus of the determinant, by LU."""
    return tuple(np.linalg.slogdet(x))


@checked
def pinv(x: Any, rtol: Any) -> Any:
    """Pseudoinverse from the singular values above ``rtol`` times the largest."""
    return np.linalg.pinv(x, rcond=rtol)


@checked
def adjugate(x: Any) -> Any:
    """``det(x) inv(x)``, which exists for singular matrices too, so without dividing.

    Up to 3 by 3 from minors, which err by less than a rounding; else from the SVD.
    """
    if 0 < x.shape[-1] <= 3:
        return _minors(x)
    u, s, vh = np.linalg.svd(x)
    n = s.shape[-1]
    others = np.where(np.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    product = np.conj(np.swapaxes(vh, -1, -2)) * others[..., None, :]
    return sign[..., None, None] * (product @ np.conj(np.swapaxes(u, -1, -2)))


def _minors(x: Any) -> Any:
    n, out = x.shape[-1], np.empty_like(x)
    if n == 1:
        out[...] = 1
    elif n == 2:
        out[..., [0, 1], [0, 1]] = x[..., [1, 0], [1, 0]]
        out[..., [0, 1], [1, 0]] = -x[..., [0, 1], [1, 0]]
    else:
        # Rows and columns taken in turn: each minor has its sign.
        p, q = [1, 2, 0], [2, 0, 1]
        y = np.swapaxes(x, -1, -2)
        a, b = y[..., p, :], y[..., q, :]
        out = a[..., p] * b[..., q] - a[..., q] * b[..., p]
    return out


@checked
def solve_triangular(x: Any, y: Any, upper: bool, unit_diagonal: bool) -> Any:
    """Blocked substitution: a panel of rows at a time, what is known moved over by a product."""
    n = x.shape[-1]
    x = np.triu(x) if upper else np.tril(x)
    if unit_diagonal:
        x[..., range(n), range(n)] = 1
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    out = np.empty((*batch, *y.shape[-2:]), np.result_type(x, y))
    starts = range(0, n, PANEL)
    for start in reversed(starts) if upper else starts:
        rows = slice(start, min(start + PANEL, n))
        known = slice(rows.stop, n) if upper else slice(0, start)
        rest = y[..., rows, :] - x[..., rows, known] @ out[..., known, :]
        out[..., rows, :] = np.linalg.solve(x[..., rows, rows], rest)
    return out


def lu(x: Any) -> Any:
    """Right-looking LU with partial pivoting, in panels (Golub & Van Loan, 4th ed., 3.2.11)."""
    m, n = x.shape[-2:]
    k = min(m, n)
    a = x.reshape(math.prod(x.shape[:-2]), m, n).copy()
    order = np.tile(np.arange(m), (len(a), 1))
    for start in range(0, k, PANEL):
        stop = min(start + PANEL, k)
        _factor_panel(a, order, start, stop)
        corner = a[:, start:stop, start:stop]
        a[:, start:stop, stop:] = solve_triangular(corner, a[:, start:stop, stop:], False, True)
        a[:, stop:, stop:] -= a[:, stop:, start:stop] @ a[:, start:stop, stop:]
    lower = np.tril(a[:, :, :k], -1) + np.eye(m, k, dtype=x.dtype)
    permutation = np.swapaxes(np.eye(m, dtype=x.dtype)[order], -1, -2)
    parts = permutation, lower, np.triu(a[:, :k, :])
    return tuple(part.reshape(*x.shape[:-2], *part.shape[1:]) for part in parts)


def _factor_panel(a: Any, order: Any, start: int, stop: int) -> None:
    """Columns ``start`` to ``stop`` of ``a [batch, m, n]`` in place; whole rows are exchanged."""
    each = np.arange(len(a))
    for j in range(start, stop):
        pivot = j + np.abs(a[:, j:, j]).argmax(axis=1)
        for rows in (a, order):
            rows[each, j], rows[each, pivot] = rows[each, pivot], rows[each, j]
        top = a[:, j, j]
        # A zero pivot means that the column below is zero as well: there is nothing to divide.
        a[:, j + 1 :, j] /= np.where(top == 0, 1, top)[:, None]
        a[:, j + 1 :, j + 1 : stop] -= a[:, j + 1 :, j, None] * a[:, j, None, j + 1 : stop]
