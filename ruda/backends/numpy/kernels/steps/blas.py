"""Products by NumPy's own BLAS, called by its address from inside of a task."""

from __future__ import annotations

import ctypes
from functools import cache

from ruda.backends.numpy.kernels.compiler import task
from ruda.backends.numpy.kernels.steps.atoms import load, sgemm, singles
from ruda.backends.numpy.pool import numpys_blas


@cache
def product() -> int:
    """The address of ``cblas_sgemm`` with sizes of 64 bits, 0 where NumPy has another BLAS."""
    for library in numpys_blas():
        for name in ("scipy_cblas_sgemm64_", "cblas_sgemm64_"):
            function = getattr(library, name, None)
            if function is not None:
                return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


@task
def multiply(cells, part):
    """A part of C = A B, along rows (axis 0) or columns, plus a bias on each row."""
    f, ta, tb, m = load(cells), load(cells + 8), load(cells + 16), load(cells + 24)
    n, k, a, lda = load(cells + 32), load(cells + 40), load(cells + 48), load(cells + 56)
    b, ldb, c, ldc = load(cells + 64), load(cells + 72), load(cells + 80), load(cells + 88)
    axis, step, bias = load(cells + 96), load(cells + 104), load(cells + 112)
    start = part * step
    if axis == 0:
        m = min(step, m - start)
        a += 4 * start * (1 if ta else lda)
        c += 4 * start * ldc
    else:
        n = min(step, n - start)
        b += 4 * start * (ldb if tb else 1)
        c += 4 * start
    sgemm(f, ta, tb, m, n, k, a, lda, b, ldb, c, ldc)
    if bias != 0:
        added = singles(bias + (4 * start if axis else 0), n)
        for r in range(m):
            row = singles(c + 4 * r * ldc, n)
            for j in range(n):
                row[j] += added[j]
    return 0


@task
def add_rows(cells, part):
    """The sum of all rows, for some columns, row after row."""
    x, rows, n, step, out = (
        load(cells),
        load(cells + 8),
        load(cells + 16),
        load(cells + 24),
        load(cells + 32),
    )
    start = part * step
    size = min(step, n - start)
    sums = singles(out + 4 * start, size)
    first = singles(x + 4 * start, size)
    for j in range(size):
        sums[j] = first[j]
    for r in range(1, rows):
        row = singles(x + 4 * (r * n + start), size)
        for j in range(size):
            sums[j] += row[j]
    return 0
