"""cuSOLVER and the parts of cuBLAS that solve, as nvmath-python binds them, by LAPACK."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular

_TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
_KINDS = {0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}
_REAL = {"s": np.float32, "d": np.float64, "c": np.float32, "z": np.float64}
_SIZE = 64


def memory(address: int, count: int, dtype: Any) -> np.ndarray:
    """The elements at an address."""
    kind = np.dtype(dtype)
    assert address % kind.itemsize == 0
    room = (ctypes.c_byte * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(room, kind)


def matrix(address: int, rows: int, columns: int, leading: int, dtype: Any) -> np.ndarray:
    """A column-major matrix at an address."""
    assert leading >= rows
    flat = memory(address, leading * (columns - 1) + rows, dtype)
    size = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (size, leading * size))


class Typed:
    """Functions named by a letter for the dtype and an operation, found by name."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def create(self) -> int:
        return 5

    def set_stream(self, handle: int, stream: int) -> None:
        assert handle == 5
        self.stream = stream

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.endswith("_buffer_size") and not name.startswith("x"):
            return lambda *_: _SIZE
        kind, operation = _TYPES[name[0]], getattr(type(self), "_" + name[1:])

        def call(handle: int, *given: Any) -> Any:
            assert handle == 5
            self.calls.append(name)
            return operation(self, kind, *given)

        return call

    def _matrices(self, kind: Any, at: int, count: int, *shape: int) -> list[np.ndarray]:
        return [matrix(int(a), *shape, kind) for a in memory(at, count, np.uint64)]

    def _factor(self, a: np.ndarray, pivots: np.ndarray, info: np.ndarray) -> None:
        (factor,) = lapack.get_lapack_funcs(("getrf",), (a,))
        a[...], order, found = factor(a)
        if found > 0:
            # The library divides by a pivot of zero.
            at = np.arange(found, len(a))
            a[at[at < a.shape[1]], at[at < a.shape[1]]] = np.nan
        pivots[:] = order + 1
        info[0] = found

    def _solve(self, a: Any, pivots: Any, b: Any, way: int) -> None:
        (solve,) = lapack.get_lapack_funcs(("getrs",), (a,))
        b[...] = solve(a, pivots - 1, b, trans=way)[0]


class Blas(Typed):
    """The functions of ``nvmath.bindings.cublas`` that ruda calls."""

    def _getrf_batched(
        self, kind: Any, n: int, a: int, lda: int, p: int, info: int, count: int
    ) -> None:
        pivots, infos = memory(p, n * count, np.int32), memory(info, count, np.int32)
        for i, one in enumerate(self._matrices(kind, a, count, n, n, lda)):
            self._factor(one, pivots[i * n : (i + 1) * n], infos[i : i + 1])

    def _getrs_batched(self, kind: Any, way: int, n: int, k: int, *given: int) -> None:
        a, lda, p, b, ldb, info, count = given
        pivots = memory(p, n * count, np.int32)
        pairs = zip(
            self._matrices(kind, a, count, n, n, lda), self._matrices(kind, b, count, n, k, ldb)
        )
        for i, (one, right) in enumerate(pairs):
            self._solve(one, pivots[i * n : (i + 1) * n], right, way)
        memory(info, 1, np.int32)[0] = 0

    def _trsm(self, kind: Any, side: int, uplo: int, way: int, unit: int, *given: int) -> None:
        m, n, alpha, a, lda, b, ldb = given
        assert memory(alpha, 1, kind)[0] == 1
        self._triangle(
            matrix(a, n, n, lda, kind), matrix(b, m, n, ldb, kind), side, uplo, way, unit
        )

    def _trsm_batched(
        self, kind: Any, side: int, uplo: int, way: int, unit: int, *given: int
    ) -> None:
        m, n, alpha, a, lda, b, ldb, count = given
        assert memory(alpha, 1, kind)[0] == 1
        pairs = zip(
            self._matrices(kind, a, count, n, n, lda), self._matrices(kind, b, count, m, n, ldb)
        )
        for one, right in pairs:
            self._triangle(one, right, side, uplo, way, unit)

    @staticmethod
    def _triangle(a: Any, b: Any, side: int, uplo: int, way: int, unit: int) -> None:
        assert (side, way) == (1, 0)
        # X A = B is Aᵀ Xᵀ = Bᵀ.
        b[...] = solve_triangular(a.T, b.T, lower=uplo == 1, unit_diagonal=bool(unit)).T


class Solver(Typed):
    """The functions of ``nvmath.bindings.cusolverDn`` that ruda calls."""

    def __init__(self) -> None:
        super().__init__()
        self.reflections: dict[int, np.ndarray] = {}

    def create_params(self) -> int:
        return 6

    def _getrf(
        self, kind: Any, m: int, n: int, a: int, lda: int, work: int, p: int, info: int
    ) -> None:
        order, found = memory(p, min(m, n), np.int32), memory(info, 1, np.int32)
        self._factor(matrix(a, m, n, lda, kind), order, found)

    def _getrs(self, kind: Any, way: int, n: int, k: int, *given: int) -> None:
        a, lda, p, b, ldb, info = given
        self._solve(
            matrix(a, n, n, lda, kind), memory(p, n, np.int32), matrix(b, n, k, ldb, kind), way
        )
        memory(info, 1, np.int32)[0] = 0

    def _laswp(
        self, kind: Any, n: int, a: int, lda: int, k1: int, k2: int, p: int, step: int
    ) -> None:
        assert (k1, step) == (1, 1)
        x = matrix(a, lda, n, lda, kind)
        for i, to in enumerate(memory(p, k2, np.int32)):
            x[[i, to - 1]] = x[[to - 1, i]]

    def _potrf(self, kind: Any, uplo: int, n: int, a: int, lda: int, *given: int) -> None:
        self._root(matrix(a, n, n, lda, kind), uplo, memory(given[-1], 1, np.int32))

    def _potrf_batched(self, kind: Any, uplo: int, n: int, a: int, lda: int, *given: int) -> None:
        info, count = given
        for i, one in enumerate(self._matrices(kind, a, count, n, n, lda)):
            self._root(one, uplo, memory(info, count, np.int32)[i : i + 1])

    @staticmethod
    def _root(a: Any, uplo: int, info: Any) -> None:
        (factor,) = lapack.get_lapack_funcs(("potrf",), (a,))
        a[...], info[0] = factor(a, lower=uplo == 0, clean=False)

    def _geqrf(self, kind: Any, m: int, n: int, a: int, lda: int, tau: int, *given: int) -> None:
        (factor,) = lapack.get_lapack_funcs(("geqrf",), dtype=kind)
        x = matrix(a, m, n, lda, kind)
        x[...], factors, _, _ = factor(x)
        memory(tau, min(m, n), kind)[:] = factors

    def _orgqr(
        self, kind: Any, m: int, n: int, k: int, a: int, lda: int, tau: int, *given: int
    ) -> None:
        (make,) = lapack.get_lapack_funcs(("orgqr",), dtype=kind)
        x = matrix(a, m, n, lda, kind)
        x[...] = make(x, memory(tau, k, kind))[0]

    def _ungqr(
        self, kind: Any, m: int, n: int, k: int, a: int, lda: int, tau: int, *given: int
    ) -> None:
        (make,) = lapack.get_lapack_funcs(("ungqr",), dtype=kind)
        x = matrix(a, m, n, lda, kind)
        x[...] = make(x, memory(tau, k, kind))[0]

    def _gesvd(self, kind: Any, jobu: int, jobv: int, m: int, n: int, *given: int) -> None:
        a, lda, s, u, ldu, vt, ldvt, *_, info = given
        assert m >= n, "the library takes tall matrices only"
        x = matrix(a, m, n, lda, kind)
        memory(info, 1, np.int32)[0] = 0
        real = _REAL[{v: k for k, v in _TYPES.items()}[kind]]
        assert np.isfinite(x).all(), "the library may not return from other values"
        left, values, right = np.linalg.svd(x, full_matrices=chr(jobu) == "A")
        memory(s, n, real)[:] = values
        x[...] = np.nan
        if chr(jobu) != "N":
            matrix(u, m, left.shape[1], ldu, kind)[...] = left
            matrix(vt, n, n, ldvt, kind)[...] = right

    @staticmethod
    def xsyevd_buffer_size(handle: int, params: int, *given: int) -> tuple[int, int]:
        assert len(given) == 9
        return 64, 64

    @staticmethod
    def xsyev_batched_buffer_size(handle: int, params: int, *given: int) -> tuple[int, int]:
        assert len(given) == 10
        return 64, 64

    def xsyevd(self, handle: int, params: int, *given: int) -> None:
        self.xsyev_batched(handle, params, *given, 1)

    def xsyev_batched(self, handle: int, params: int, *given: int) -> None:
        jobz, uplo, n, kind, a, lda, of_values, w, compute, _, _, _, _, info, count = given
        assert (handle, params, compute) == (5, 6, kind)
        dtype, real = np.dtype(_KINDS[kind]), np.dtype(_KINDS[of_values])
        for i in range(count):
            x = matrix(a + i * n * lda * dtype.itemsize, n, n, lda, dtype)
            assert np.isfinite(x).all(), "the library may fault on other values"
            values, vectors = np.linalg.eigh(x, UPLO="LU"[uplo])
            memory(w + i * n * real.itemsize, n, real)[:] = values
            x[...] = vectors if jobz else np.nan
            memory(info + 4 * i, 1, np.int32)[0] = 0
