"""Factors of matrices: Cholesky, QR, LU.

All work on the last two axes and batch over the others, in float32, float64, complex64 and
complex128; other dtypes raise. Sources of the gradients: I. Murray, "Differentiation of the
Cholesky decomposition", arXiv:1602.07527, 2016; M. Seeger et al., "Auto-differentiating linear
algebra", arXiv:1710.08717, 2017 (QR). Those of LU, and of matrices that are not tall, follow the
same way: write the differential of each factor and transpose it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ruda.core.errors import ArgumentError, GradientError
from ruda.ops import rules
from ruda.ops.create import zeros, zeros_like
from ruda.ops.diagonal import tril, triu
from ruda.ops.join import concat
from ruda.ops.linalg_solve import solve_triangles
from ruda.ops.matmul import adjoint
from ruda.ops.matrices import (
    columns,
    lapack_row,
    lower_half,
    matrix,
    rows,
    square_matrix,
    upper_half,
)
from ruda.ops.rules import Specs
from ruda.tensor.tensor import RudaTensor


class QRResult(NamedTuple):
    """``Q`` with orthonormal columns and upper triangular ``R``."""

    Q: RudaTensor
    R: RudaTensor


class LUResult(NamedTuple):
    """Permutation ``P [..., m, m]``, unit lower triangular ``L``, upper triangular ``U``."""

    P: RudaTensor
    L: RudaTensor
    U: RudaTensor


def _alike(op: Any, specs: Specs, *_: Any) -> Any:
    dtype, _ = rules.promote(op, specs)
    return dtype, (dtype,) * len(op.outs)


def _over(x: Any, upper: Any) -> Any:
    """``x U⁻ᴴ`` for an upper triangular ``U``."""
    return adjoint(solve_triangles(upper, adjoint(x), True, False))


def _cholesky_cotangent(g: Any, out: Any, upper: bool) -> Any:
    """``½ (S + Sᴴ)`` with ``S = L⁻ᴴ Φ(Lᴴ gL) L⁻¹``; Φ is the lower triangle, half its diagonal."""
    factor, g = (out, adjoint(g)) if upper else (adjoint(out), g)
    inner = solve_triangles(factor, lower_half(factor @ g), True, False)
    s = adjoint(solve_triangles(factor, adjoint(inner), True, False))
    return (s + adjoint(s)) / 2


_cholesky = lapack_row(
    "cholesky",
    "x",
    "upper",
    shape=square_matrix,
    vjp=(_cholesky_cotangent,),
    doc="Triangular factor of Hermitian positive definite matrices.",
)


def cholesky(x: RudaTensor, /, *, upper: bool = False) -> RudaTensor:
    """Lower triangular ``L [..., n, n]`` with ``L Lᴴ = x``, or upper ``U`` with ``Uᴴ U = x``.

    Looks at the Hermitian part of ``x``. Raises ``LinAlgError`` unless that is positive definite.

    >>> cholesky(ruda.asarray([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    return _cholesky(x, bool(upper))


def _qr_shapes(op: Any, specs: Specs, mode: str) -> Any:
    *batch, m, n = matrix(op, specs)
    k = m if mode == "complete" else min(m, n)
    return (*batch, m, k), (*batch, k, n)


def _qr_cotangent(g: Any, q: Any, r: Any) -> Any:
    """Of a wide ``x = [x₁ x₂]`` the left square decides ``Q``, and ``R = [R₁ Qᴴx₂]``."""
    gq, gr = g
    m, k, n = q.shape[-2], q.shape[-1], r.shape[-1]
    if k > n:
        what, hint = "the columns that complete Q have no unique gradient", 'mode="reduced"'
        raise GradientError("qr", what, (m, n), hint=hint)
    if n == k:
        return (_tall_qr_cotangent(gq, gr, q, r),)
    if gr is None:
        left = _tall_qr_cotangent(gq, None, q, columns(r, 0, k))
        right = zeros((*q.shape[:-1], n - k), dtype=q.dtype, device=q.device)
    else:
        rest = columns(gr, k, n)
        through = q @ columns(r, k, n) @ adjoint(rest)
        gq = through if gq is None else gq + through
        left = _tall_qr_cotangent(gq, columns(gr, 0, k), q, columns(r, 0, k))
        right = q @ rest
    return (concat([left, right], axis=-1),)


def _tall_qr_cotangent(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    """``(gQ + Q H) R⁻ᴴ``, H Hermitian with the upper triangle of ``gR Rᴴ - Qᴴ gQ``."""
    inner = None if gr is None else gr @ adjoint(r)
    if gq is not None:
        inner = -(adjoint(q) @ gq) if inner is None else inner - adjoint(q) @ gq
    half = upper_half(inner)
    left = q @ (half + adjoint(half))
    return _over(left if gq is None else left + gq, r)


_qr = lapack_row(
    "qr",
    "x",
    "mode",
    "q r",
    shape=_qr_shapes,
    dtype=_alike,
    vjp=_qr_cotangent,
    doc="Orthonormal times upper triangular.",
)


def qr(x: RudaTensor, /, *, mode: str = "reduced") -> QRResult:
    """``Q [..., m, k]`` with orthonormal columns and upper triangular ``R [..., k, n]``.

    ``x`` is ``[..., m, n]``; ``k`` is its smaller side, or ``m`` with ``mode="complete"``, which
    has no gradient when that is more. The gradient needs the first ``k`` columns independent.

    >>> qr(ruda.asarray([[0.0, 1.0], [2.0, 0.0]])).R.shape
    (2, 2)
    """
    if mode not in ("reduced", "complete"):
        raise ArgumentError("qr", "unknown mode", repr(mode), '"reduced" or "complete"')
    return QRResult(*_qr(x, mode))


def _lu_shapes(op: Any, specs: Specs) -> Any:
    *batch, m, n = matrix(op, specs)
    k = min(m, n)
    return (*batch, m, m), (*batch, m, k), (*batch, k, n)


def _lu_cotangent(g: Any, p: Any, l: Any, u: Any) -> Any:  # noqa: E741
    """``P L⁻ᴴ (strict lower part of Lᴴ gL + upper part of gU Uᴴ) U⁻ᴴ`` for square ``x``.

    Rows of ``L`` below the square, and columns of ``U`` beyond it, follow from the square part:
    ``L₂ = x₂ U⁻¹`` and ``U₂ = L⁻¹ x₂``.
    """
    k, m, n = u.shape[-2], l.shape[-2], u.shape[-1]
    gl = zeros_like(l) if g[1] is None else g[1]
    gu = zeros_like(u) if g[2] is None else g[2]
    l1, gl1, u1, gu1 = rows(l, 0, k), rows(gl, 0, k), columns(u, 0, k), columns(gu, 0, k)
    below = beyond = None
    if m > k:
        below = _over(rows(gl, k, m), u1)
        gu1 = gu1 - adjoint(rows(l, k, m)) @ below
    if n > k:
        beyond = solve_triangles(adjoint(l1), columns(gu, k, n), True, True)
        gl1 = gl1 - beyond @ adjoint(columns(u, k, n))
    inner = tril(adjoint(l1) @ gl1, k=-1) + triu(gu1 @ adjoint(u1))
    out = _over(solve_triangles(adjoint(l1), inner, True, True), u1)
    if below is not None:
        out = concat([out, below], axis=-2)
    if beyond is not None:
        out = concat([out, beyond], axis=-1)
    return (p @ out,)


_lu = lapack_row(
    "lu",
    "x",
    "",
    "p l u",
    shape=_lu_shapes,
    dtype=_alike,
    vjp=_lu_cotangent,
    doc="Permutation times unit lower times upper triangular.",
)


def lu(x: RudaTensor, /) -> LUResult:
    """``P``, ``L`` and ``U`` with ``x = P L U``, by Gaussian elimination with partial pivoting.

    For ``x [..., m, n]`` and its smaller side ``k``: ``P [..., m, m]`` is a permutation,
    ``L [..., m, k]`` unit lower triangular, ``U [..., k, n]`` upper triangular. A singular ``x``
    has zeros on the diagonal of ``U`` and raises ``LinAlgError`` in backward; nothing flows
    through ``P``.

    >>> lu(ruda.asarray([[0.0, 1.0], [2.0, 0.0]])).U.tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    return LUResult(*_lu(x))
