"""Products of matrices, in parts on the pool where the extra ``cpu`` is there, else by BLAS alone.

BLAS threads wait for each other: with a busy second core a product of 2 ms took 50. A part on the
pool is taken by whoever is free. What is cut are rows, columns or a batch, never the inner axis:
sums keep their order whatever the number of threads. The largest products are BLAS' own: it packs
each operand once, where every part packs again, and a thread that wakes late costs less there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.numpy.kernels import enabled
from ruda.backends.numpy.pool import BLAS, POOL

# Multiplications of one part: 0.2 ms of one core, for a thread wakes in 0.1; and those for which
# BLAS would start threads.
_PART, _THREADED = 1 << 23, 1 << 18
# Multiplications from which BLAS alone is quicker: row P1 took 21.5 ms on the pool, 17.6 so.
_LARGEST = 1 << 30
_MOST = 4


class Cut(NamedTuple):
    """How a product is cut: the axis of the result (0, 1, or 2 for a batch) and the parts of it.

    No parts at all means one call, with BLAS as it is.
    """

    axis: int
    parts: list[slice]


def cut(rows: int, inner: int, columns: int) -> Cut:
    """The parts of a product [rows, inner] by [inner, columns]."""
    axis, size = (0, rows) if rows >= columns else (1, columns)
    # Whole blocks of what BLAS keeps in registers.
    return Cut(axis, _parts(rows * inner * columns, size, 16))


def cut_batch(shape: tuple[int, ...], inner: int) -> Cut:
    """The parts of a product with a result [batch, ..., rows, columns]."""
    return Cut(2, _parts(math.prod(shape) * inner, shape[0], 1))


def _parts(work: int, size: int, block: int) -> list[slice]:
    if not _THREADED <= work < _LARGEST or not enabled():
        return []
    count = min(max(work // _PART, 1), _MOST)
    step = -(-size // count // block) * block
    return [slice(i, min(i + step, size)) for i in range(0, size, step)]


def multiply(x: Any, y: Any, out: Any, bias: Any, how: Cut) -> None:
    """Write ``x y``, plus ``bias`` on each row, into ``out``."""
    axis, parts = how
    if not parts:
        _product(x, y, out, bias)
    elif len(parts) == 1:
        with BLAS:
            np.matmul(x, y, out=out)
        if bias is not None:
            out += bias
    else:
        _divided(x, y, out, bias, axis, parts)


def _divided(x: Any, y: Any, out: Any, bias: Any, axis: int, parts: list[slice]) -> None:
    def part(i: int) -> None:
        p = parts[i]
        if axis == 1:
            _product(x, y[:, p], out[:, p], None if bias is None else bias[p])
        else:
            _product(x[p], y if axis == 0 else y[p], out[p], bias)

    with BLAS:
        POOL.run(part, len(parts))


def _product(x: Any, y: Any, out: Any, bias: Any) -> None:
    np.matmul(x, y, out=out)
    if bias is not None:
        out += bias
