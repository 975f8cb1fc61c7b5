"""Eigenvalues and singular values, with their vectors.

Both work on the last two axes and batch over the others, in float32, float64, complex64 and
complex128; other dtypes raise. Sources of the gradients: M. Giles, "An extended collection of
matrix derivative results", 2008, 3.1 and 3.2; M. Seeger et al., "Auto-differentiating linear
algebra", arXiv:1710.08717, 2017; for complex singular vectors Z. Wan and S. Zhang, "Automatic
differentiation for complex valued SVD", arXiv:1909.02659, 2019.

Vectors are fixed up to a sign, or a phase when complex, and those of equal values up to a rotation
among them. The gradients are those of functions that depend on none of that; equal values, and
singular values of zero, contribute nothing to what they pass between vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ruda.core.dtypes import finfo, real_of
from ruda.core.errors import GradientError
from ruda.ops import rules
from ruda.ops.arith import reciprocal
from ruda.ops.compare import equal, greater
from ruda.ops.complexes import conj, imag, is_real
from ruda.ops.create import zeros
from ruda.ops.matmul import adjoint
from ruda.ops.matrices import lapack_row, matrix, square_matrix
from ruda.ops.movement import expand_dims
from ruda.ops.reduce import max as _max
from ruda.ops.reduce import sum as _sum
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


class EighResult(NamedTuple):
    """``eigenvalues [..., n]``, ascending, and ``eigenvectors [..., n, n]`` in columns."""

    eigenvalues: RudaTensor
    eigenvectors: RudaTensor


class SVDResult(NamedTuple):
    """Left vectors ``U`` in columns, values ``S``, descending, and right vectors ``Vh`` in rows."""

    U: RudaTensor
    S: RudaTensor
    Vh: RudaTensor


def _real_part(op: Any, specs: Specs) -> Any:
    dtype, _ = rules.promote(op, specs)
    return dtype, real_of(dtype)


def _safe_reciprocal(x: Any) -> Any:
    """``1 / x``, and 0 where ``x`` is 0."""
    flat = equal(x, 0)
    return where(flat, 0, reciprocal(where(flat, 1, x)))


def _gaps(x: Any) -> Any:
    """``[..., i, j]`` is ``1 / (x[..., j] - x[..., i])``, or 0 where the two are equal."""
    return _safe_reciprocal(expand_dims(x, -2) - expand_dims(x, -1))


def _scaled(x: Any, factors: Any) -> Any:
    """``x diag(factors)``."""
    return x * expand_dims(factors, -2)


def _eigen_shapes(op: Any, specs: Specs) -> Any:
    shape = square_matrix(op, specs)
    return shape[:-1], shape


def _eigen_dtypes(op: Any, specs: Specs) -> Any:
    dtype, real = _real_part(op, specs)
    return dtype, (real, dtype)


def _eigh_cotangent(g: Any, values: Any, vectors: Any) -> Any:
    """``V (diag gw + F ∘ Vᴴ gV) Vᴴ`` with ``F[i, j] = 1 / (w[j] - w[i])``, its Hermitian part."""
    out = None
    if g[1] is not None:
        inner = _gaps(values) * (adjoint(vectors) @ g[1])
        out = vectors @ ((inner + adjoint(inner)) / 2) @ adjoint(vectors)
    if g[0] is not None:
        straight = _scaled(vectors, g[0]) @ adjoint(vectors)
        out = straight if out is None else out + straight
    return (out,)


_eigh = lapack_row(
    "eigh",
    outs="values vectors",
    shape=_eigen_shapes,
    dtype=_eigen_dtypes,
    vjp=_eigh_cotangent,
    doc="Eigenvalues and eigenvectors of Hermitian matrices.",
)


def eigh(x: RudaTensor, /) -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices ``x [..., n, n]``.

    Looks at the Hermitian part of ``x``. Raises ``LinAlgError`` for values that are not finite.

    >>> eigh(ruda.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return EighResult(*_eigh(x))


def _eigvalsh_cotangent(g: Any, x: Any) -> Any:
    vectors = _eigh(x)[1]
    return _scaled(vectors, g) @ adjoint(vectors)


eigvalsh = lapack_row(
    "eigvalsh",
    shape=lambda op, specs: square_matrix(op, specs)[:-1],
    dtype=_real_part,
    vjp=(_eigvalsh_cotangent,),
    doc="Eigenvalues ``[..., n]``, ascending, of the Hermitian part of ``x [..., n, n]``.",
)


def _singular_shapes(op: Any, specs: Specs) -> Any:
    *batch, m, n = matrix(op, specs)
    k = min(m, n)
    return (*batch, m, k), (*batch, k), (*batch, k, n)


def _singular_dtypes(op: Any, specs: Specs) -> Any:
    dtype, real = _real_part(op, specs)
    return dtype, (dtype, real, dtype)


def _svd_cotangent(g: Any, u: Any, s: Any, vh: Any) -> Any:
    """``U G Vᴴ`` and what leaves the spans of ``U`` and ``V``.

    With skew(M) = M - Mᴴ and ``F[i, j] = 1 / (s[j]² - s[i]²)`` the core is
    ``G = (F ∘ skew(Uᴴ gU)) S + S (F ∘ skew(Vᴴ gV)) + diag(gS + i Im diag(Uᴴ gU) / S)``,
    where the last term is the phase that ``U`` and ``V`` share.
    """
    gu, gs, gvh = g
    inverse, gaps = _safe_reciprocal(s), _gaps(s * s)
    parts = []
    if gs is not None:
        parts.append(_scaled(u, gs) @ vh)
    if gu is not None:
        inner = adjoint(u) @ gu
        parts.append(u @ _scaled(gaps * (inner - adjoint(inner)), s) @ vh)
        parts.append(_scaled(gu - u @ inner, inverse) @ vh)
        if not is_real(u):
            turn = imag(_sum(conj(u) * gu, axis=-2)) * inverse
            parts.append(_scaled(u, turn * 1j) @ vh)
    if gvh is not None:
        inner = gvh @ adjoint(vh)
        parts.append(_scaled(u, s) @ (gaps * (adjoint(inner) - inner)) @ vh)
        parts.append(_scaled(u, inverse) @ (gvh - inner @ vh))
    return (sum(parts[1:], start=parts[0]),)


_svd = lapack_row(
    "svd",
    outs="u s vh",
    shape=_singular_shapes,
    dtype=_singular_dtypes,
    vjp=_svd_cotangent,
    doc="Singular value decomposition with as many vectors as values.",
)


def _full_shapes(op: Any, specs: Specs) -> Any:
    *batch, m, n = matrix(op, specs)
    return (*batch, m, m), (*batch, min(m, n)), (*batch, n, n)


def _svd_full_cotangent(g: Any, x: Any) -> Any:
    (m, n), k = x.shape[-2:], min(x.shape[-2:])
    for side, given, length in (("U", g[0], m), ("Vh", g[2], n)):
        if given is not None and length != k:
            what = f"the vectors that complete {side} have no unique gradient"
            raise GradientError("svd", what, x.shape, hint="full_matrices=False")
    return _svd_cotangent(g, *_svd(x))


_svd_full = lapack_row(
    "svd_full",
    outs="u s vh",
    shape=_full_shapes,
    dtype=_singular_dtypes,
    vjp=_svd_full_cotangent,
    doc="Singular value decomposition with vectors for the whole of both spaces.",
)


@given_tensors
def svd(x: RudaTensor, /, *, full_matrices: bool = True) -> SVDResult:
    """``U [..., m, m]``, ``S [..., k]`` and ``Vh [..., n, n]``: ``x = U[:, :k] diag(S) Vh[:k]``.

    ``x`` is ``[..., m, n]`` and ``k`` its smaller side, to which ``full_matrices=False`` shortens
    ``U`` and ``Vh``. Raises ``LinAlgError`` for values that are not finite, and ``GradientError``
    in backward through a ``U`` or ``Vh`` with more than ``k`` vectors.

    >>> svd(ruda.asarray([[0.0, 2.0], [1.0, 0.0]])).S.tolist()
    [2.0, 1.0]
    """
    whole = full_matrices and x.ndim > 1 and x.shape[-1] != x.shape[-2]
    return SVDResult(*(_svd_full if whole else _svd)(x))


def _svdvals_cotangent(g: Any, x: Any) -> Any:
    u, _, vh = _svd(x)
    return _scaled(u, g) @ vh


def _singular_values_shape(op: Any, specs: Specs) -> Any:
    *batch, m, n = matrix(op, specs)
    return (*batch, min(m, n))


svdvals = lapack_row(
    "svdvals",
    shape=_singular_values_shape,
    dtype=_real_part,
    vjp=(_svdvals_cotangent,),
    doc="Singular values ``[..., min(m, n)]``, descending, of ``x [..., m, n]``.",
)


def default_rtol(x: RudaTensor) -> float:
    """What counts as zero beside the largest singular value: the larger side times eps."""
    return max(x.shape[-2:], default=1) * (finfo(x.dtype).eps if x.dtype.is_inexact else 0.0)


@composite
@given_tensors
def matrix_rank(x: RudaTensor, /, *, rtol: Any = None) -> RudaTensor:
    """How many singular values of ``x [..., m, n]`` exceed ``rtol`` times the largest: int64.

    ``rtol`` is a number or a tensor ``[...]``, by default the larger side times the dtype's eps.

    >>> matrix_rank(ruda.ones((3, 3))).item()
    1
    """
    values = svdvals(x)
    if values.shape[-1] == 0:
        return zeros(values.shape[:-1], dtype="int64", device=x.device)
    bound = _max(values, axis=-1) * (default_rtol(x) if rtol is None else rtol)
    return _sum(greater(values, expand_dims(bound, -1)), axis=-1)
