"""cuSOLVER and cuBLAS of one client, through nvmath-python's bindings.

Both count columns first: a dense tensor [..., m, n] is to them the transposed matrix, n by m. The
functions here overwrite the memory of the tensors they take, and speak of it in those terms.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ruda.backends.cuda.bindings import binding
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.solver.pointers import pointers
from ruda.core.dtypes import DType, int32, real_of, uint8
from ruda.core.errors import LinAlgError, StrategyError
from ruda.core.shapes import Shape
from ruda.core.spec import spec_of
from ruda.tensor.tensor import RudaTensor, wrap

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_KINDS = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
# Matrices up to this size go to a routine for whole batches, where there is one.
_SMALL = 256
_LARGEST_OF_BATCH = 512
LOWER, UPPER = 0, 1
_PLAIN, _TRANSPOSED = 0, 1
_RIGHT = 1


class Solver:
    """The two libraries with a handle each; one thread at a time uses them."""

    def __init__(self, client: Any, solver: Any, blas: Any) -> None:
        self.client = client
        self.solver, self.blas = solver, blas
        client.driver.activate()
        self._handles = (solver.create(), blas.create())
        self.params = solver.create_params()
        self._stream = 0
        self._lock = threading.RLock()

    @contextmanager
    def entered(self) -> Iterator[tuple[int, int]]:
        """Both handles, queueing in the caller's stream."""
        with self._lock:
            self.client.order.current()
            stream = self.client.now.stream
            if stream != self._stream:
                self.solver.set_stream(self._handles[0], stream)
                self.blas.set_stream(self._handles[1], stream)
                self._stream = stream
            yield self._handles

    def fresh(self, shape: Shape, dtype: DType) -> RudaTensor:
        """A dense tensor of unknown values."""
        spec = spec_of(self.client, shape, dtype)
        return wrap(spec, allocate(self.client.pool, spec))

    def scratch(self, nbytes: int) -> Any:
        """A handle over so many bytes."""
        return allocate(self.client.pool, spec_of(self.client, (max(nbytes, 16),), uint8))


@functools.cache
def solver_of(client: Any) -> Solver:
    """The solver of ``client``; raises ``StrategyError`` where nvmath-python is not installed."""
    try:
        blas, solver = binding("cublas"), binding("cusolverDn")
    except ImportError:
        what, hint = "needs cuSOLVER through nvmath-python", 'pip install "ruda[cuda13]"'
        raise StrategyError("linalg", what, client.device, hint=hint) from None
    return Solver(client, solver, blas)


def address(x: RudaTensor) -> int:
    """Where the first element of a tensor lies."""
    return x.handle.address


def letter(x: RudaTensor) -> str:
    """What the libraries' names for the dtype of ``x`` begin with."""
    return _LETTERS[x.dtype.name]


def places(x: RudaTensor, axes: int = 2) -> list[int]:
    """The addresses of the items of a dense batch, each of the last ``axes`` axes."""
    size = math.prod(x.shape[x.ndim - axes :]) * x.dtype.itemsize
    count = math.prod(x.shape[: x.ndim - axes])
    return [address(x) + i * size for i in range(count)]


def listed(solver: Solver, x: RudaTensor) -> Any:
    """The addresses of the matrices of a dense batch, on the device."""
    size = x.shape[-1] * x.shape[-2] * x.dtype.itemsize
    return pointers(solver.client, address(x), size, math.prod(x.shape[:-2]))


def check(op: str, info: RudaTensor, what: str, hint: str) -> None:
    """Wait for ``info`` and raise ``LinAlgError`` unless it is all zeros."""
    found = info.numpy()
    if np.any(found != 0):
        raise LinAlgError(op, what, hint=hint)


def lu(solver: Solver, a: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
    """Factor the matrices that the libraries see in ``a [..., n, m]``: m by n, in place.

    Returns the pivots ``[..., min(m, n)]``, counted from 1, and ``info [...]``: the number of the
    first zero on the diagonal of U, or 0.
    """
    *batch, n, m = a.shape
    pivots = solver.fresh((*batch, min(m, n)), int32)
    info = solver.fresh(tuple(batch), int32)
    if m == n <= _SMALL and info.size > 1:
        factor = getattr(solver.blas, letter(a) + "getrf_batched")
        with solver.entered() as (_, blas):
            list_a = listed(solver, a)
            factor(blas, n, list_a.address, n, address(pivots), address(info), info.size)
        return pivots, info
    name = letter(a) + "getrf"
    factor = getattr(solver.solver, name)
    with solver.entered() as (dense, _):
        size = getattr(solver.solver, name + "_buffer_size")(dense, m, n, address(a), m)
        work = solver.scratch(size * a.dtype.itemsize)
        for at, p, i in zip(places(a), places(pivots, 1), places(info, 0), strict=True):
            factor(dense, m, n, at, m, work.address, p, i)
    return pivots, info


def lu_solve(
    solver: Solver, a: RudaTensor, pivots: RudaTensor, b: RudaTensor, transposed: bool
) -> None:
    """Overwrite ``b [..., k, n]``, k columns each, with the solutions for factors ``a``."""
    *batch, k, n = b.shape
    count, way = math.prod(batch), _TRANSPOSED if transposed else _PLAIN
    if n <= _SMALL and count > 1:
        solve = getattr(solver.blas, letter(a) + "getrs_batched")
        info = np.zeros(1, np.int32)
        with solver.entered() as (_, blas):
            list_a, list_b = listed(solver, a), listed(solver, b)
            solve(
                blas, way, n, k, list_a.address, n, address(pivots), list_b.address, n,
                info.ctypes.data, count,
            )  # fmt: skip
        return
    solve = getattr(solver.solver, letter(a) + "getrs")
    info_at = solver.scratch(4)
    with solver.entered() as (dense, _):
        for at, p, to in zip(places(a), places(pivots, 1), places(b), strict=True):
            solve(dense, way, n, k, at, n, p, to, n, info_at.address)


def swap_rows(solver: Solver, pivots: RudaTensor, p: RudaTensor) -> None:
    """Interop the rows of the matrices that the library sees in ``p [..., m, m]``, in place."""
    m, k = p.shape[-1], pivots.shape[-1]
    swap = getattr(solver.solver, letter(p) + "laswp")
    with solver.entered() as (dense, _):
        for at, order in zip(places(p), places(pivots, 1), strict=True):
            swap(dense, m, at, m, 1, k, order, 1)


def cholesky(solver: Solver, a: RudaTensor, uplo: int) -> RudaTensor:
    """Overwrite a triangle of ``a [..., n, n]`` with its factor; returns ``info [...]``."""
    n = a.shape[-1]
    info = solver.fresh(a.shape[:-2], int32)
    if n <= _SMALL and info.size > 1:
        factor = getattr(solver.solver, letter(a) + "potrf_batched")
        with solver.entered() as (dense, _):
            list_a = listed(solver, a)
            factor(dense, uplo, n, list_a.address, n, address(info), info.size)
        return info
    name = letter(a) + "potrf"
    factor = getattr(solver.solver, name)
    with solver.entered() as (dense, _):
        size = getattr(solver.solver, name + "_buffer_size")(dense, uplo, n, address(a), n)
        work = solver.scratch(size * a.dtype.itemsize)
        for at, i in zip(places(a), places(info, 0), strict=True):
            factor(dense, uplo, n, at, n, work.address, size, i)
    return info


def triangular(solver: Solver, a: RudaTensor, b: RudaTensor, uplo: int, unit: bool) -> None:
    """Overwrite ``b [..., n, k]`` with X of ``X A = B``, as the library sees ``a [..., n, n]``."""
    *batch, n, k = b.shape
    one = np.ones(1, a.dtype.numpy)
    fixed = (_RIGHT, uplo, _PLAIN, int(unit), k, n, one.ctypes.data)
    count = math.prod(batch)
    with solver.entered() as (_, blas):
        if count > 1:
            list_a, list_b = listed(solver, a), listed(solver, b)
            solve = getattr(solver.blas, letter(a) + "trsm_batched")
            solve(blas, *fixed, list_a.address, n, list_b.address, k, count)
        else:
            solve = getattr(solver.blas, letter(a) + "trsm")
            solve(blas, *fixed, address(a), n, address(b), k)


def householder(solver: Solver, a: RudaTensor) -> RudaTensor:
    """QR of the matrices m by n seen in ``a [..., n, m]``, in place; returns the factors of Q."""
    *batch, n, m = a.shape
    tau = solver.fresh((*batch, min(m, n)), a.dtype)
    name = letter(a) + "geqrf"
    factor = getattr(solver.solver, name)
    info = solver.scratch(4)
    with solver.entered() as (dense, _):
        size = getattr(solver.solver, name + "_buffer_size")(dense, m, n, address(a), m)
        work = solver.scratch(size * a.dtype.itemsize)
        for at, t in zip(places(a), places(tau, 1), strict=True):
            factor(dense, m, n, at, m, t, work.address, size, info.address)
    return tau


def orthonormal(solver: Solver, q: RudaTensor, tau: RudaTensor) -> None:
    """Overwrite reflections in ``q [..., columns, m]`` with the columns of Q."""
    columns, m = q.shape[-2:]
    k = min(tau.shape[-1], columns)
    name = letter(q) + ("ungqr" if q.dtype.kind == "complex" else "orgqr")
    make = getattr(solver.solver, name)
    info = solver.scratch(4)
    with solver.entered() as (dense, _):
        size = getattr(solver.solver, name + "_buffer_size")(
            dense, m, columns, k, address(q), m, address(tau)
        )
        work = solver.scratch(size * q.dtype.itemsize)
        for at, t in zip(places(q), places(tau, 1), strict=True):
            make(dense, m, columns, k, at, m, t, work.address, size, info.address)


def singular(
    solver: Solver, a: RudaTensor, s: RudaTensor, u: RudaTensor | None, vt: RudaTensor | None
) -> RudaTensor:
    """SVD of the matrices m by n, m >= n, seen in ``a [..., n, m]``, which is destroyed.

    Fills ``s [..., n]``, and unless they are None the columns of U in ``u [..., n or m, m]`` and
    those of Vᴴ in ``vt [..., n, n]``. Returns ``info [...]``.
    """
    *batch, n, m = a.shape
    info = solver.fresh(tuple(batch), int32)
    name = letter(a) + "gesvd"
    job, way = getattr(solver.solver, name), "N"
    if u is not None:
        way = "S" if u.shape[-2] == n else "A"
    count = math.prod(batch)
    us = [0] * count if u is None else places(u)
    vts = [0] * count if vt is None else places(vt)
    with solver.entered() as (dense, _):
        size = getattr(solver.solver, name + "_buffer_size")(dense, m, n)
        work, real = solver.scratch(size * a.dtype.itemsize), solver.scratch(8 * n)
        rows = zip(places(a), places(s, 1), us, vts, places(info, 0), strict=True)
        for at, s_at, u_at, vt_at, info_at in rows:
            job(
                dense, ord(way), ord(way), m, n, at, m, s_at, u_at, m, vt_at, n,
                work.address, size, real.address, info_at,
            )  # fmt: skip
    return info


def eigen(solver: Solver, a: RudaTensor, vectors: bool) -> tuple[RudaTensor, RudaTensor]:
    """Eigenvalues ``[..., n]`` of Hermitian ``a [..., n, n]``, and ``info [...]``.

    With ``vectors`` the columns of the eigenvectors that the library sees overwrite ``a``.
    """
    *batch, n, _ = a.shape
    real = real_of(a.dtype)
    values, info = solver.fresh((*batch, n), real), solver.fresh(tuple(batch), int32)
    kind, of_values = _KINDS[a.dtype.name], _KINDS[real.name]
    whole = info.size > 1 and n <= _LARGEST_OF_BATCH
    name = "xsyev_batched" if whole else "xsyevd"
    last = (info.size,) if whole else ()
    one = zip(places(a), places(values, 1), places(info, 0), strict=True)
    calls = [(address(a), address(values), address(info))] if whole else list(one)
    with solver.entered() as (dense, _):
        facts = _eigen_facts(vectors, n, kind, of_values, *calls[0][:2])
        size = getattr(solver.solver, name + "_buffer_size")
        near, far = size(dense, solver.params, *facts, *last)
        work, host = solver.scratch(near), np.empty(max(far, 1), np.uint8)
        for at, w, i in calls:
            facts = _eigen_facts(vectors, n, kind, of_values, at, w)
            getattr(solver.solver, name)(
                dense, solver.params, *facts, work.address, near, host.ctypes.data, far, i, *last
            )
    return values, info


def _eigen_facts(
    vectors: bool, n: int, kind: int, of_values: int, a: int, values: int
) -> tuple[int, ...]:
    # Batches of complex64 fail at random from the lower triangle in some releases of cuSOLVER.
    return int(vectors), UPPER, n, kind, a, n, of_values, values, kind
