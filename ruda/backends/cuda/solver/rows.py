"""The rows of linear algebra on CUDA: their bodies in operators of ruda and calls of the libraries.

A dense tensor is to the libraries the transposed matrix; where that serves as well, nothing is
transposed. Matrices that a decomposition cannot handle raise ``LinAlgError`` at once, which waits
for the device: the rows that can raise are inv, solve, solve_triangular, cholesky and those of
eigenvalues and singular values. A loop over the batch runs where no routine takes it whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ruda.backends.cuda.solver import library
from ruda.backends.cuda.solver.library import Solver, solver_of
from ruda.core.dtypes import real_of
from ruda.core.errors import StrategyError
from ruda.core.mode import recording
from ruda.core.spec import Spec
from ruda.ops.arith import absolute
from ruda.ops.compare import equal, greater, not_equal
from ruda.ops.create import arange, zeros
from ruda.ops.diagonal import diagonal, eye, tril, triu
from ruda.ops.explog import log
from ruda.ops.join import concat
from ruda.ops.matmul import adjoint, matmul
from ruda.ops.matrices import columns, identity_like, rows
from ruda.ops.movement import broadcast_to, expand_dims, matrix_transpose
from ruda.ops.reduce import max as _max
from ruda.ops.reduce import prod
from ruda.ops.reduce import sum as _sum
from ruda.ops.select import where
from ruda.tensor.tensor import RudaTensor, wrap

Body: TypeAlias = Callable[..., Any]
_SINGULAR = ("singular matrix", "pinv or lstsq")
_DIVERGED = ("eigenvalues did not converge", "finite values")


def _binder(name: str, body: Body) -> Callable[[Any, Any], Callable[..., Any]]:
    """What binds a plan of ``name``: ``body`` takes the solver, operands and attributes."""

    def bind(client: Any, plan: Any) -> Callable[..., Any]:
        if any(s.size == 0 for s in plan.specs):
            return _of_nothing(client, plan)
        try:
            solver = solver_of(client)
        except StrategyError as error:
            return _raising(error.renamed(name))
        return _running(solver, plan, body)

    return bind


def _raising(error: StrategyError) -> Callable[..., Any]:
    """Raise when the plan is run and not when it is made: a node may need the plan alone."""

    def run(*_: Any) -> Any:
        raise error

    return run


def _of_nothing(client: Any, plan: Any) -> Callable[..., Any]:
    """A matrix without elements has one result whatever its values: the reference gives it."""
    operands = [np.zeros(s.shape, s.dtype.numpy) for s in plan.specs]
    result = plan.op.numpy(*operands, *plan.attrs)
    several = plan.out.__class__ is tuple
    pairs = zip(result, plan.out, strict=True) if several else [(result, plan.out)]
    arrays = [np.asarray(r, o.dtype.numpy) for r, o in pairs]

    def run(*_: Any) -> Any:
        made = tuple(client.adopt(array)[1] for array in arrays)
        return made if several else made[0]

    return run


def _running(solver: Solver, plan: Any, body: Body) -> Callable[..., Any]:
    specs, attrs = plan.specs, plan.attrs
    wanted = plan.op.dtype_of_operands(plan)
    several = plan.out.__class__ is tuple

    def run(*handles: Any) -> Any:
        with recording(False):
            operands = [
                h if s.weak else wrap(s, h).astype(d or s.dtype, copy=False)
                for s, h, d in zip(specs, handles, wanted, strict=True)
            ]
            out = body(solver, *operands, *attrs)
        if several:
            return tuple(_settled(t, s) for t, s in zip(out, plan.out, strict=True))
        return _settled(out, plan.out)

    return run


def _settled(x: RudaTensor, spec: Spec) -> Any:
    """The handle of a result: dense, and the owner of its memory."""
    if x.spec is not spec or x.handle.root is not None:
        x = x.copy()
    return x.handle


def _dense(x: RudaTensor) -> RudaTensor:
    return x if x.spec.contiguous else x.copy()


def _hermitian(x: RudaTensor) -> RudaTensor:
    """The Hermitian part, in memory of its own."""
    return 0.5 * x + 0.5 * adjoint(x)


def cholesky(solver: Solver, x: RudaTensor, upper: bool) -> RudaTensor:
    """The other triangle is the right one for the library, which sees the matrix transposed."""
    a = _hermitian(x)
    info = library.cholesky(solver, a, library.LOWER if upper else library.UPPER)
    what, hint = "matrix is not positive definite", "adding a multiple of the identity"
    library.check("cholesky", info, what, hint)
    return triu(a) if upper else tril(a)


def inv(solver: Solver, x: RudaTensor) -> RudaTensor:
    """The inverse of the transposed matrix is the transposed inverse."""
    a, out = x.copy(), identity_like(x).copy()
    pivots, info = library.lu(solver, a)
    library.check("inv", info, *_SINGULAR)
    library.lu_solve(solver, a, pivots, out, False)
    return out


def solve(solver: Solver, x: RudaTensor, y: RudaTensor) -> RudaTensor:
    """Factors of the transposed matrix, used transposed."""
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    a = broadcast_to(x, (*batch, *x.shape[-2:])).copy()
    b = matrix_transpose(broadcast_to(y, (*batch, *y.shape[-2:]))).copy()
    pivots, info = library.lu(solver, a)
    library.check("solve", info, *_SINGULAR)
    library.lu_solve(solver, a, pivots, b, True)
    return matrix_transpose(b)


def solve_triangular(
    solver: Solver, x: RudaTensor, y: RudaTensor, upper: bool, unit_diagonal: bool
) -> RudaTensor:
    """``x z = y`` is ``zᵀ xᵀ = yᵀ``, which is how the library sees the three."""
    if not unit_diagonal:
        library.check("solve_triangular", equal(diagonal(x, axis1=-2, axis2=-1), 0), *_SINGULAR)
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    a = _dense(broadcast_to(x, (*batch, *x.shape[-2:])))
    out = broadcast_to(y, (*batch, *y.shape[-2:])).copy()
    library.triangular(solver, a, out, library.LOWER if upper else library.UPPER, unit_diagonal)
    return out


def _factors(solver: Solver, x: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
    """The diagonal of U, and the sign of the exchanges of rows: 1 or -1, both ``[..., n]``."""
    a = x.copy()
    pivots, info = library.lu(solver, a)
    order = arange(1, x.shape[-1] + 1, dtype="int32", device=x.device)
    sign = where(not_equal(pivots, order), -1.0, 1.0).astype(x.dtype)
    # Behind a pivot of zero the libraries leave what they like, quotients by zero among it.
    singular = expand_dims(greater(info, 0), -1)
    return where(singular, 0.0, diagonal(a, axis1=-2, axis2=-1)), sign


def det(solver: Solver, x: RudaTensor) -> RudaTensor:
    """The product of the diagonal of U, with the sign of the exchanges of rows."""
    pivots, sign = _factors(solver, x)
    return prod(pivots * sign, axis=-1)


def slogdet(solver: Solver, x: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
    """As ``det``, in logarithms."""
    pivots, sign = _factors(solver, x)
    size = absolute(pivots)
    phase = pivots / where(equal(size, 0), 1.0, size)
    return prod(phase * sign, axis=-1), _sum(log(size), axis=-1)


def lu(solver: Solver, x: RudaTensor) -> tuple[RudaTensor, RudaTensor, RudaTensor]:
    """The exchanges of rows, made in an identity that the library sees transposed, are ``P``."""
    m, n = x.shape[-2:]
    k = min(m, n)
    a = matrix_transpose(x).copy()
    pivots, _ = library.lu(solver, a)
    square = (*x.shape[:-2], m, m)
    p = broadcast_to(eye(m, dtype=x.dtype, device=x.device), square).copy()
    library.swap_rows(solver, pivots, p)
    both = matrix_transpose(a)
    lower = tril(columns(both, 0, k), k=-1) + eye(m, k, dtype=x.dtype, device=x.device)
    return p, lower, triu(rows(both, 0, k))


def qr(solver: Solver, x: RudaTensor, mode: str) -> tuple[RudaTensor, RudaTensor]:
    """Householder reflections, then as many columns of Q as are asked for."""
    m, n = x.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    a = matrix_transpose(x).copy()
    tau = library.householder(solver, a)
    r = triu(rows(matrix_transpose(a), 0, min(m, n)))
    if k > n:
        lead = x.shape[:-2]
        r = concat([r, zeros((*lead, k - n, n), dtype=x.dtype, device=x.device)], axis=-2)
        a = concat([a, zeros((*lead, k - n, m), dtype=x.dtype, device=x.device)], axis=-2)
    q = rows(a, 0, k).copy()
    library.orthonormal(solver, q, tau)
    return matrix_transpose(q), r


def _singular(
    solver: Solver, x: RudaTensor, op: str, vectors: bool = True, full: bool = False
) -> tuple[Any, RudaTensor, Any]:
    """``U``, ``S`` and ``Vᴴ``; the transpose of a wide matrix is what the library sees of it."""
    # With other values the library fails in a way of its own, or returns wrong ones.
    library.check(op, _not_finite(x), "svd did not converge", "finite values")
    *lead, m, n = x.shape
    wide = m <= n
    long, k = max(m, n), min(m, n)
    a = x.copy() if wide else matrix_transpose(x).copy()
    s = solver.fresh((*lead, k), _real(x))
    first: Any = None
    last: Any = None
    if vectors:
        first = solver.fresh((*lead, long if full else k, long), x.dtype)
        last = solver.fresh((*lead, k, k), x.dtype)
    info = library.singular(solver, a, s, first, last)
    library.check(op, info, "svd did not converge", "finite values")
    if not vectors:
        return None, s, None
    if wide:
        return last, s, first
    return matrix_transpose(first), s, matrix_transpose(last)


def _real(x: RudaTensor) -> Any:
    return real_of(x.dtype)


def _not_finite(x: RudaTensor) -> RudaTensor:
    """Which matrices of a batch hold NaN or infinity: their differences with themselves say so."""
    return not_equal(_sum(x - x, axis=(-2, -1)), 0)


def svd(solver: Solver, x: RudaTensor) -> tuple[Any, ...]:
    """As many vectors as values."""
    return _singular(solver, x, "svd")


def svd_full(solver: Solver, x: RudaTensor) -> tuple[Any, ...]:
    """With vectors of the whole of both spaces."""
    return _singular(solver, x, "svd_full", full=True)


def svdvals(solver: Solver, x: RudaTensor) -> RudaTensor:
    """Values alone."""
    return _singular(solver, x, "svdvals", vectors=False)[1]


def _eigen(solver: Solver, x: RudaTensor, op: str, vectors: bool) -> tuple[RudaTensor, RudaTensor]:
    a = _hermitian(x)
    library.check(op, _not_finite(a), *_DIVERGED)
    values, info = library.eigen(solver, a, vectors)
    library.check(op, info, *_DIVERGED)
    return values, a


def eigh(solver: Solver, x: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
    """The transposed matrix that the library sees is the conjugate one, and so are its vectors."""
    values, a = _eigen(solver, x, "eigh", True)
    return values, adjoint(a)


def eigvalsh(solver: Solver, x: RudaTensor) -> RudaTensor:
    """Values alone."""
    return _eigen(solver, x, "eigvalsh", False)[0]


def pinv(solver: Solver, x: RudaTensor, rtol: Any) -> RudaTensor:
    """From the singular values above ``rtol`` times the largest."""
    u, s, vh = _singular(solver, x, "pinv")
    bound = _max(s, axis=-1) * rtol
    large = greater(s, expand_dims(bound, -1))
    inverse = where(large, 1.0 / where(large, s, 1.0), 0.0)
    return matmul(adjoint(vh) * expand_dims(inverse, -2), adjoint(u))


def adjugate(solver: Solver, x: RudaTensor) -> RudaTensor:
    """From the singular values, each product without one of them: nothing is divided."""
    u, s, vh = (t.copy() for t in _singular(solver, x, "adjugate"))
    n = s.shape[-1]
    alone = eye(n, dtype="bool", device=x.device)
    others = prod(where(alone, 1.0, expand_dims(s, -2)), axis=-1)
    sign = det(solver, u) * det(solver, vh)
    product = matmul(adjoint(vh) * expand_dims(others, -2), adjoint(u))
    return expand_dims(sign, (-2, -1)) * product


_BODIES: tuple[Body, ...] = (
    adjugate,
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    lu,
    pinv,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
    svd_full,
    svdvals,
)
KERNELS = {body.__name__: _binder(body.__name__, body) for body in _BODIES}
