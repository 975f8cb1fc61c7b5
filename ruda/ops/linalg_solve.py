"""Linear systems: solve, inverse, determinant, pseudoinverse, least squares.

All work on the last two axes and batch over the others, in float32, float64, complex64 and
complex128; other dtypes raise. Sources of the gradients: M. Giles, "An extended collection of
matrix derivative results for forward and reverse mode algorithmic differentiation", 2008; for the
pseudoinverse G. Golub and V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least
squares problems whose variables separate", 1973.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ruda.core.dtypes import real_of
from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape, broadcast_shapes
from ruda.ops import rules
from ruda.ops.complexes import conj, imag, is_real, real
from ruda.ops.diagonal import tril, triu
from ruda.ops.linalg_values import default_rtol, matrix_rank, svdvals
from ruda.ops.matmul import adjoint, matmul, vecdot
from ruda.ops.matrices import lapack_row, matrix, square_matrix
from ruda.ops.movement import expand_dims, squeeze
from ruda.ops.reduce import sum as _sum
from ruda.ops.rules import Specs
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


class SlogdetResult(NamedTuple):
    """``sign [...]``, of modulus 1 or 0, and ``logabsdet [...]``: ``det = sign exp(logabsdet)``."""

    sign: RudaTensor
    logabsdet: RudaTensor


class LstsqResult(NamedTuple):
    """``solution [..., n, k]``, ``residuals [..., k]``, ``rank [...]``, ``singular_values``."""

    solution: RudaTensor
    residuals: RudaTensor
    rank: RudaTensor
    singular_values: RudaTensor


inv = lapack_row(
    "inv",
    "x",
    shape=square_matrix,
    vjp=(lambda g, out: -(adjoint(out) @ g @ adjoint(out)),),
    doc="Inverse of the square matrices ``x [..., n, n]``. Raises ``LinAlgError`` if singular.",
)


def _solved(op: Any, specs: Specs, *_: Any) -> Shape:
    x, y = square_matrix(op, specs), specs[1].shape
    if len(y) < 2 or y[-2] != x[-1]:
        got, expected = f"{x} and {y}", "x [..., n, n] and y [..., n, k] or [n]"
        raise ShapeError(op.name, "the sizes do not fit", got, expected)
    return (*broadcast_shapes(op.name, x[:-2], y[:-2]), *y[-2:])


def _solve_cotangents(g: Any, x: Any, out: Any) -> Any:
    gy = _solve(adjoint(x), g)
    return -(gy @ adjoint(out)), gy


_solve = lapack_row(
    "solve",
    "x y",
    shape=_solved,
    vjp=_solve_cotangents,
    doc="Solution of ``x z = y`` for square matrices ``x``.",
)


def _columns_of(solver: Any, x: RudaTensor, y: RudaTensor, *attrs: Any) -> RudaTensor:
    """``solver`` with a vector ``y`` as one column."""
    if y.ndim == 1:
        return squeeze(solver(x, expand_dims(y, -1), *attrs), -1)
    return solver(x, y, *attrs)


@given_tensors
def solve(x1: RudaTensor, x2: RudaTensor, /) -> RudaTensor:
    """``z`` with ``x1 z = x2``, for square ``x1 [..., n, n]`` and ``x2 [..., n, k]`` or ``[n]``.

    Leading axes broadcast. Raises ``LinAlgError`` where ``x1`` is singular.

    >>> solve(ruda.asarray([[2.0, 0.0], [0.0, 4.0]]), ruda.asarray([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    return _columns_of(_solve, x1, x2)


def _triangular_cotangents(g: Any, x: Any, out: Any, upper: bool, unit_diagonal: bool) -> Any:
    gy = solve_triangles(adjoint(x), g, not upper, unit_diagonal)
    gx = -(gy @ adjoint(out))
    gx = triu(gx, k=int(unit_diagonal)) if upper else tril(gx, k=-int(unit_diagonal))
    return gx, gy


solve_triangles = lapack_row(
    "solve_triangular",
    "x y",
    "upper unit_diagonal",
    shape=_solved,
    vjp=_triangular_cotangents,
    doc="Solution of ``x z = y`` for triangular matrices ``x``.",
)


def solve_triangular(
    x1: RudaTensor, x2: RudaTensor, /, *, upper: bool, unit_diagonal: bool = False
) -> RudaTensor:
    """``z`` with ``T z = x2``, where ``T`` is a triangle of ``x1 [..., n, n]``.

    ``upper`` says which; the other triangle is not looked at. ``unit_diagonal`` takes the diagonal
    as ones. ``x2`` is ``[..., n, k]`` or ``[n]``; leading axes broadcast. For ``z T = x2`` solve
    ``T.mT z.mT = x2.mT``. Raises ``LinAlgError`` where a diagonal element is zero.

    >>> x = ruda.asarray([[2.0, 0.0], [1.0, 1.0]])
    >>> solve_triangular(x, ruda.asarray([2.0, 3.0]), upper=False).tolist()
    [1.0, 2.0]
    """
    return _columns_of(solve_triangles, x1, x2, bool(upper), bool(unit_diagonal))


def _over_matrices(x: Any) -> Any:
    return expand_dims(x, (-2, -1))


def _adjugate_cotangent(g: Any, x: Any, out: Any) -> Any:
    """From ``adj = det(x) x⁻¹``, so for nonsingular ``x`` only: tr(x⁻ᴴ g) adjᴴ - adjᴴ g x⁻ᴴ."""
    inverse = adjoint(inv(x))
    trace = _sum(conj(inv(x)) * g, axis=(-2, -1))
    return _over_matrices(trace) * adjoint(out) - adjoint(out) @ g @ inverse


_adjugate = lapack_row(
    "adjugate",
    "x",
    shape=square_matrix,
    vjp=(_adjugate_cotangent,),
    doc="``det(x) inv(x)``, defined for singular matrices too: the gradient of ``det``.",
)
det = lapack_row(
    "det",
    "x",
    shape=lambda op, specs: square_matrix(op, specs)[:-2],
    vjp=(lambda g, x: _over_matrices(g) * adjoint(_adjugate(x)),),
    doc="Determinant ``[...]`` of ``x [..., n, n]``; second derivatives need ``x`` nonsingular.",
)


def _slogdet_dtypes(op: Any, specs: Specs) -> Any:
    dtype, _ = rules.promote(op, specs)
    return dtype, (dtype, real_of(dtype))


def _slogdet_cotangent(g: Any, x: Any, sign: Any) -> Any:
    """``(g_log + i Im(g_sign sign*)) x⁻ᴴ``: a real sign does not move."""
    g_sign, factor = g
    if g_sign is not None and not is_real(sign):
        turn = imag(g_sign * conj(sign)) * 1j
        factor = turn if factor is None else factor + turn
    return (None if factor is None else _over_matrices(factor) * adjoint(inv(x)),)


_slogdet = lapack_row(
    "slogdet",
    "x",
    "",
    "sign logabsdet",
    shape=lambda op, specs: (square_matrix(op, specs)[:-2],) * 2,
    dtype=_slogdet_dtypes,
    vjp=_slogdet_cotangent,
    doc="Sign and logarithm of the absolute value of the determinant.",
)


def slogdet(x: RudaTensor, /) -> SlogdetResult:
    """Sign and natural logarithm of the absolute value of ``det(x)``, ``x [..., n, n]``.

    A singular matrix has sign 0 and logarithm -inf, and raises ``LinAlgError`` in backward.

    >>> slogdet(ruda.asarray([[2.0, 0.0], [0.0, -0.5]])).sign.item()
    -1.0
    """
    return SlogdetResult(*_slogdet(x))


def _pseudoinverted(op: Any, specs: Specs) -> Shape:
    *batch, m, n = matrix(op, specs)
    broadcast_shapes(op.name, tuple(batch), specs[1].shape)
    return (*batch, n, m)


def _pinv_dtype(op: Any, specs: Specs) -> Any:
    dtype, _ = rules.promote(op, specs[:1])
    return (dtype, real_of(dtype)), dtype


def _pinv_cotangent(g: Any, x: Any, out: Any) -> Any:
    """With ``P = out``: ``-Pᴴ g Pᴴ + (1 - x P) gᴴ P Pᴴ + Pᴴ P gᴴ (1 - P x)``."""
    p, gh = adjoint(out), adjoint(g)
    left = (gh - x @ (out @ gh)) @ out @ p
    right = p @ out @ (gh - (gh @ out) @ x)
    return left + right - p @ g @ p


_pinv = lapack_row(
    "pinv",
    "x rtol",
    shape=_pseudoinverted,
    dtype=_pinv_dtype,
    vjp=(_pinv_cotangent, None),
    doc="Moore-Penrose pseudoinverse.",
)


@given_tensors
def pinv(x: RudaTensor, /, *, rtol: Any = None) -> RudaTensor:
    """Moore-Penrose pseudoinverse ``[..., n, m]`` of ``x [..., m, n]``.

    Singular values up to ``rtol`` times the largest count as zero; ``rtol`` is a number or a tensor
    ``[...]``, by default the larger side times the dtype's eps. The gradient holds while the rank
    stays what it is.

    >>> pinv(ruda.asarray([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    return _pinv(x, default_rtol(x) if rtol is None else rtol)


@composite
@given_tensors
def lstsq(x1: RudaTensor, x2: RudaTensor, /, *, rtol: Any = None) -> LstsqResult:
    """The smallest ``z`` among those that minimise ``|x1 z - x2|``, with what it leaves.

    ``x1`` is ``[..., m, n]`` of any rank, ``x2`` is ``[..., m, k]`` or ``[m]``, whose axis ``k``
    is then not in the results. ``residuals`` are the squared norms of ``x1 z - x2``, ``rank`` and
    ``rtol`` are those of ``matrix_rank``.

    >>> lstsq(ruda.asarray([[1.0], [1.0]]), ruda.asarray([1.0, 3.0])).residuals.item()
    2.0
    """
    columns = expand_dims(x2, -1) if x2.ndim == 1 else x2
    solution = matmul(pinv(x1, rtol=rtol), columns)
    rest = matmul(x1, solution) - columns
    residuals = real(vecdot(rest, rest, axis=-2))
    if x2.ndim == 1:
        solution, residuals = squeeze(solution, -1), squeeze(residuals, -1)
    return LstsqResult(solution, residuals, matrix_rank(x1, rtol=rtol), svdvals(x1))
