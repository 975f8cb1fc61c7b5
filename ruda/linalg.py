"""Linear algebra: the Array API extension ``linalg``, with triangular solve, least squares and LU.

Decompositions take float32, float64, complex64 and complex128, batch over leading axes, and are
differentiable to any order.
"""

from ruda.core.errors import LinAlgError
from ruda.ops.linalg import (
    cross,
    diagonal,
    matrix_norm,
    matrix_power,
    trace,
)
from ruda.ops.linalg_decompositions import cholesky, lu, qr
from ruda.ops.linalg_solve import det, inv, lstsq, pinv, slogdet, solve, solve_triangular
from ruda.ops.linalg_values import eigh, eigvalsh, matrix_rank, svd, svdvals
from ruda.ops.matmul import matmul, outer, tensordot, vecdot
from ruda.ops.movement import matrix_transpose
from ruda.ops.statistics import vector_norm

__all__ = [
    "LinAlgError",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "lu",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
