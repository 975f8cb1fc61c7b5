"""Samples of products, decompositions, solves and norms: well-conditioned matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import ruda
from ruda import linalg
from ruda.core.dtypes import COMPLEX
from ruda.core.errors import ArgumentError, DTypeError, LinAlgError, ShapeError
from tests.table.sample import Bad, Composed, Sample

REAL = (ruda.float32, ruda.float64)
rng = np.random.default_rng(0)


def noise(*shape: int) -> Any:
    """Small real values."""
    return rng.uniform(-0.2, 0.2, shape)


def complex_noise(*shape: int) -> Any:
    """Small complex values."""
    return noise(*shape) + 1j * noise(*shape)


def hermitian(x: Any) -> Any:
    """The Hermitian part."""
    return (x + np.conj(np.swapaxes(x, -1, -2))) / 2


GAPS = np.diag([1.0, 2.0, 4.0])
SQUARE = np.eye(3) + noise(2, 3, 3)
COMPLEX_SQUARE = np.eye(3) + complex_noise(2, 3, 3)
SYMMETRIC = GAPS + hermitian(noise(2, 3, 3))
COMPLEX_HERMITIAN = GAPS + hermitian(complex_noise(2, 3, 3))
TALL = np.eye(4, 3) @ GAPS + noise(2, 4, 3)
WIDE = np.swapaxes(TALL, -1, -2).copy()
COMPLEX_TALL = np.eye(4, 3) @ GAPS + complex_noise(2, 4, 3)
COMPLEX_WIDE = np.swapaxes(COMPLEX_TALL, -1, -2).copy()
EMPTY = np.zeros((2, 0, 0))
RIGHT = noise(2, 3, 2) + 1
COMPLEX_RIGHT = complex_noise(2, 3, 2) + 1


def each(*arrays: Any, attrs: tuple[Any, ...] = (), real: Any = None, **rest: Any) -> list[Sample]:
    """One sample for each matrix; the complex ones in complex dtypes, the others in ``real``."""
    return [
        Sample((x,), attrs, dtypes=COMPLEX if np.iscomplexobj(x) else real, **rest) for x in arrays
    ]


SQUARES = each(SQUARE, COMPLEX_SQUARE, EMPTY)
# The vectors of real matrices have signs, those of complex ones phases, which are no functions.
SAMPLES = {
    "matmul": [
        Sample(((3, 4), (4, 2))),
        Sample(((2, 3, 4), (4, 2))),
        Sample(((2, 1, 3, 4), (5, 4, 2))),
        Sample((noise(4) + 1, noise(4) + 1)),
        Sample(((4,), (2, 4, 3))),
        Sample(((2, 3, 4), (4,))),
        Sample(((3, 0), (0, 2))),
        Sample(((0, 3), (3, 2))),
    ],
    "matmul_as": [
        Sample(
            ((3, 4), (4, 2)), (ruda.float32,), dtypes=(ruda.float16, ruda.bfloat16, ruda.float32)
        ),
        Sample(((2, 3, 4), (4, 2)), (ruda.float64,), dtypes=(ruda.float32, ruda.float64)),
        Sample(((3, 4), (4, 2)), (ruda.int32,), dtypes=(ruda.int8, ruda.int16)),
    ],
    "cross": [Sample(((2, 3), (3,))), Sample(((4, 1, 3), (2, 3)))],
    "cholesky": [
        *each(SYMMETRIC, COMPLEX_HERMITIAN, EMPTY, attrs=(False,)),
        *each(SYMMETRIC, COMPLEX_HERMITIAN, attrs=(True,)),
    ],
    # Phases again: LAPACK makes the diagonal of R real, but leaves a last element that already is.
    "qr": [
        *each(SQUARE, TALL, WIDE, attrs=("reduced",), real=REAL),
        *each(COMPLEX_TALL, COMPLEX_WIDE, EMPTY, attrs=("reduced",)),
        *each(SQUARE, WIDE, attrs=("complete",), real=REAL),
        *each(TALL, attrs=("complete",), grad=False),
    ],
    "lu": each(SQUARE, TALL, WIDE, COMPLEX_TALL, COMPLEX_WIDE, EMPTY),
    "eigh": [
        *each(SYMMETRIC, real=REAL),
        *each(COMPLEX_HERMITIAN, EMPTY, grad=False),
    ],
    "eigvalsh": each(SYMMETRIC, COMPLEX_HERMITIAN, EMPTY),
    "svd": [
        *each(SYMMETRIC, TALL, WIDE, real=REAL),
        *each(COMPLEX_TALL, EMPTY, grad=False),
    ],
    "svd_full": [
        *each(SYMMETRIC, real=REAL),
        *each(TALL, COMPLEX_WIDE, grad=False),
    ],
    "svdvals": each(SYMMETRIC, TALL, COMPLEX_WIDE, EMPTY),
    "inv": SQUARES,
    "det": SQUARES,
    "slogdet": SQUARES,
    "adjugate": SQUARES,
    "solve": [
        Sample((SQUARE, RIGHT)),
        Sample((SQUARE, RIGHT[0])),
        Sample((COMPLEX_SQUARE, COMPLEX_RIGHT), dtypes=COMPLEX),
        Sample((EMPTY, np.zeros((2, 0, 3)))),
    ],
    "solve_triangular": [
        *(
            Sample((SQUARE, RIGHT), (upper, unit))
            for upper in (True, False)
            for unit in (True, False)
        ),
        Sample((COMPLEX_SQUARE, COMPLEX_RIGHT[0]), (True, False), dtypes=COMPLEX),
        Sample((EMPTY, np.zeros((2, 0, 3))), (True, False)),
    ],
    "pinv": [
        *(Sample((x, 1e-6)) for x in (TALL, WIDE)),
        Sample((COMPLEX_TALL, 1e-6), dtypes=COMPLEX),
        Sample((EMPTY, 1e-6)),
    ],
}


def rebuilt(x: Any, y: Any) -> Any:
    """What does not depend on phases of the singular vectors of ``x + iy``."""
    u, s, vh = linalg.svd(x + y * 1j, full_matrices=False)
    return [(u * ruda.exp(s / 5)[..., None, :]) @ vh, u[..., :1] @ vh[..., :1, :], s]


def projected(x: Any, y: Any) -> Any:
    """What does not depend on phases of the eigenvectors of ``x + iy``."""
    values, vectors = linalg.eigh(x + y * 1j)
    first = vectors[..., :1]
    return [values, first @ ruda.conj(ruda.matrix_transpose(first)), ruda.abs(vectors)]


PARTS = (COMPLEX_TALL.real, COMPLEX_TALL.imag)
COMPOSED = [
    Composed("svd-phases", rebuilt, PARTS),
    Composed("eigh-phases", projected, (COMPLEX_HERMITIAN.real, COMPLEX_HERMITIAN.imag)),
    Composed("vecdot", lambda x, y: linalg.vecdot(x, y, axis=-2), ((2, 4, 3), (4, 1))),
    Composed("vecdot-complex", lambda x, y: linalg.vecdot(x + y * 1j, y), ((2, 3), (2, 3))),
    Composed("tensordot", lambda x, y: linalg.tensordot(x, y, axes=2), ((2, 3, 4), (3, 4, 5))),
    Composed(
        "tensordot-pairs",
        lambda x, y: linalg.tensordot(x, y, axes=((2, 0), (0, 1))),
        ((2, 3, 4), (4, 2)),
    ),
    Composed("outer", linalg.outer, ((3,), (4,))),
    Composed("matrix_rank", linalg.matrix_rank, (TALL,)),
    Composed("lstsq", lambda x, y: linalg.lstsq(x, y)[:2], (TALL, noise(2, 4, 2))),
    Composed("lstsq-vector", lambda x, y: linalg.lstsq(x, y)[:2], (TALL[0], noise(4))),
    *(
        Composed(f"matrix_norm-{order}", lambda x, o=order: linalg.matrix_norm(x, ord=o), (TALL,))
        for order in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
    ),
    *(
        Composed(f"matrix_power-{n}", lambda x, n=n: linalg.matrix_power(x, n), (SQUARE,))
        for n in (-2, 0, 1, 5)
    ),
    Composed("trace", lambda x: linalg.trace(x, offset=1), ((2, 3, 4),)),
    Composed("einsum", lambda x, y: ruda.einsum("...ij,jk->...ki", x, y), ((2, 2, 3), (3, 4))),
    Composed("einsum-diagonal", lambda x: ruda.einsum("iij->ji", x), ((3, 3, 2),)),
    Composed(
        "einsum-several",
        lambda x, y, z: ruda.einsum("ab,bc,cd->", x, y, z),
        ((2, 3), (3, 4), (4, 2)),
    ),
]

SINGULAR = ruda.zeros((2, 2))
HALF = ruda.ones((2, 2), dtype="bfloat16")
BAD = [
    Bad(lambda: ruda.ones((2, 3)) @ ruda.ones((2, 3)), ShapeError, "matmul: the inner sizes"),
    Bad(lambda: ruda.ones((2, 3)) @ 2.0, ShapeError, "matmul: a 0-d operand"),
    Bad(
        lambda: ruda.matmul(HALF, HALF, out_dtype="int32"), DTypeError, "matmul: out_dtype does not"
    ),
    Bad(lambda: linalg.inv(SINGULAR), LinAlgError, "inv: singular matrix"),
    Bad(lambda: linalg.solve(SINGULAR, SINGULAR), LinAlgError, "solve: singular matrix"),
    Bad(lambda: linalg.cholesky(SINGULAR), LinAlgError, "cholesky: matrix is not positive"),
    Bad(
        lambda: linalg.solve_triangular(SINGULAR, SINGULAR, upper=True),
        LinAlgError,
        "solve_triangular: singular",
    ),
    Bad(lambda: linalg.svd(SINGULAR / 0), LinAlgError, "svd: svd did not converge"),
    Bad(lambda: linalg.det(ruda.ones((2, 3))), ShapeError, "det: needs square matrices"),
    Bad(lambda: linalg.qr(ruda.ones(3)), ShapeError, "qr: needs matrices"),
    Bad(lambda: linalg.qr(SINGULAR, mode="r"), ArgumentError, "qr: unknown mode"),
    Bad(lambda: linalg.eigh(HALF), DTypeError, "eigh: dtype not supported. Got bfloat16"),
    Bad(lambda: linalg.inv(ruda.asarray([[1]])), DTypeError, "inv: dtype not supported"),
    Bad(
        lambda: linalg.solve(SINGULAR, ruda.ones((3, 2))), ShapeError, "solve: the sizes do not fit"
    ),
    Bad(lambda: linalg.cross(ruda.ones(2), ruda.ones(2)), ShapeError, "cross: not vectors"),
    Bad(lambda: linalg.outer(SINGULAR, ruda.ones(2)), ShapeError, "outer: takes vectors"),
    Bad(lambda: linalg.vecdot(ruda.ones(2), ruda.ones(3)), ShapeError, "vecdot: the contracted"),
    Bad(lambda: linalg.tensordot(SINGULAR, SINGULAR, axes=3), ShapeError, "tensordot: more axes"),
    Bad(lambda: linalg.matrix_norm(SINGULAR, ord=3), ArgumentError, "matrix_norm: unknown norm"),
    Bad(lambda: linalg.matrix_power(ruda.ones((2, 3)), 2), ShapeError, "matrix_power: needs"),
    Bad(lambda: linalg.trace(ruda.ones(3)), ShapeError, "diagonal: needs matrices"),
    Bad(lambda: ruda.einsum("ij->ji", ruda.ones(2)), ShapeError, "einsum: 'ij' does not fit"),
    Bad(lambda: ruda.einsum("i;j", ruda.ones(2)), ArgumentError, "einsum: cannot read ';'"),
    Bad(lambda: ruda.einsum("ij->k", SINGULAR), ArgumentError, "einsum: the result has a label"),
    Bad(
        lambda: ruda.einsum("i,i", ruda.ones(2), ruda.ones(3)), ShapeError, "einsum: the lengths of"
    ),
    Bad(lambda: ruda.precision(matmul="fast"), ArgumentError, "precision: unknown value"),
]
